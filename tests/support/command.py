"""The ``tilelang-otel`` command and plain Python, in processes of their own.

Owns starting them and reading the trace files that they leave. Programs given
as source text are up to ``programs``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.received import ReceivedEvent, ReceivedSpan
from tilelang_otel.cli._traces.file import SpanReader

__all__ = ["read_spans", "run_command", "run_python"]

_ROOT = Path(__file__).parents[2]

_MAIN = "import sys; from tilelang_otel.cli import main; sys.exit(main())"


def run_command(
    *arguments: str | os.PathLike[str],
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run ``tilelang-otel`` with this interpreter and this checkout.

    Args:
        *arguments: Its command line.
        cwd: The current directory.
        environment: Variables beside those of this process.
        timeout_s: After how many seconds it is killed, which fails the test.
    """
    return run_python(
        "-c", _MAIN, *arguments, cwd=cwd, environment=environment, timeout_s=timeout_s
    )


def run_python(
    *arguments: str | os.PathLike[str],
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter, with this checkout on its path.

    Args:
        *arguments: Its command line.
        cwd: The current directory.
        environment: Variables beside those of this process.
        timeout_s: After how many seconds it is killed, which fails the test.
    """
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, *(os.fspath(argument) for argument in arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def read_spans(file: Path) -> list[ReceivedSpan]:
    """Return the spans in a trace file, every line of which is to be whole.

    Args:
        file: OTLP JSON Lines.
    """
    reader = SpanReader()
    reader.read_file(str(file))
    assert reader.problems == []
    return [
        ReceivedSpan(
            name=span.name,
            trace_id=span.trace_id,
            span_id=span.span_id,
            parent_span_id=span.parent_id,
            kind=str(span.kind),
            start_ns=span.start_ns,
            end_ns=span.end_ns,
            status=("UNSET", "OK", "ERROR")[span.status],
            status_message=span.status_message,
            attributes=dict(span.attributes),
            events=tuple(
                ReceivedEvent(event.name, event.time_ns, dict(event.attributes))
                for event in span.events
            ),
            links=(),
            resource=dict(span.resource),
            scope_name=span.scope,
            scope_version="",
            schema_url="",
        )
        for span in reader.spans
    ]
