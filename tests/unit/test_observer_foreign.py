"""The observer under an instrument that pairs as TileLang's does. No compiler.

That instrument keeps one stack, looks at its top only, and drains everything
when that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import pytest

from tests.support.fake_tvm import Info, pass_context, run
from tests.support.spans import SpanMemory, assert_sound, outline
from tilelang_otel import OTelPassObserver
from tilelang_otel.events import IncompletePass, PassEvent, PassEventObserver

_F = TypeVar("_F", bound=Callable[..., Any])


def _as_tilelang(function: _F) -> _F:
    """Let ``function`` look like one of TileLang's module, which it stands for."""
    names = {**globals(), "__name__": "tilelang.instrumentation.events"}
    copy = FunctionType(cast(FunctionType, function).__code__, names)
    return cast(_F, copy)


class _TopOnly:
    """The callbacks of such an instrument."""

    def __init__(self, observer: PassEventObserver) -> None:
        self.observer = observer
        self.open: list[tuple[PassEvent, Any]] = []
        self.started = 0

    def enter(self) -> None:
        self.open, self.started = [], 0
        self.observer.enter_pass_context()

    def exit(self) -> None:
        self.drain(None)
        self.observer.exit_pass_context()

    @_as_tilelang
    def before(self, mod: Any, info: Info) -> None:
        parent = self.open[-1][0].sequence if self.open else None
        event = PassEvent(info.name, self.started, len(self.open), parent, None)
        self.started += 1
        self.open.append((event, self.observer.pass_started(mod, event)))

    def after(self, mod: Any, info: Info) -> None:
        expected = self.open[-1][0].name if self.open else None
        if expected != info.name:
            self.observer.callback_mismatch(info.name, expected)
            self.drain(RuntimeError("no such pass"))
            return
        event, state = self.open.pop()
        self.observer.pass_finished(mod, event, state)

    def drain(self, error: BaseException | None) -> None:
        incomplete = [
            IncompletePass(event.name, event.depth, event, state) for event, state in self.open
        ]
        self.open = []
        if incomplete:
            self.observer.passes_incomplete(incomplete, error)


class _Subclass(OTelPassObserver):
    """Overrides every event method, so that the observer cannot see who calls."""

    def pass_started(self, mod: Any, event: PassEvent) -> Any:
        return super().pass_started(mod, event)

    def callback_mismatch(self, actual: str, expected: str | None) -> None:
        super().callback_mismatch(actual, expected)


def _fail(error: BaseException) -> Any:
    def body() -> None:
        raise error

    return body


def _caught(callbacks: Any, name: str = "Boom") -> None:
    with pytest.raises(ValueError, match="boom"):
        run(callbacks, name, _fail(ValueError("boom")))


def test_passes_become_a_tree(memory: SpanMemory) -> None:
    """The usual case."""
    callbacks = _TopOnly(OTelPassObserver(memory.provider))
    with pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B"))
        run(callbacks, "C")
    assert outline(memory.spans) == ["PassContext", "  A", "    B", "  C"]
    assert_sound(memory.spans)


@pytest.mark.parametrize("observer_class", [OTelPassObserver, _Subclass])
def test_caught_failure_marks_the_failed_pass_only(
    observer_class: type[OTelPassObserver], memory: SpanMemory
) -> None:
    """The instrument thinks that the next pass is inside the dead one; it is not."""
    callbacks = _TopOnly(observer_class(memory.provider))

    def tolerant() -> None:
        _caught(callbacks)
        run(callbacks, "Id")

    with pass_context(callbacks):
        run(callbacks, "Tol", tolerant)
        run(callbacks, "Id")
    assert outline(memory.spans) == ["PassContext", "  Tol", "    Boom!", "    Id", "  Id"]
    assert_sound(memory.spans)


@pytest.mark.parametrize("observer_class", [OTelPassObserver, _Subclass])
def test_pass_whose_end_does_not_fit_survives_the_draining(
    observer_class: type[OTelPassObserver], memory: SpanMemory
) -> None:
    """The mismatch names the survivor; those around it are still running, and end later."""
    callbacks = _TopOnly(observer_class(memory.provider))
    with pass_context(callbacks):
        run(callbacks, "Outer", lambda: run(callbacks, "Tol", lambda: _caught(callbacks)))
        run(callbacks, "Id")
    assert outline(memory.spans) == ["PassContext", "  Outer", "    Tol", "      Boom!", "  Id"]
    assert_sound(memory.spans)


def test_failure_after_a_survived_mismatch_is_still_reported(memory: SpanMemory) -> None:
    """What was remembered of one mismatch says nothing about the next failure."""
    callbacks = _TopOnly(OTelPassObserver(memory.provider))

    def compile_() -> None:
        with pass_context(callbacks):
            run(callbacks, "Outer", lambda: run(callbacks, "Tol", lambda: _caught(callbacks)))
            run(callbacks, "Last", _fail(ValueError("boom")))

    with pytest.raises(ValueError, match="boom"):
        compile_()
    assert outline(memory.spans, "error.type") == [
        "PassContext! ValueError",
        "  Outer",
        "    Tol",
        "      Boom! _OTHER",
        "  Last!* ValueError",
    ]


def test_exception_that_leaves_is_found_although_the_instrument_gives_none(
    memory: SpanMemory,
) -> None:
    """The instrument reports open passes without an error; the context's exit shows it."""
    callbacks = _TopOnly(OTelPassObserver(memory.provider))
    with pytest.raises(ValueError, match="boom"), pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B", _fail(ValueError("boom"))))
    assert outline(memory.spans, "error.type") == [
        "PassContext! ValueError",
        "  A! ValueError",
        "    B!* ValueError",
    ]
    assert_sound(memory.spans)
