"""How a traced program ends: as it would have ended without tracing."""

from __future__ import annotations

import pytest

from tests.support.programs import run_program
from tests.support.require import require_tvm

require_tvm()

_BY_HAND = """
    from tilelang_otel import OTelPassObserver
    from tilelang_otel.events import StackedPassInstrument
    instruments = [StackedPassInstrument(OTelPassObserver())]
"""

_ZERO_CODE = """
    import tilelang_otel
    tilelang_otel.instrument()
    instruments = None
"""

_ENTER = """
    from tests.support.tvm_modules import empty_module, python_pass
    from tvm.ir import transform
    transform.PassContext(opt_level=1, instruments=instruments).__enter__()
    transform.PassContext(opt_level=2, instruments=instruments).__enter__()
    python_pass("Id", lambda mod: mod)(empty_module())
    del instruments
"""


@pytest.mark.parametrize(
    "program",
    [
        _BY_HAND + _ENTER,
        _ZERO_CODE + _ENTER,
        _ZERO_CODE + _ENTER + "    tilelang_otel.uninstrument()\n",
    ],
    ids=["by hand", "zero-code", "uninstrumented"],
)
def test_context_that_is_never_left_does_not_crash_the_exit(program: str) -> None:
    """TVM frees it after Python is gone, and a Python callback cannot be freed then."""
    done = run_program(program)
    assert (done.exit_code, done.complaints) == (0, [])


def test_instrument_before_import_loads_no_compiler_and_traces_it_when_it_comes() -> None:
    """The hook waits for the program's own import; TVM is not loaded for us."""
    done = run_program(
        """
        import sys
        import tilelang_otel
        from tests.support.spans import SpanMemory, outline
        memory = SpanMemory()
        tilelang_otel.instrument(memory.provider)
        print("tvm" in sys.modules, "tilelang" in sys.modules)
        from tests.support.tvm_modules import empty_module, python_pass
        python_pass("Id", lambda mod: mod)(empty_module())
        print(outline(memory.spans))
        """
    )
    assert done.lines == ["False False", "['PassContext', '  Id']"]
    assert (done.exit_code, done.complaints) == (0, [])


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise SystemExit(3)", "os._exit(3)"])
def test_exit_inside_a_context_keeps_its_code(ending: str) -> None:
    """With tracing as without."""
    done = run_program(
        f"""
        import os, sys
        import tilelang_otel
        tilelang_otel.instrument()
        from tests.support.tvm_modules import empty_module, python_pass
        from tvm.ir import transform
        with transform.PassContext():
            python_pass("Id", lambda mod: mod)(empty_module())
            {ending}
        """
    )
    assert (done.exit_code, done.complaints) == (3, [])
