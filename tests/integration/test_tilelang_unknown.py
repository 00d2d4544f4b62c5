"""A TileLang that we do not know, or that is not what it seems: the program runs all the same.

Needs no TileLang: packages of that name are written for the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

_PROGRAM = """
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
import tilelang_otel

class Other(BaseInstrumentor):
    def instrumentation_dependencies(self):
        return ()
    def _instrument(self, **kwargs):
        print("another instrumentor is on")
    def _uninstrument(self, **kwargs):
        pass

tilelang_otel.instrument()
Other().instrument()
import tilelang
print("compiled", tilelang.compile("kernel"))
tilelang_otel.uninstrument()
print("compiled", tilelang.compile("kernel"))
"""

_COMPILE = "def compile(func, **options):\n    return func\n"

_STUBS: dict[str, dict[str, str]] = {
    "nothing but compile": {"__init__.py": _COMPILE},
    "no instrumentation": {
        "__init__.py": f"from tilelang import cache, jit\n{_COMPILE}",
        "cache.py": "def cached(func, **options):\n    return func\n",
        "jit.py": "from tilelang.cache import cached\nclass JITImpl: pass\n",
    },
    "an instrumentation without tools": {
        "__init__.py": f"from tilelang.instrumentation import session, events\n{_COMPILE}",
        "instrumentation/__init__.py": "",
        "instrumentation/session.py": "",
        "instrumentation/events.py": "",
    },
    "other things under the names": {
        "__init__.py": f"from tilelang import cache, jit\n{_COMPILE}",
        "cache.py": "cached = 3\n",
        "jit.py": "JITImpl = None\npar_compile = 'soon'\nthreading = concurrent = None\n",
    },
}


@pytest.mark.parametrize("stub", list(_STUBS))
def test_unknown_tilelang_leaves_the_program_and_other_instrumentors_alone(
    stub: str, tmp_path: Path
) -> None:
    """What is not there is not wrapped; never an exception out of somebody's import."""
    for name, text in _STUBS[stub].items():
        path = tmp_path / "tilelang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{_ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["another instrumentor is on", "compiled kernel", "compiled kernel"],
    ), done.stderr
    assert "Traceback" not in done.stderr
