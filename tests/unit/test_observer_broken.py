"""Whatever the tracer provider does, the compile goes on as if it were not there."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.broken import BROKEN_CALLS, BrokenProvider
from tests.support.fake_tvm import pass_context, run
from tests.support.observers import MODES, observed
from tests.support.spans import SpanMemory, assert_sound, outline
from tilelang_otel import OTelPassObserver
from tilelang_otel._guard import guard
from tilelang_otel.events import PassEvent

pytestmark = [
    pytest.mark.parametrize("mode", MODES),
    pytest.mark.usefixtures("swallowing"),
]


def _compile(callbacks: Any) -> ValueError:
    """Run a pass that works and one that fails, and return the user's exception."""
    error = ValueError("the user's")

    def boom() -> None:
        raise error

    def compile_() -> None:
        with pass_context(callbacks):
            run(callbacks, "Id", lambda: run(callbacks, "Inner"))
            run(callbacks, "Boom", boom)

    with pytest.raises(ValueError, match="the user's") as caught:
        compile_()
    assert caught.value is error
    return error


@pytest.mark.parametrize("parts", [1, 1000])
@pytest.mark.parametrize("call", BROKEN_CALLS)
def test_raising_provider_changes_neither_result_nor_error_and_is_logged_once(
    mode: str, call: str, parts: int, memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """The user's own exception comes out, with nothing of ours in its context."""
    provider = BrokenProvider(memory.provider, call)
    callbacks = observed(provider, mode, part_spans=parts)
    with caplog.at_level(logging.WARNING, "tilelang_otel"):
        for _ in range(3):
            error = _compile(callbacks)
            assert error.__context__ is None
            assert error.__cause__ is None
    ours = [record for record in caplog.records if record.name.startswith("tilelang_otel")]
    if provider.raised:
        assert ours
        assert len({_place(record) for record in ours}) == len(ours), "logged more than once"
        assert all("The compile itself is not affected" in r.getMessage() for r in ours)
    else:
        assert ours == []


def _place(record: logging.LogRecord) -> Any:
    assert record.exc_info is not None
    trace = record.exc_info[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno


@pytest.mark.parametrize("call", ["start_span", "set_attribute", "set_status", "add_event", "end"])
def test_one_broken_span_costs_no_other(mode: str, call: str, memory: SpanMemory) -> None:
    """The root above all: a compile that is missing one pass is still worth seeing."""
    provider = BrokenProvider(memory.provider, call, lambda name: name == "Boom")
    _compile(observed(provider, mode))
    assert provider.raised
    lines = [line for line in outline(memory.spans) if "Boom" not in line]
    assert lines == ["PassContext!", "  Id", "    Inner"]
    assert_sound(memory.spans)


def test_provider_that_recovers_is_used_again(mode: str, memory: SpanMemory) -> None:
    """A failure switches recording off for that compile, not for good."""
    broken = [True]
    provider = BrokenProvider(memory.provider, "start_span", lambda name: broken[0])
    callbacks = observed(provider, mode)
    _compile(callbacks)
    assert memory.spans == ()
    broken[0] = False
    with pass_context(callbacks):
        run(callbacks, "A")
    assert outline(memory.spans) == ["PassContext", "  A"]


def test_pass_whose_name_cannot_be_read_hurts_nobody(mode: str, memory: SpanMemory) -> None:
    """What it was is lost; that something ran is not, and the others keep their names."""

    class Nameless:
        name = property(lambda self: bytes([0xFF]).decode())

        def same_as(self, other: object) -> bool:
            return self is other

    callbacks = observed(memory.provider, mode)
    with pass_context(callbacks):
        info = Nameless()
        callbacks.before(None, info)
        run(callbacks, "Inner")
        callbacks.after(None, info)
        run(callbacks, "A")
    assert outline(memory.spans) == ["PassContext", "  (unnamed)", "    Inner", "  A"]


@pytest.mark.parametrize("hook", ["before", "after"])
def test_bug_in_the_pairing_ends_the_recording_not_the_compile(
    mode: str, hook: str, memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own bug in a callback: the passes go on, what was recorded so far comes out.

    Who takes frames then records nothing more of that context.
    """
    callbacks = observed(memory.provider, mode)

    def bug(*args: Any) -> Any:
        raise LookupError("our bug")

    with pass_context(callbacks):
        run(callbacks, "A")
        target = "opened" if hook == "before" else "closed"
        monkeypatch.setattr("tilelang_otel._recording.Recording." + target, bug)
        run(callbacks, "B", lambda: run(callbacks, "C"))
        monkeypatch.undo()
        monkeypatch.setattr(guard, "reraise", False)
        run(callbacks, "D")
    names = {span.name for span in memory.spans}
    assert {"PassContext", "A"} <= names
    assert mode == "events" or "D" not in names
    assert_sound(memory.spans)


def test_methods_called_out_of_order_do_nothing(mode: str, memory: SpanMemory) -> None:
    """Finish without start, exit without enter, twice: an instrument may have bugs too."""
    observer = OTelPassObserver(memory.provider)
    event = PassEvent("A", 0, 0, None, None)
    observer.pass_finished(None, event, None)
    observer.passes_incomplete([], None)
    observer.callback_mismatch("A", None)
    observer.exit_pass_context()
    observer.enter_pass_context()
    state = observer.pass_started(None, event)
    observer.pass_finished(None, event, state)
    observer.pass_finished(None, event, state)
    observer.exit_pass_context()
    observer.exit_pass_context()
    assert outline(memory.take()) == ["PassContext", "  A"]
    observer.enter_pass_context()
    observer.pass_started(None, event)
    observer.exit_pass_context()
    assert outline(memory.spans) == ["PassContext", "  A!"]
