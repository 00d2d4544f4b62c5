"""What programs that export spans, and are waited for at their exit, have in common."""

from __future__ import annotations

from typing import Final

__all__ = ["EXIT_TIMEOUT", "SLACK_S", "SPANS"]

EXIT_TIMEOUT: Final = "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT"

SPANS: Final = """
    import sys, time
    import tilelang_otel
    from opentelemetry import trace

    tilelang_otel.configure()
    tracer = trace.get_tracer("program")
    for number in range(int(sys.argv[1])):
        tracer.start_span(f"span {number}").end()
    print(time.monotonic(), flush=True)
    sys.exit(3)
"""
"""Ends as many spans as its argument says, tells when it is done, and exits with 3."""

SLACK_S: Final = 3.0
"""How much longer than its timeout an exit may take on a busy machine.

The SDK's own takes 7 s to 30 s in these tests.
"""
