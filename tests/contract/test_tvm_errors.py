"""What we assume of exceptions that cross from Python through C++ and back."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.require import require_tvm
from tests.support.tvm_modules import empty_module, python_pass, raising

require_tvm()

tvm: Any = importlib.import_module("tvm")
InternalError: Any = importlib.import_module("tvm.error").InternalError


class _CustomError(Exception):
    """Cannot be made from a message alone."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"custom {code}")


_SURVIVING = [
    ValueError("a value"),
    ValueError("two\nlines"),
    TypeError("a type"),
    MemoryError("memory"),
    RuntimeError("run"),
    InternalError("internal"),
]

_CHANGED = [
    (SystemExit(3), "3"),
    (_CustomError(code=7), "custom 7"),
    (asyncio.CancelledError("stop"), "stop"),
    (OSError(2, "gone"), "[Errno 2] gone"),
    (RecursionError("deep"), "deep"),
    (KeyboardInterrupt(), ""),
    (GeneratorExit(), ""),
]


def _caught(error: BaseException, is_nested: bool) -> BaseException:
    """Return what arrives of ``error`` when a pass raises it."""
    failing = raising("Boom", error)
    run = python_pass("Outer", failing) if is_nested else failing
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - the class is what is tested
        run(empty_module())
    return caught.value


_how = pytest.mark.parametrize("is_nested", [False, True], ids=["direct", "nested"])


@_how
@pytest.mark.parametrize("error", _SURVIVING, ids=lambda error: type(error).__name__)
def test_class_that_tvm_knows_survives_as_a_new_object(error: Exception, is_nested: bool) -> None:
    """Class and message arrive, the object does not, and nothing leads back to it."""
    caught = _caught(error, is_nested)
    assert (type(caught), str(caught)) == (type(error), str(error))
    assert caught is not error
    assert (caught.__cause__, caught.__context__) == (None, None)


@_how
@pytest.mark.parametrize(("error", "message"), _CHANGED, ids=lambda value: type(value).__name__)
def test_any_other_class_arrives_as_a_runtime_error(
    error: BaseException, message: str, is_nested: bool
) -> None:
    """With the message, so that alone tells which failure was passed on."""
    caught = _caught(error, is_nested)
    assert (type(caught), str(caught)) == (RuntimeError, message)


def _fail_in_cpp() -> None:
    tvm.relax.transform.FuseTIR()(None)


@pytest.mark.parametrize(
    "fail", [_fail_in_cpp, lambda: raising("Boom", ValueError("no good"))(empty_module())]
)
def test_message_holds_no_traceback_of_cpp(fail: Callable[[], object]) -> None:
    """It is in the traceback object, where it belongs: messages go onto spans."""
    with pytest.raises((ValueError, InternalError)) as caught:
        fail()
    assert "File " not in str(caught.value)
    assert "Stack trace" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_traceback_names_the_pass_that_raised_last() -> None:
    """TVM puts the frames of all sides into the one that Python shows."""
    caught = _caught(ValueError("no good"), is_nested=True)
    trace = caught.__traceback__
    names: list[str] = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[-1] == "body"
    assert any(name.startswith("TVMFFI") for name in names)
