"""What we assume of TVM's pass contexts and the instruments in them."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import weakref
from typing import Any

import pytest

from tests.support.require import require_tvm
from tests.support.tvm_modules import empty_module, python_pass, raising

require_tvm()

transform: Any = importlib.import_module("tvm.ir.transform")
instrument_module: Any = importlib.import_module("tvm.ir.instrument")
ffi_api: Any = importlib.import_module("tvm.ir._ffi_instrument_api")


class _Hooks:
    """Callbacks that belong to no instrument, and write down when they are called."""

    def __init__(self, log: list[Any], name: str = "") -> None:
        self.log = log
        self.name = name
        self.contexts: list[Any] = []
        self.errors: list[BaseException | None] = []

    def enter(self) -> None:
        self.log.append(f"{self.name}enter")
        self.contexts.append(transform.PassContext.current())

    def exit(self) -> None:
        self.log.append(f"{self.name}exit")
        self.errors.append(sys.exc_info()[1])

    def before(self, mod: Any, info: Any) -> None:
        self.log.append(f"{self.name}+{info.name}")

    def after(self, mod: Any, info: Any) -> None:
        self.log.append(f"{self.name}-{info.name}")


class _Instrument(instrument_module.PassInstrument):
    """An instrument made as ours is: by the FFI constructor, of somebody else's callbacks."""

    def __init__(self, hooks: _Hooks) -> None:
        self.__init_handle_by_constructor__(
            ffi_api.PassInstrument,
            "instrument",
            hooks.enter,
            hooks.exit,
            None,
            hooks.before,
            hooks.after,
        )


@pytest.fixture
def log() -> list[Any]:
    """What the hooks wrote."""
    return []


_IDENTITY = python_pass("Identity", lambda mod: mod)


def test_instruments_are_entered_called_and_left_in_registration_order(log: list[Any]) -> None:
    """Also on exit: it is first in, first out."""
    instruments = [_Instrument(_Hooks(log, "a")), _Instrument(_Hooks(log, "b"))]
    with transform.PassContext(instruments=instruments):
        _IDENTITY(empty_module())
    assert log == [
        *("aenter", "benter"),
        *("a+Identity", "b+Identity", "a-Identity", "b-Identity"),
        *("aexit", "bexit"),
    ]


def test_instrument_list_given_to_the_context_is_the_fourth_argument(log: list[Any]) -> None:
    """It is where a wrapper of the constructor adds its own."""
    with transform.PassContext(2, None, None, [_Instrument(_Hooks(log))]):
        pass
    assert log == ["enter", "exit"]


def test_default_context_of_a_thread_is_its_own_and_has_no_instruments(log: list[Any]) -> None:
    """What is put into one thread's default context, no other sees."""
    seen: list[int] = []
    context = transform.PassContext.current()
    assert len(context.instruments) == 0
    context.override_instruments([_Instrument(_Hooks(log))])
    try:
        thread = threading.Thread(
            target=lambda: seen.append(len(transform.PassContext.current().instruments))
        )
        thread.start()
        thread.join()
        assert len(transform.PassContext.current().instruments) == 1
    finally:
        context.override_instruments([])
    assert seen == [0]


def test_override_enters_and_exits_at_once_and_leaves_nothing_behind(log: list[Any]) -> None:
    """So a default context can be watched for the length of a call."""
    context = transform.PassContext.current()
    context.override_instruments([_Instrument(_Hooks(log))])
    _IDENTITY(empty_module())
    context.override_instruments([])
    _IDENTITY(empty_module())
    assert log == ["enter", "+Identity", "-Identity", "exit"]
    assert len(transform.PassContext.current().instruments) == 0


def test_override_calls_the_hooks_of_those_that_stay_once_more(log: list[Any]) -> None:
    """Which is why a context with a user's instruments is left as it is."""
    instrument = _Instrument(_Hooks(log))
    with transform.PassContext(instruments=[instrument]) as context:
        log.clear()
        context.override_instruments([instrument, _Instrument(_Hooks(log, "b"))])
        assert log == ["exit", "enter", "benter"]


def test_current_context_while_entering_and_leaving_is_the_outer_one(log: list[Any]) -> None:
    """The hooks are called before a context is current, and after it was."""
    hooks = _Hooks(log)
    outer = transform.PassContext.current()
    with transform.PassContext(instruments=[_Instrument(hooks)]) as context:
        assert transform.PassContext.current().same_as(context)
    assert hooks.contexts[0].same_as(outer)


def test_instrument_read_from_a_context_is_another_object(log: list[Any]) -> None:
    """Only ``same_as`` tells that it is ours: its class does not."""
    instrument = _Instrument(_Hooks(log))
    with transform.PassContext(instruments=[instrument]) as context:
        [found] = context.instruments
        assert found is not instrument
        assert not isinstance(found, _Instrument)
        assert found.same_as(instrument)


def test_error_that_leaves_the_context_is_visible_to_the_exit_hook(log: list[Any]) -> None:
    """TVM does not hand it over, but Python is handling it."""
    hooks = _Hooks(log)
    with (
        pytest.raises(ValueError, match="no good") as caught,
        transform.PassContext(instruments=[_Instrument(hooks)]),
    ):
        raising("Boom", ValueError("no good"))(empty_module())
    assert hooks.errors == [caught.value]
    assert log == ["enter", "+Boom", "exit"]


def test_failed_pass_gets_no_after_callback_and_the_next_one_does(log: list[Any]) -> None:
    """Who catches a failure and goes on leaves an open pass behind."""
    with transform.PassContext(instruments=[_Instrument(_Hooks(log))]):
        with pytest.raises(ValueError, match="no good"):
            raising("Boom", ValueError("no good"))(empty_module())
        _IDENTITY(empty_module())
    assert log == ["enter", "+Boom", "+Identity", "-Identity", "exit"]


def test_hooks_that_raise_on_entry_take_all_instruments_from_the_context() -> None:
    """So ours may never raise there."""
    hooks = _Hooks([])

    def raise_error() -> None:
        raise ValueError("no good")

    hooks.enter = raise_error
    context = transform.PassContext(instruments=[_Instrument(hooks)])
    with pytest.raises(ValueError, match="no good"):
        context.__enter__()
    assert len(context.instruments) == 0


def test_instrument_made_of_separate_callbacks_dies_with_its_last_user() -> None:
    """Nothing that TVM holds leads back to it."""
    hooks = _Hooks([])
    gone = weakref.ref(hooks)
    with transform.PassContext(instruments=[_Instrument(hooks)]):
        _IDENTITY(empty_module())
    hooks.contexts.clear()
    del hooks
    gc.collect()
    assert gone() is None


def test_decorated_instrument_never_dies() -> None:
    """A cycle through C++ is why ours is none. Once this fails, ours could be one too."""

    @instrument_module.pass_instrument
    class Decorated:
        def __init__(self, payload: Any) -> None:
            self.payload = payload

        def run_before_pass(self, mod: Any, info: Any) -> None:
            pass

    class Payload:
        pass

    payload = Payload()
    gone = weakref.ref(payload)
    instrument: Any = Decorated(payload)
    del payload, instrument
    gc.collect()
    assert gone() is not None
