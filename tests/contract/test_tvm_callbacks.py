"""What we assume of the calls that TVM makes to an instrument: frames, names, interrupts."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tests.support.require import require_tvm
from tests.support.tvm_modules import empty_module, python_pass

require_tvm()

relax: Any = importlib.import_module("tvm.relax")
transform: Any = importlib.import_module("tvm.ir.transform")
instrument_module: Any = importlib.import_module("tvm.ir.instrument")
ffi_api: Any = importlib.import_module("tvm.ir._ffi_instrument_api")


class _Hooks:
    """Callbacks that write down who called them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, FrameType]] = []
        self.interrupt_after = ""

    def before(self, mod: Any, info: Any) -> None:
        self.calls.append((f"+{info.name}", sys._getframe(1)))
        if info.name == self.interrupt_after:
            # Long before a slow pass is over, so that it comes while C++ runs.
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)

    def after(self, mod: Any, info: Any) -> None:
        self.calls.append((f"-{info.name}", sys._getframe(1)))


class _Instrument(instrument_module.PassInstrument):
    def __init__(self, hooks: _Hooks) -> None:
        self.__init_handle_by_constructor__(
            ffi_api.PassInstrument,
            "instrument",
            None,
            None,
            None,
            hooks.before,
            hooks.after,
        )


@pytest.fixture
def hooks() -> _Hooks:
    """Callbacks with an empty log."""
    return _Hooks()


def test_caller_of_a_callback_is_the_python_call_of_the_pass(hooks: _Hooks) -> None:
    """No frame of the FFI is in between, so one step up is ``Pass.__call__``."""
    with transform.PassContext(instruments=[_Instrument(hooks)]):
        python_pass("P", lambda mod: mod)(empty_module())
    codes = {frame.f_code for _, frame in hooks.calls}
    assert codes == {transform.Pass.__call__.__code__}


def test_caller_tells_apart_what_names_cannot(hooks: _Hooks) -> None:
    """One frame for each call from Python, for both callbacks and for all passes from C++ in it."""
    inner = python_pass("Inner", lambda mod: mod)
    outer = python_pass(
        "Outer", lambda mod: transform.Sequential([inner, inner], name="Inside")(mod)
    )
    with transform.PassContext(instruments=[_Instrument(hooks)]):
        transform.Sequential([outer, inner], name="Whole")(empty_module())
        inner(empty_module())
    numbers: dict[FrameType, int] = {}
    told = [(name, numbers.setdefault(frame, len(numbers))) for name, frame in hooks.calls]
    assert told == [
        ("+Whole", 0),
        ("+Outer", 0),
        ("+Inside", 1),
        ("+Inner", 1),
        ("-Inner", 1),
        ("+Inner", 1),
        ("-Inner", 1),
        ("-Inside", 1),
        ("-Outer", 0),
        ("+Inner", 0),
        ("-Inner", 0),
        ("-Whole", 0),
        ("+Inner", 2),
        ("-Inner", 2),
    ]


def test_pass_info_is_one_object_of_tvms_for_both_callbacks() -> None:
    """``same_as`` pairs them without reading a name."""
    infos: list[Any] = []
    hooks = _Hooks()
    hooks.before = hooks.after = lambda mod, info: infos.append(info)
    with transform.PassContext(instruments=[_Instrument(hooks)]):
        python_pass("P", lambda mod: mod)(empty_module())
    before, after = infos
    assert before is not after
    assert before.same_as(after)


@pytest.mark.parametrize("name", ["x" * 100_000, "tab\there", "%s{}", "Zürich 編譯"])
def test_pass_names_come_as_plain_text_of_any_kind(name: str, hooks: _Hooks) -> None:
    """TVM limits nothing: bounding names is up to us."""
    with transform.PassContext(instruments=[_Instrument(hooks)]):
        python_pass(name, lambda mod: mod)(empty_module())
    assert [call for call, _ in hooks.calls] == [f"+{name}", f"-{name}"]
    assert type(hooks.calls[0][0]) is str


# -- Ctrl-C ------------------------------------------------------------------------

_SLOW = "CanonicalizeRelaxBindings"


@pytest.fixture(scope="module")
def slow_module() -> Any:
    """A module that keeps one pass busy in C++ for far longer than the timer."""
    builder = relax.BlockBuilder()
    tensor = getattr(relax, "TensorStructInfo", None) or relax.TensorType
    x = relax.Var("x", tensor([4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(x, x))
            for _ in range(4000):
                y = builder.emit(y)
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let the timer's signal do what Ctrl-C does."""
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("is_nested", [False, True], ids=["direct", "in-python-pass"])
def test_ctrl_c_at_a_callback_becomes_an_empty_error_that_began_there(
    is_nested: bool, hooks: _Hooks, slow_module: Any
) -> None:
    """The traceback that TVM rebuilds ends in the callback: that tells it from other errors."""
    run: Any = relax.transform.CanonicalizeBindings()
    if is_nested:
        run = python_pass("Python", relax.transform.CanonicalizeBindings())
    hooks.interrupt_after = _SLOW
    with (
        pytest.raises(RuntimeError) as caught,
        transform.PassContext(instruments=[_Instrument(hooks)]),
    ):
        run(slow_module)
    assert type(caught.value) is RuntimeError
    assert str(caught.value) == ""
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    code = caught.traceback[-1].frame.code.raw
    assert (code.co_filename, code.co_name) == (__file__, "after")


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_without_python_callbacks_stays_one(slow_module: Any) -> None:
    """So what we give back to the program is what it would have got without us."""
    run = relax.transform.CanonicalizeBindings()
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
    with pytest.raises(KeyboardInterrupt):
        run(slow_module)
