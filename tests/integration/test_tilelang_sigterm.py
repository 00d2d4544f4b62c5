"""SIGTERM while TileLang waits for a compiler: what arrives at a real receiver."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.support.receiver import OTLPReceiver
from tests.support.require import require_tilelang
from tests.support.signalled import SignalledProgram
from tests.support.spans import assert_sound

require_tilelang()
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")

_PROGRAM = """
import os, sys
from pathlib import Path

import tilelang_otel
tilelang_otel.configure()
from tests.support import tilelang_kernels as kernels
tilelang_otel.instrument()
with kernels.folders(Path(os.environ["CACHES"])):
    {compile}
"""

# It ends when the test does: that closes the pipe that the program has given it.
_COMPILER = f"""#!{sys.executable}
import os
os.write(2, b"the compiler runs\\n")
os.read(0, 1)
"""

_ONE = 'kernels.compile_cpu(name="k64")'
_TWO = 'kernels.tilelang.par_compile([kernels.scale(n, f"k{n}") for n in (64, 128)], target="c")'

_DIED = "the process died of SIGTERM"
_PASSED_ON = "failed in g++"

_KERNEL_64 = [("adapter", _PASSED_ON), ("compile k64", _PASSED_ON), ("g++", _DIED)]
_KERNEL_128 = [("adapter", _PASSED_ON), ("compile k128", _PASSED_ON), ("g++", _DIED)]


@pytest.mark.parametrize(
    ("compile_", "kernels", "open_"),
    [(_ONE, 1, _KERNEL_64), (_TWO, 2, [*_KERNEL_64, *_KERNEL_128, ("par_compile", _DIED)])],
    ids=["one kernel", "two side by side"],
)
def test_sigterm_while_a_compiler_hangs_exports_the_kernels(
    compile_: str, kernels: int, open_: list[tuple[str, str]], tmp_path: Path
) -> None:
    """Whichever threads wait for it: all that is open are errors, finished passes are not."""
    compilers, caches = tmp_path / "bin", tmp_path / "caches"
    compilers.mkdir()
    caches.mkdir()
    compiler = compilers / "g++"
    compiler.write_text(_COMPILER, encoding="utf-8")
    compiler.chmod(0o755)
    with OTLPReceiver() as receiver:
        environment = {
            **receiver.environment(),
            "OTEL_PYTHON_TILELANG_FLUSH_ON_SIGTERM": "true",
            "CACHES": str(caches),
            "PATH": f"{compilers}:/usr/bin:/bin",
        }
        source = _PROGRAM.format(compile=compile_)
        with SignalledProgram(source, environment) as program:
            program.wait_for("the compiler runs", timeout_s=120, count=kernels)
            program.terminate()
            assert program.end()[0] == -signal.SIGTERM
        spans = receiver.spans
    failed = sorted((s.name, s.status_message) for s in spans if s.status == "ERROR")
    assert failed == sorted(open_)
    assert len({span.span_id for span in spans}) == len(spans)
    assert sum(span.name == "tl.LowerTileOp" for span in spans) == kernels
    assert_sound(spans)
