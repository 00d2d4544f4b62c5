"""Zero-code tracing beside instruments of the user's, in every kind of context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace

import tilelang_otel
from tests.support.require import require_tvm
from tests.support.spans import SpanMemory, assert_sound, outline, trees
from tests.support.threads import in_threads
from tests.support.tvm_modules import (
    CallLog,
    call_log,
    compile_mlp,
    empty_module,
    python_pass,
    raising,
    scaling,
    tolerant,
)

require_tvm()

from tvm import tirx  # noqa: E402
from tvm.ir import transform  # noqa: E402

from tilelang_otel import OTelPassObserver  # noqa: E402
from tilelang_otel.events import StackedPassInstrument  # noqa: E402

_LLVM: Any = "llvm"


@pytest.fixture(autouse=True)
def uninstrumented_afterwards() -> Iterator[None]:
    """Take tracing off, whatever the test did."""
    yield
    tilelang_otel.uninstrument()


def _identity(name: str = "Id") -> Any:
    return python_pass(name, lambda mod: mod)


# -- the user's instruments -----------------------------------------------------------------


def _in_explicit_context(instrument: Any) -> None:
    with transform.PassContext(opt_level=3, instruments=[instrument]):
        compile_mlp()
        with pytest.raises(ValueError, match="boom"):
            raising("Boom", lambda: ValueError("boom"))(empty_module())


def _in_positional_context(instrument: Any) -> None:
    context: Any = transform.PassContext(2, None, None, (instrument,), None)
    for _ in range(2):
        with context:
            tolerant("Tol", raising("Boom", lambda: ValueError("boom")), _identity())(
                empty_module()
            )


def _overriding(instrument: Any) -> None:
    context: Any = transform.PassContext()
    with context:
        _identity("Before")(empty_module())
        context.override_instruments([instrument])
        _identity("After")(empty_module())
        tirx.build(scaling(), target=_LLVM)


def _in_default_context(instrument: Any) -> None:
    def compile_(_: int) -> None:
        current: Any = transform.PassContext.current()
        _identity("Before")(empty_module())
        current.override_instruments([instrument])
        _identity("After")(empty_module())
        tirx.build(scaling(), target=_LLVM)
        current.override_instruments([])

    in_threads(1, compile_)


_PROGRAMS = [_in_explicit_context, _in_positional_context, _overriding, _in_default_context]


@pytest.mark.parametrize("program", _PROGRAMS)
def test_users_instrument_sees_exactly_the_same_calls(
    program: Callable[[Any], None], memory: SpanMemory
) -> None:
    """No call more or less, and in the same order, as in a program that is not traced."""
    compile_mlp()  # exporting the model runs passes too, the first time
    plain: CallLog = []
    program(call_log(plain))
    tilelang_otel.instrument(memory.provider)
    traced: CallLog = []
    program(call_log(traced))
    assert traced == plain
    assert len(plain) > 3
    assert memory.spans


def test_passes_after_the_user_overrides_instruments_are_still_traced(memory: SpanMemory) -> None:
    """What the program puts there replaces its own instruments, not ours."""
    tilelang_otel.instrument(memory.provider)
    _overriding(call_log([]))
    names = [line.strip() for line in outline(memory.spans)]
    assert "Before" in names
    assert "After" in names
    assert "codegen llvm" in names
    assert [root.name for root in trees(memory.spans)].count("compile main") <= 1


def test_users_instrument_in_the_default_context_stays_there(memory: SpanMemory) -> None:
    """Also when a compile ends that found it there, or that put it there."""
    tilelang_otel.instrument(memory.provider)
    calls: CallLog = []

    def put(mod: Any) -> Any:
        current: Any = transform.PassContext.current()
        current.override_instruments([call_log(calls)])
        return mod

    def compile_(_: int) -> None:
        current: Any = transform.PassContext.current()
        python_pass("Put", put)(empty_module())
        assert len(current.instruments) == 1
        _identity()(empty_module())
        assert ("run_before_pass", "Id") in calls
        current.override_instruments([])

    in_threads(1, compile_)


def test_overriding_instruments_inside_a_pass_cuts_no_span_short(memory: SpanMemory) -> None:
    """The pass that does it is still open for us: it ends when it ends, without an error."""
    tilelang_otel.instrument(memory.provider)
    context: Any = transform.PassContext(instruments=[call_log([])])

    def body(mod: Any) -> Any:
        context.override_instruments([call_log([])])
        return _identity("Inner")(mod)

    with context:
        python_pass("Outer", body)(empty_module())
        _identity("Next")(empty_module())
    assert outline(memory.spans) == ["PassContext", "  Outer", "    Inner", "  Next"]
    assert_sound(memory.spans)


@pytest.mark.parametrize("hook", ["enter_pass_ctx", "exit_pass_ctx"])
def test_override_that_fails_in_a_users_hook_ends_the_recording_cleanly(
    hook: str, memory: SpanMemory
) -> None:
    """TVM then forgets all instruments; ours must not wait for an exit that won't come."""
    tilelang_otel.instrument(memory.provider)
    good, bad = call_log([]), call_log([], raises=hook)
    first, second = (good, bad) if hook == "enter_pass_ctx" else (bad, good)
    context: Any = transform.PassContext(instruments=[first])

    def compile_() -> None:
        with context:
            _identity("Before")(empty_module())
            context.override_instruments([second])

    with pytest.raises(RuntimeError, match=hook):
        compile_()
    assert "  Before" in outline(memory.take())
    with transform.PassContext():
        _identity("After")(empty_module())
    assert outline(memory.spans) == ["PassContext", "  After"]


@pytest.mark.parametrize("hook", ["enter_pass_ctx", "exit_pass_ctx", "run_before_pass"])
def test_users_hook_that_raises_fails_as_before_and_hurts_no_later_compile(
    hook: str, memory: SpanMemory
) -> None:
    """TVM calls no more hooks then, not even ours; the next context is traced all the same."""

    def compile_() -> str:
        with pytest.raises(RuntimeError) as caught:
            context_with_one_pass()
        return str(caught.value)

    def context_with_one_pass() -> None:
        with transform.PassContext(instruments=[call_log([], raises=hook)]):
            _identity("Before")(empty_module())

    plain = compile_()
    tilelang_otel.instrument(memory.provider)
    assert compile_() == plain
    memory.take()
    with transform.PassContext():
        _identity("After")(empty_module())
    _identity("Alone")(empty_module())
    assert outline(memory.spans) == ["PassContext", "  After", "PassContext", "  Alone"]


# -- by hand and zero-code at once ----------------------------------------------------------


@pytest.mark.parametrize("is_named", [True, False])
def test_observer_put_in_by_hand_is_not_doubled(
    is_named: bool, memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that already does it by hand gets each pass once, below its compile."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", memory.provider)
    tilelang_otel.instrument(memory.provider if is_named else None)
    instrument = StackedPassInstrument(OTelPassObserver(memory.provider))
    with transform.PassContext(instruments=[instrument]):
        _identity()(empty_module())
        tirx.build(scaling(), target=_LLVM)
    names = [span.name for span in memory.spans]
    assert names.count("Id") == 1
    assert names.count("tirx.MakePackedAPI") == 1


def test_observer_for_another_provider_gets_its_own_spans(memory: SpanMemory) -> None:
    """Two places to send to: both get everything."""
    tilelang_otel.instrument(memory.provider)
    other = SpanMemory()
    instrument = StackedPassInstrument(OTelPassObserver(other.provider))
    with transform.PassContext(instruments=[instrument]):
        _identity()(empty_module())
    for spans in (memory.spans, other.spans):
        assert outline(spans) == ["PassContext", "  Id"]
