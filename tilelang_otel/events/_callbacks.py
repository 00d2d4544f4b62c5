"""TVM's four callbacks, turned into events or straight into recorded frames.

Owns what one instrument does at each callback. What is entered on a thread, by any of
them, is up to ``_entered``. Needs no compiler: the instrument in ``_instrument`` registers
these methods with TVM, so that nothing that TVM holds leads back to the
instrument, and both can be collected.

An observer that only records returns a ``FrameLog`` when a context is
entered. It is then given the frames themselves, and no event is made unless
somebody asks for one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tilelang_otel._frames import Frame, FrameLog
from tilelang_otel._interrupt import is_from_signal
from tilelang_otel.events._entered import Entry, thread
from tilelang_otel.events._model import (
    CapturePredicate,
    IncompletePass,
    PassEvent,
    PassEventObserver,
    SequenceAllocator,
)

__all__ = ["PassCallbacks"]

_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]


class _Own(threading.local):
    """What one instrument has entered on this thread."""

    top: Entry | None = None
    by_hand: Entry | None = None
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
        if thread.held is self.observer:
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
        if thread.held is self.observer:
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

    def _start(self, entry: Entry, mod: Any, frame: Frame) -> None:
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

    def _finish(self, entry: Entry, mod: Any, name: str, caller: FrameType | None) -> None:
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
        entries = [entry for entry in thread.entries if entry.owner is self]
        if self._own.by_hand is not None:
            entries.insert(0, self._own.by_hand)
        return tuple(
            _event(frame) for entry in entries for frame in entry.stack.open if frame.is_emitted
        )

    def drop_dead(self, entry: Entry, caller: FrameType, error: BaseException) -> None:
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

    def _gave_up(self, entry: Entry, error: Exception) -> bool:
        """Record nothing more of this context; not if an observer is to see the error."""
        if entry.log is None or is_from_signal(error):
            return False
        entry.is_muted = True
        # What ends, and when, is not known any more: the recording's end will do.
        entry.stack.drain()
        entry.log.failed(error)
        return True

    def _push(self, by_hand: bool) -> Entry:
        entry = Entry(self, by_hand)
        if by_hand:
            self._own.by_hand = entry
        else:
            thread.entries.append(entry)
        self._own.top = entry
        return entry

    def _remove(self, entry: Entry) -> None:
        entries = thread.entries
        if entry.by_hand:
            self._own.by_hand = None
        else:
            entries.remove(entry)
        outer = (e for e in reversed(entries) if e.owner is self)
        self._own.top = next(outer, self._own.by_hand)

    def _mismatch(self, entry: Entry, actual: str, expected: str | None) -> None:
        if entry.log is None:
            self.observer.callback_mismatch(actual, expected)

    def _drop(
        self, entry: Entry, frames: list[Frame], error: BaseException | None, seen_late: bool
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
