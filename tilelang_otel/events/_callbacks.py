"""TVM's four callbacks, turned into events or straight into recorded frames.

Owns the per-thread state of one instrument: its entered contexts and their
open frames. Needs no compiler: the instrument in ``_instrument`` registers
these methods with TVM, so that nothing that TVM holds leads back to the
instrument, and both can be collected.

An observer that only records returns a ``FrameLog`` when a context is
entered. It is then given the frames themselves, and no event is made unless
somebody asks for one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tilelang_otel._frames import ExceptionMark, Frame, FrameLog, FrameStack
from tilelang_otel._interrupt import is_from_signal
from tilelang_otel.events._model import (
    CapturePredicate,
    IncompletePass,
    PassEvent,
    PassEventObserver,
    SequenceAllocator,
)

__all__ = [
    "PassCallbacks",
    "active_callbacks",
    "drop_dead_frames",
    "held",
    "is_context_entered",
    "muted",
    "times_entered",
]

_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]


class _Entry:
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
        self.entries: list[_Entry] = []
        self.held: PassEventObserver | None = None
        """Whose contexts go on although TVM calls exit and enter."""


_thread = _Thread()


class _Own(threading.local):
    """What one instrument has entered on this thread."""

    top: _Entry | None = None
    by_hand: _Entry | None = None
    """For callbacks outside of every context. The instrument alone holds it: nobody
    says when the last of them has come."""


class PassCallbacks:
    """Pairs callbacks per thread and context, and tells one observer.

    Attributes:
        observer: Who is told.
        capture_nested: Whether passes below depth 0 are emitted.
        capture_predicate: Finer filter on name and depth.
        sequence_allocator: Where sequence numbers come from, if not from the context.
        phase_provider: Gives the phase of a starting pass.
        instrument: Gives the instrument that these callbacks belong to, while
            somebody else keeps it alive.
    """

    def __init__(
        self,
        observer: PassEventObserver,
        capture_nested: bool,
        capture_predicate: CapturePredicate | None,
        sequence_allocator: SequenceAllocator | None,
        phase_provider: Callable[[], str | None],
    ) -> None:
        self.observer = observer
        self.capture_nested = capture_nested
        self.capture_predicate = capture_predicate
        self.sequence_allocator = sequence_allocator
        self.phase_provider = phase_provider
        self.instrument: Callable[[], Any] = lambda: None
        self._own = _Own()

    def enter(self) -> None:
        """Handle TVM's ``enter_pass_ctx``."""
        if _thread.held is self.observer:
            return
        entry = self._push(by_hand=False)
        try:
            answer = self.observer.enter_pass_context()
        except KeyboardInterrupt:
            self._remove(entry)
            raise KeyboardInterrupt from None  # as in before()
        except BaseException:
            self._remove(entry)
            raise
        if answer is False:
            entry.is_muted = True
        elif answer is not None and isinstance(answer, FrameLog):
            entry.log = answer

    def exit(self) -> None:
        """Handle TVM's ``exit_pass_ctx``."""
        if _thread.held is self.observer:
            return
        entry = self._own.top
        try:
            if entry is not None and entry.stack.open:
                error = entry.mark.leaving()
                self._drop(entry, entry.stack.drain(), error, seen_late=error is None)
            self.observer.exit_pass_context()
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # as in before()
        finally:
            if entry is not None:
                self._remove(entry)

    def before(self, mod: Any, info: Any) -> None:
        """Handle TVM's ``run_before_pass``, called by TVM itself."""
        entry = self._own.top
        if entry is None:
            entry = self._push(by_hand=True)
        elif entry.is_muted:
            return
        try:
            frame = Frame(info, _getframe(1))
            self._start(entry, mod, frame)
        except KeyboardInterrupt:
            # Raised anew, so that its traceback begins here, where it is looked for.
            raise KeyboardInterrupt from None
        except Exception as error:
            if not self._gave_up(entry, error):
                raise

    def after(self, mod: Any, info: Any) -> None:
        """Handle TVM's ``run_after_pass``, called by TVM itself."""
        entry = self._own.top
        if entry is None:
            entry = self._push(by_hand=True)
        elif entry.is_muted:
            return
        caller = _getframe(1)
        frames = entry.stack.open
        try:
            # The name is only needed when what finishes is not the pass on top.
            if frames and frames[-1].caller is caller and info.same_as(frames[-1].info):
                frame = frames.pop()
                frame.caller = None
                if not frame.is_emitted:
                    return
                if entry.log is not None:
                    entry.log.closed(frame)
                else:
                    self.observer.pass_finished(mod, _event(frame), frame.state)
            else:
                self._finish(entry, mod, str(info.name), caller)
        except KeyboardInterrupt:
            # Raised anew, so that its traceback begins here, where it is looked for.
            raise KeyboardInterrupt from None
        except Exception as error:
            if not self._gave_up(entry, error):
                raise

    def started(self, mod: Any, info: Any, caller: FrameType | None = None) -> None:
        """Open a frame for a callback that somebody calls by hand.

        Args:
            mod: The module that the pass runs on.
            info: Anything with a ``name``.
            caller: The innermost Python frame at the pass's call, if known.
        """
        entry = self._own.top or self._push(by_hand=True)
        if not entry.is_muted:
            frame = Frame()
            frame.name = str(info.name)
            frame.caller = caller
            self._start(entry, mod, frame)

    def finished(self, mod: Any, info: Any, caller: FrameType | None = None) -> None:
        """Close a frame for a callback that somebody calls by hand.

        Args:
            mod: The module that the pass has produced.
            info: Anything with a ``name``.
            caller: The innermost Python frame at the pass's call, if known.
        """
        entry = self._own.top or self._push(by_hand=True)
        if not entry.is_muted:
            self._finish(entry, mod, str(info.name), caller)

    def _start(self, entry: _Entry, mod: Any, frame: Frame) -> None:
        caller = frame.caller
        stack = entry.stack
        frames = stack.open
        depth = 0
        if frames:
            if caller is not None and frames[-1].caller is not caller:
                dead, error = stack.dead(caller)
                if dead:
                    self._drop(entry, dead, error, seen_late=True)
            frame.depth = depth = len(frames)
            if depth:
                above = frames[-1]
                frame.parent_sequence = (
                    above.sequence if above.is_emitted else above.parent_sequence
                )
        if (depth and not self.capture_nested) or not (
            self.capture_predicate is None or self.capture_predicate(frame.name, depth)
        ):
            frames.append(frame)
            return
        if self.sequence_allocator is None:
            frame.sequence = stack.next_sequence
            stack.next_sequence += 1
        else:
            frame.sequence = self.sequence_allocator()
        frame.phase = self.phase_provider()
        frame.is_emitted = True
        if entry.log is not None:
            frames.append(frame)
            entry.log.opened(frame, mod)
        else:
            # A pass whose start its observer refused was never open.
            frame.state = self.observer.pass_started(mod, _event(frame))
            frames.append(frame)

    def _finish(self, entry: _Entry, mod: Any, name: str, caller: FrameType | None) -> None:
        stack = entry.stack
        expected = stack.open[-1].name if stack.open else None
        frame, above = stack.match(name, caller)
        if frame is None:
            self._mismatch(entry, name, expected)
            error = RuntimeError(
                f"after-pass callback of {name!r} matches no open pass; expected {expected!r}"
            )
            self._drop(entry, stack.drain(), error, seen_late=True)
            return
        if above:
            self._mismatch(entry, name, expected)
            self._drop(entry, above, None, seen_late=True)
        if not frame.is_emitted:
            return
        if entry.log is not None:
            entry.log.closed(frame)
        else:
            self.observer.pass_finished(mod, _event(frame), frame.state)

    def abort(self, error: BaseException | None = None) -> tuple[IncompletePass, ...]:
        """Drain the frames of the innermost context on this thread.

        Args:
            error: What ended them, if known.

        Returns:
            The drained frames, outermost first.
        """
        entry = self._own.top
        if entry is None or not entry.stack.open:
            return ()
        return self._drop(entry, entry.stack.drain(), error, seen_late=False)

    def pending_events(self) -> tuple[PassEvent, ...]:
        """Return the open emitted passes of this thread, outermost first."""
        entries = [entry for entry in _thread.entries if entry.owner is self]
        if self._own.by_hand is not None:
            entries.insert(0, self._own.by_hand)
        return tuple(
            _event(frame) for entry in entries for frame in entry.stack.open if frame.is_emitted
        )

    def drop_dead(self, entry: _Entry, caller: FrameType, error: BaseException) -> None:
        """Drop the frames that ``error`` has just ended.

        Args:
            entry: One of this thread's entries.
            caller: The Python frame that caught ``error``.
            error: What ended them.
        """
        if entry.stack.open:
            dead, _ = entry.stack.dead(caller)
            if dead:
                self._drop(entry, dead, error, seen_late=False)

    def _gave_up(self, entry: _Entry, error: Exception) -> bool:
        """Record nothing more of this context; not if an observer is to see the error."""
        if entry.log is None or is_from_signal(error):
            return False
        entry.is_muted = True
        # What ends, and when, is not known any more: the recording's end will do.
        entry.stack.drain()
        entry.log.failed(error)
        return True

    def _push(self, by_hand: bool) -> _Entry:
        entry = _Entry(self, by_hand)
        if by_hand:
            self._own.by_hand = entry
        else:
            _thread.entries.append(entry)
        self._own.top = entry
        return entry

    def _remove(self, entry: _Entry) -> None:
        entries = _thread.entries
        if entry.by_hand:
            self._own.by_hand = None
        else:
            entries.remove(entry)
        outer = (e for e in reversed(entries) if e.owner is self)
        self._own.top = next(outer, self._own.by_hand)

    def _mismatch(self, entry: _Entry, actual: str, expected: str | None) -> None:
        if entry.log is None:
            self.observer.callback_mismatch(actual, expected)

    def _drop(
        self, entry: _Entry, frames: list[Frame], error: BaseException | None, seen_late: bool
    ) -> tuple[IncompletePass, ...]:
        incomplete = tuple(
            IncompletePass(frame.name, frame.depth, _event_if_emitted(frame), frame.state)
            for frame in frames
        )
        if entry.log is not None:
            entry.log.dropped(frames, error, seen_late)
        elif incomplete:
            self.observer.passes_incomplete(incomplete, error)
        return incomplete


def _event(frame: Frame) -> PassEvent:
    if frame.event is None:
        frame.event = PassEvent(
            frame.name, frame.sequence, frame.depth, frame.parent_sequence, frame.phase
        )
    return frame.event


def _event_if_emitted(frame: Frame) -> PassEvent | None:
    return _event(frame) if frame.is_emitted else None


def active_callbacks() -> tuple[PassCallbacks, ...]:
    """Return what is entered on this thread, outermost first."""
    return tuple(entry.owner for entry in _thread.entries)


def is_context_entered() -> bool:
    """Tell whether an instrument of ours is in a context that this thread has entered."""
    return bool(_thread.entries)


def times_entered(observer: PassEventObserver) -> int:
    """Return in how many contexts of this thread ``observer`` is told of passes."""
    return sum(entry.owner.observer is observer for entry in _thread.entries)


def drop_dead_frames(caller: FrameType, error: BaseException) -> None:
    """Tell the recorded contexts of this thread that ``error`` has just ended some passes.

    Args:
        caller: The Python frame that caught ``error``.
        error: The exception, on its way out.
    """
    for entry in _thread.entries:
        if entry.log is not None:
            entry.owner.drop_dead(entry, caller, error)


@contextmanager
def muted(observer: PassEventObserver) -> Generator[None, None, None]:
    """Report nothing to ``observer`` on this thread within this scope."""
    entries = [
        entry
        for entry in _thread.entries
        if entry.owner.observer is observer and not entry.is_muted
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
    _thread.held = observer
    try:
        yield
    finally:
        _thread.held = None


def _forget_the_parents() -> None:
    # Passes that a forked child comes back from were the parent's to record.
    for entry in _thread.entries:
        entry.is_muted = True
        entry.stack.drain()


os.register_at_fork(after_in_child=_forget_the_parents)
