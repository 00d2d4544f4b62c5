"""Pairing of before- and after-callbacks into frames. Pure: no compiler, no telemetry.

Owns what is open on one pass context and in which order it ends: depth,
sequence, nearest emitted ancestor, and which frames a missing after-callback
leaves behind. Whoever uses it decides what a frame is for, reads the clock and
reports what was dropped.

Names alone cannot pair callbacks. A pass that calls itself, or one that
catches a nested pass's failure and goes on, gives the same sequence of names
as another that is still running. So a frame also remembers its *caller*: the
innermost Python frame at the before-callback, which is the one that called the
pass. It is the same object at the after-callback, and once it has returned,
so has the pass. Where no caller is known (callbacks called by hand), names
decide.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tilelang_otel._interrupt import is_from_signal

__all__ = [
    "ExceptionMark",
    "Failure",
    "Frame",
    "FrameLog",
    "FrameStack",
    "Record",
    "is_running",
]


_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]


class Failure:
    """Why a record failed, as text: nothing here keeps an exception alive.

    Attributes:
        type: Qualified class name of the exception, or ``_OTHER``.
        message: Bounded text without source code; empty when unknown.
        stacktrace: Where it was raised; empty when unknown.
        origin: Name of the record that failed first, for its ancestors; empty
            on the one that failed itself.
        is_carrier: Whether its span tells of the exception: by default where it
            failed first.
    """

    __slots__ = ("is_carrier", "message", "origin", "stacktrace", "type")

    def __init__(
        self,
        type: str,
        message: str = "",
        stacktrace: str = "",
        origin: str = "",
        is_carrier: bool = False,
    ) -> None:
        self.type = type
        self.message = message
        self.stacktrace = stacktrace
        self.origin = origin
        self.is_carrier = is_carrier or not origin


class Record:
    """A named stretch of a compile, to become a span.

    Attributes that most records leave alone are defaults of the class, which
    makes a new record cheap. Times are readings of one monotonic clock.
    """

    name: str = ""
    parent: Record | None = None
    start_ns: int = 0
    end_ns: int = 0
    """0 while it is open."""
    children_ns: int = 0
    """Time that finished recorded children took."""
    failure: Failure | None = None
    end_estimated: bool = False
    """Nobody saw the end: ``end_ns`` is the last thing known to have happened."""
    scope_kind: str = ""
    """Entry points of one kind that call each other share it; empty: nobody does."""
    is_client: bool = False
    """The work was done by a child process."""
    attributes: dict[str, Any] | None = None
    span: Any = None
    """Its span, once started."""
    span_context: Any = None
    """The context in which its children's spans start."""
    last_ns: int = 0
    """When its last finished child ended."""
    is_sent: bool = False
    """Its span has ended."""
    crash_slot: int = -1
    """Where the crash record has it; -1: nowhere."""
    shapes: Callable[[], str] | None = None
    """Returns the shapes of what is compiled, while it is."""

    def set_attribute(self, name: str, value: Any) -> None:
        """Add an attribute, also to the span if that has been started."""
        if self.attributes is None:
            self.attributes = {}
        self.attributes[name] = value
        if self.span is not None:
            self.span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Change the name, also of the span if that has been started."""
        self.name = name
        if self.span is not None:
            self.span.update_name(name)


class Frame(Record):
    """A pass that is, or was, running.

    The name is read when it is first asked for: reading it from TVM takes longer
    than all else that a callback does, and would be part of the times reported.
    """

    # What every frame gets. Without slots, a frame costs up to 0.6 µs more, since
    # Python makes room for all of the names that a class has ever seen.
    __slots__ = (
        "caller",
        "children_ns",
        "crash_slot",
        "depth",
        "end_ns",
        "info",
        "is_emitted",
        "is_recorded",
        "is_sent",
        "known_name",
        "last_ns",
        "parent",
        "parent_sequence",
        "phase",
        "sequence",
        "span",
        "start_ns",
    )

    event: Any = None
    state: Any = None

    def __init__(self, info: Any = None, caller: FrameType | None = None) -> None:
        self.info = info
        """What the callback said about the pass, while the name was not read."""
        self.caller = caller
        """While it is open: the innermost Python frame at its before-callback."""
        self.parent: Record | None = None
        self.parent_sequence: int | None = None
        """Sequence of the nearest emitted ancestor."""
        self.phase: str | None = None
        self.sequence = self.crash_slot = -1
        self.depth = self.start_ns = self.end_ns = self.children_ns = self.last_ns = 0
        self.is_emitted = False
        """Whether the capture filters let it through."""
        self.is_recorded = False
        """Whether a recording holds it; only then its times are set."""
        self.is_sent = False
        self.span: Any = None
        self.known_name: str | None = None

    @property
    def name(self) -> str:
        """The pass's name as TVM gives it; empty when TVM's cannot be decoded."""
        name = self.known_name
        if name is None:
            try:
                name = str(self.info.name)
            except Exception as error:
                if is_from_signal(error):
                    raise
                name = ""  # bytes that are no text are still a pass
            self.known_name = name
        return name

    @name.setter
    def name(self, name: str) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.known_name = name


class FrameLog:
    """Takes the frames of a context as they open and close, instead of events.

    None of the methods raises.
    """

    def opened(self, frame: Frame, mod: Any) -> None:
        """Start the clock of ``frame``, which was just emitted."""
        raise NotImplementedError

    def closed(self, frame: Frame) -> None:
        """Stop the clock of ``frame``."""
        raise NotImplementedError

    def dropped(self, frames: list[Frame], error: BaseException | None, seen_late: bool) -> None:
        """Handle frames that got no after-callback.

        Args:
            frames: Outermost first; not all need to have been emitted.
            error: What ended them, if known.
            seen_late: Whether they ended at some unknown time before now.
        """
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """Handle an error in the pairing itself: no more frames will come."""
        raise NotImplementedError


class FrameStack:
    """The open frames of one pass context, outermost first.

    Attributes:
        open: The frames; a new one is appended.
        next_sequence: What the next emitted frame is numbered.
    """

    __slots__ = ("next_sequence", "open")

    def __init__(self) -> None:
        self.open: list[Frame] = []
        self.next_sequence = 0

    def dead(self, caller: FrameType) -> tuple[list[Frame], BaseException | None]:
        """Remove the frames whose caller has returned without an after-callback.

        Args:
            caller: The innermost Python frame that is running now.

        Returns:
            The removed frames, outermost first, usually none; and the exception
            that ended them, if it is the one being handled.
        """
        frames = self.open
        top = frames[-1].caller if frames else None
        running: FrameType | None = caller
        while running is not None:
            if running is top:
                return [], None
            running = running.f_back
        if top is None:
            return [], None
        start = self._alive(caller)
        error = sys.exc_info()[1]
        if not _passed_through(error, frames[start:]):
            error = None
        return self.cut(start), error

    def match(self, name: str, caller: FrameType | None) -> tuple[Frame | None, list[Frame]]:
        """Close the frame that an after-callback belongs to.

        Args:
            name: The pass that has finished.
            caller: The innermost Python frame at the callback, if known.

        Returns:
            The frame, or None when no open frame fits, and the frames above it
            that got no callback of their own, outermost first. When none fits,
            nothing is removed.
        """
        frames = self.open
        found = -1
        for index in range(len(frames) - 1, -1, -1):
            frame = frames[index]
            if frame.name != name:
                continue
            if frame.caller is caller or frame.caller is None or caller is None:
                found = index
                break
            if found < 0:
                found = index
        if found < 0:
            return None, []
        above = self.cut(found + 1)
        return self.cut(found)[0], above

    def drain(self) -> list[Frame]:
        """Remove and return all frames, outermost first."""
        return self.cut(0)

    def _alive(self, caller: FrameType) -> int:
        """Count the frames, from the outermost, up to the innermost living one."""
        running: set[FrameType] = set()
        frame: FrameType | None = caller
        while frame is not None:
            running.add(frame)
            frame = frame.f_back
        for index in range(len(self.open) - 1, -1, -1):
            owner = self.open[index].caller
            if owner is None or owner in running:
                return index + 1
        return 0

    def cut(self, start: int) -> list[Frame]:
        """Remove and return the frames from index ``start`` on, outermost first."""
        removed = self.open[start:]
        del self.open[start:]
        for frame in removed:
            frame.caller = None
        return removed


def is_running(frame: FrameType) -> bool:
    """Tell whether a Python frame is one of those that have led to this call."""
    running: FrameType | None = _getframe(1)
    while running is not None:
        if running is frame:
            return True
        running = running.f_back
    return False


class ExceptionMark:
    """Tells whether an exception is leaving a scope that was entered earlier.

    TVM gives its exit callback no exception, but while a ``with`` block is being
    left by one, ``sys.exc_info()`` shows it. So it does for an exception that
    was already being handled when the block was entered: that one is not leaving.
    """

    __slots__ = ("_handled_id", "_trace_id")

    def __init__(self) -> None:
        # Ids, so that nothing is kept alive: the exception outlives the scope,
        # which lies within its handler.
        handled = sys.exc_info()[1]
        self._handled_id = id(handled)
        self._trace_id = id(handled.__traceback__) if handled is not None else 0

    def leaving(self) -> BaseException | None:
        """Return the exception that is leaving the scope, if there is one.

        Closing a generator is not one: that is how a generator that holds a scope
        is told that it is no longer needed.
        """
        error = sys.exc_info()[1]
        if error is None or isinstance(error, GeneratorExit):
            return None
        # One that was raised again in the scope has a longer traceback than before.
        was_raised = id(error.__traceback__) != self._trace_id
        return error if was_raised or id(error) != self._handled_id else None


def _passed_through(error: BaseException | None, frames: list[Frame]) -> bool:
    """Tell whether the traceback of ``error`` shows the caller of one of ``frames``."""
    callers = {frame.caller for frame in frames}
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        if trace.tb_frame in callers:
            return True
        trace = trace.tb_next
    return False
