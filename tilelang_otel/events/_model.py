"""What an observer of passes sees: events, the observer interface, phases.

Needs no compiler. Pairing callbacks into events is up to ``_callbacks``; what
to keep of them, and how to show it, is up to observers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

__all__ = [
    "CapturePredicate",
    "IncompletePass",
    "PassEvent",
    "PassEventObserver",
    "SequenceAllocator",
    "current_pass_phase",
    "pass_phase",
    "stage",
]

CapturePredicate = Callable[[str, int], bool]
"""Tells from a pass's name and depth whether to emit it."""

SequenceAllocator = Callable[[], int]
"""Gives the next sequence number."""

_phase: ContextVar[str | None] = ContextVar("tilelang_otel_pass_phase", default=None)


class _Stage(threading.local):
    name: str | None = None


_stage = _Stage()


@contextmanager
def pass_phase(name: str | None) -> Generator[None, None, None]:
    """Label the passes that run inside this scope with a phase.

    Args:
        name: The label; None takes an outer label away.
    """
    token = _phase.set(None if name is None else str(name))
    try:
        yield
    finally:
        # A generator may be closed in another context: there, it was not set.
        with suppress(ValueError):
            _phase.reset(token)


def current_pass_phase() -> str | None:
    """Return the phase that passes starting now belong to.

    Returns:
        The innermost :func:`pass_phase`; without one, TileLang's own phase where
        TileLang is loaded; else the compile stage that zero-code instrumentation
        sees running; else None.
    """
    name = _phase.get()
    if name is not None:
        return name
    # Looked up rather than imported: TileLang takes seconds to import, and a
    # program that has not loaded it has no phase of its.
    foreign = sys.modules.get("tilelang.instrumentation.events")
    if foreign is not None:
        # Missing while the module is being imported, or in a TileLang that we do not know.
        current: Callable[[], str | None] | None = getattr(foreign, "current_pass_phase", None)
        if current is not None:
            name = current()
            if name is not None:
                return name
    return _stage.name


@contextmanager
def stage(name: str | None) -> Generator[None, None, None]:
    """Say which stage of a compile this thread is in, for passes without a phase.

    Args:
        name: The stage, e.g. ``relax``; None when it is not known.
    """
    previous = _stage.name
    _stage.name = name
    try:
        yield
    finally:
        _stage.name = previous


def move_stage(after: tuple[str, ...], name: str) -> None:
    """Move on to another stage within the current :func:`stage` scope.

    Args:
        after: The stages that it can follow; in any other, nothing happens.
        name: The stage that begins.
    """
    if _stage.name in after:
        _stage.name = name


@dataclass(frozen=True)
class PassEvent:
    """Identity and execution metadata for one observed compiler pass."""

    name: str
    """The pass's name."""
    sequence: int
    """Position in start order among the emitted passes."""
    depth: int
    """How many passes were open when it started, emitted or not."""
    parent_sequence: int | None
    """Sequence of the nearest emitted ancestor."""
    phase: str | None
    """Phase in which it started."""


@dataclass(frozen=True)
class IncompletePass:
    """A pass frame that received no matching after-pass callback."""

    name: str
    """The pass's name."""
    depth: int
    """How many passes were open when it started, emitted or not."""
    event: PassEvent | None
    """Its event; None when a filter kept it from being emitted."""
    state: Any
    """What ``pass_started`` returned."""


class PassEventObserver:
    """No-op observer interface consumed by ``StackedPassInstrument``.

    Exceptions from these methods propagate into the compile, as they do in
    TileLang: an observer is responsible for its own errors.
    """

    def enter_pass_context(self) -> Any:
        """Handle entry into a TVM PassContext.

        Returns:
            None to get events. False says that this context is of no interest:
            then nothing but its exit is reported.
        """

    def exit_pass_context(self) -> None:
        """Handle exit from a TVM PassContext, after open passes were aborted."""

    def pass_started(self, mod: Any, event: PassEvent) -> Any:
        """Capture consumer state before a pass and return it."""
        return None

    def pass_finished(self, mod: Any, event: PassEvent, state: Any) -> None:
        """Consume the module and state after a pass completes."""

    def passes_incomplete(
        self, passes: Sequence[IncompletePass], error: BaseException | None
    ) -> None:
        """Handle passes that never received an after-pass callback.

        Args:
            passes: Outermost first; the last is the one nearest to the failure.
            error: What ended them, when it is known.
        """

    def callback_mismatch(self, actual: str, expected: str | None) -> None:
        """Handle an unmatched or out-of-order after-pass callback.

        Args:
            actual: The pass that the callback names.
            expected: The innermost open pass, if one was open.
        """
