"""The pass contexts that are entered on a thread, by any instrument.

Owns their order, and what is asked or said of all of them: by the adapters, by who
compiles without being told of it, and in a forked child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from tilelang_otel._frames import ExceptionMark, FrameLog, FrameStack
from tilelang_otel.events._model import PassEventObserver

if TYPE_CHECKING:
    from tilelang_otel.events._callbacks import PassCallbacks

__all__ = [
    "Entry",
    "active_callbacks",
    "drop_dead_frames",
    "held",
    "is_context_entered",
    "muted",
    "thread",
    "times_entered",
]


class Entry:
    """One pass context that was entered and not yet left."""

    __slots__ = ("by_hand", "is_muted", "log", "mark", "owner", "stack")

    def __init__(self, owner: PassCallbacks, by_hand: bool) -> None:
        self.owner = owner
        self.by_hand = by_hand
        self.stack = FrameStack()
        self.log: FrameLog | None = None
        self.is_muted = False
        self.mark = ExceptionMark()


class _Thread(threading.local):
    """What is entered on this thread, by any instrument, in order."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.held: PassEventObserver | None = None
        """Whose contexts go on although TVM calls exit and enter."""


thread = _Thread()


def active_callbacks() -> tuple[PassCallbacks, ...]:
    """Return what is entered on this thread, outermost first."""
    return tuple(entry.owner for entry in thread.entries)


def is_context_entered() -> bool:
    """Tell whether an instrument of ours is in a context that this thread has entered."""
    return bool(thread.entries)


def times_entered(observer: PassEventObserver) -> int:
    """Return in how many contexts of this thread ``observer`` is told of passes."""
    return sum(entry.owner.observer is observer for entry in thread.entries)


def drop_dead_frames(caller: FrameType, error: BaseException) -> None:
    """Tell the recorded contexts of this thread that ``error`` has just ended some passes.

    Args:
        caller: The Python frame that caught ``error``.
        error: The exception, on its way out.
    """
    for entry in thread.entries:
        if entry.log is not None:
            entry.owner.drop_dead(entry, caller, error)


@contextmanager
def muted(observer: PassEventObserver) -> Generator[None, None, None]:
    """Report nothing to ``observer`` on this thread within this scope."""
    entries = [
        entry for entry in thread.entries if entry.owner.observer is observer and not entry.is_muted
    ]
    for entry in entries:
        entry.is_muted = True
    try:
        yield
    finally:
        for entry in entries:
            entry.is_muted = False


@contextmanager
def held(observer: PassEventObserver) -> Generator[None, None, None]:
    """Let no context of ``observer`` end or begin on this thread within this scope."""
    thread.held = observer
    try:
        yield
    finally:
        thread.held = None


def _forget_the_parents() -> None:
    # Passes that a forked child comes back from were the parent's to record.
    for entry in thread.entries:
        entry.is_muted = True
        entry.stack.drain()


os.register_at_fork(after_in_child=_forget_the_parents)
