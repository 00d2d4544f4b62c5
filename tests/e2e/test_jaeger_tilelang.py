"""A TileLang kernel's compile in Jaeger."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jaeger import Jaeger
from tests.support.receiver import PROTOCOLS, Protocol
from tests.support.require import require_tilelang
from tests.support.spans import outline
from tests.support.zero_code import run_zero_code

require_tilelang()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kernel_is_stored_with_its_compiler(
    protocol: Protocol, jaeger: Jaeger, tmp_path: Path
) -> None:
    """The trace shows the passes, the code generation, and the C++ compiler that took the time."""
    service = f"kernel-{protocol[:4]}"
    done = run_zero_code(
        "kernel.py", cwd=tmp_path, environment=jaeger.environment(protocol, service)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("compiled\n"), done.stdout
    spans = jaeger.wait_for_trace(service, spans=20)
    lines = outline(spans)
    assert lines[0] == "compile add"
    assert lines.count("  lower") == 1
    [compiler] = [span for span in spans if span.attributes.get("process.executable.name")]
    assert compiler.kind == "CLIENT"
    assert compiler.attributes["process.exit.code"] == 0
    parents = {span.span_id: span for span in spans}
    chain = [compiler.name]
    while (span := parents.get(compiler.parent_span_id)) is not None:
        chain.append(span.name)
        compiler = span
    assert chain[-1] == "compile add"
    passes = [span for span in spans if "tvm.pass.name" in span.attributes]
    assert len(passes) > 20
    assert {"tilelang.kernel.name"} <= set(parents[spans[0].span_id].attributes)
