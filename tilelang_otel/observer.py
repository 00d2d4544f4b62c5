"""``OTelPassObserver``: pass events of TVM and TileLang, recorded as spans.

Under this package's instrument it takes frames, which is the fast way; under
TileLang's, or when a subclass looks at events itself, it takes events. What
becomes of a recording is up to ``_recording``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from tilelang_otel import semconv
from tilelang_otel._frames import ExceptionMark, Frame, FrameStack
from tilelang_otel._guard import guard
from tilelang_otel._options import Options, read_options
from tilelang_otel._recorder import Recorder
from tilelang_otel._recording import Recording
from tilelang_otel.events._model import IncompletePass, PassEvent, PassEventObserver

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["OTelPassObserver"]

_EVENT_METHODS = ("pass_started", "pass_finished", "passes_incomplete", "callback_mismatch")

_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]

_FOREIGN_INSTRUMENT = "tilelang.instrumentation.events"


class _Entered:
    """A pass context that this observer was told about and has not left."""

    def __init__(self, recording: Recording, by_hand: bool) -> None:
        self.recording = recording
        self.by_hand = by_hand
        self.stack = FrameStack()
        self.mark = ExceptionMark()
        self.survivor: str | None = None
        """The pass that a mismatched callback has just named, until the incomplete
        passes that it brings to light are reported."""


class _Thread(threading.local):
    """What one observer has entered on this thread, outermost first."""

    def __init__(self) -> None:
        self.entered: list[_Entered] = []


class OTelPassObserver(PassEventObserver):
    """Records every pass it is told about as an OpenTelemetry span.

    Put it into an instrument, and that into a pass context::

        with PassContext(instruments=[StackedPassInstrument(OTelPassObserver())]):
            tvm.compile(mod, target="llvm")

    Spans are made when the outermost context is left, or in parts when a compile
    is long. None of its methods raises, whatever the tracer provider does.

    Args:
        tracer_provider: Where spans go. None means the global one, looked up at
            each compile, so that it may be set later.
        meter_provider: Where metrics go, likewise.
        **options: Those of :class:`tilelang_otel.Options`.

    Raises:
        TypeError: There is no such option.
        ValueError: An option has a value that it does not accept.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        meter_provider: MeterProvider | None = None,
        **options: Unpack[Options],
    ) -> None:
        settings = read_options(options)
        self._recorder = Recorder(tracer_provider, settings, meter_provider=meter_provider)
        self._thread = _Thread()
        self._takes_events = any(
            getattr(type(self), name) is not getattr(OTelPassObserver, name)
            for name in _EVENT_METHODS
        )

    def shares(self, recorder: Recorder) -> bool:
        """Tell whether this observer's spans go where those of ``recorder`` go."""
        return self._recorder.shares(recorder)

    def enter_pass_context(self) -> Any:
        """Begin or join this thread's recording.

        Returns:
            False when nothing is recorded; what takes frames, or None to get events.
        """
        with guard:
            recording = self._enter(by_hand=False).recording
            if recording.is_muted:
                return False
            return None if self._takes_events else recording
        return False

    def exit_pass_context(self) -> None:
        """Leave the recording; the outermost context emits its spans."""
        with guard:
            if self._thread.entered:
                entered = self._thread.entered[-1]
                error = entered.mark.leaving()
                left_open = entered.stack.drain()
                if left_open:
                    entered.recording.dropped(left_open, error, seen_late=error is None)
                self._leave(entered, error)

    def pass_started(self, mod: Any, event: PassEvent) -> Any:
        """Open a frame for an event; returns it."""
        with guard:
            entered = self._thread.entered[-1] if self._thread.entered else None
            entered = entered or self._enter(by_hand=True)
            if entered.recording.is_muted:
                if entered.by_hand:
                    self._leave(entered, None)
                return None
            frame = _frame_of(event, _pass_caller(_getframe(1)))
            return self._open(entered, frame, mod)
        return None

    def pass_finished(self, mod: Any, event: PassEvent, state: Any) -> None:
        """Close the frame of an event."""
        with guard:
            entered = self._thread.entered[-1] if self._thread.entered else None
            frame = _find(entered, event, state)
            if entered is not None and frame is not None:
                self._close(entered, frame)

    def passes_incomplete(
        self, passes: Sequence[IncompletePass], error: BaseException | None
    ) -> None:
        """Record passes that got no after-callback as failed."""
        with guard:
            entered = self._thread.entered[-1] if self._thread.entered else None
            if entered is None:
                return
            survivor, entered.survivor = entered.survivor, None
            if survivor is not None and error is not None and self._survive(entered, survivor):
                # TileLang's instrument drains everything at a mismatch, with an
                # error of its own. What is still open here is still running.
                return
            frames = [_find(entered, p.event, p.state) for p in passes if p.event is not None]
            open_frames = [frame for frame in frames if frame is not None]
            if open_frames:
                if error is None and open_frames[0].caller is not None:
                    # TileLang's instrument, whose frames alone have callers here,
                    # does not say what leaves the context.
                    error = entered.mark.leaving()
                start = entered.stack.open.index(open_frames[0])
                self._drop(entered, entered.stack.cut(start), error)

    def callback_mismatch(self, actual: str, expected: str | None) -> None:
        """Remember which pass an out-of-order callback belongs to, and see it closed."""
        with guard:
            entered = self._thread.entered[-1] if self._thread.entered else None
            if entered is None:
                return
            if expected is None:
                # The instrument has nothing open, so nothing more follows.
                self._survive(entered, actual)
            else:
                entered.survivor = actual

    def _survive(self, entered: _Entered, name: str) -> bool:
        """Close the innermost pass of that name, and drop what is above it."""
        frame, above = entered.stack.match(name, None)
        if frame is None:
            return False
        if above:
            entered.recording.dropped(above, None, seen_late=True)
        entered.recording.closed(frame)
        self._leave_if_done(entered)
        return True

    def _enter(self, by_hand: bool) -> _Entered:
        has_root = self._recorder.settings.context_span and not by_hand
        recording = self._recorder.enter(semconv.SPAN_PASS_CONTEXT, has_root=has_root)
        entered = _Entered(recording, by_hand)
        self._thread.entered.append(entered)
        return entered

    def _leave(self, entered: _Entered, error: BaseException | None) -> None:
        self._thread.entered.remove(entered)
        self._recorder.leave(entered.recording, error)

    def _leave_if_done(self, entered: _Entered) -> None:
        if entered.by_hand and not entered.stack.open:
            self._leave(entered, None)

    def _open(self, entered: _Entered, frame: Frame, mod: Any) -> Frame:
        stack = entered.stack
        if stack.open and frame.caller is not None:
            dead, error = stack.dead(frame.caller)
            if dead:
                entered.recording.dropped(dead, error, seen_late=True)
        named = [f for f in stack.open if f.sequence == frame.parent_sequence and f.is_recorded]
        stack.open.append(frame)
        entered.recording.opened(frame, mod)
        if named and frame.is_recorded:
            frame.parent = named[-1]
        return frame

    def _close(self, entered: _Entered, frame: Frame) -> None:
        stack = entered.stack
        above = stack.cut(stack.open.index(frame) + 1)
        self._drop(entered, above, None)
        stack.cut(len(stack.open) - 1)
        entered.recording.closed(frame)
        self._leave_if_done(entered)

    def _drop(self, entered: _Entered, frames: list[Frame], error: BaseException | None) -> None:
        if frames:
            entered.recording.dropped(frames, error, seen_late=error is None)
        self._leave_if_done(entered)


def _frame_of(event: PassEvent, caller: FrameType | None) -> Frame:
    frame = Frame()
    frame.name = event.name
    frame.sequence = event.sequence
    frame.depth = event.depth
    frame.parent_sequence = event.parent_sequence
    frame.phase = event.phase
    frame.caller = caller
    frame.is_emitted = True
    return frame


def _pass_caller(frame: FrameType | None) -> FrameType | None:
    """Return the Python frame that called the pass, where that can be told.

    TileLang's instrument is called by TVM directly, so what is below it called
    the pass. Other callers have settled what is dead before they make an event.

    Args:
        frame: What called the observer: an instrument, or a subclass's method.
    """
    while frame is not None and frame.f_code.co_name == "pass_started":
        frame = frame.f_back
    if frame is not None and frame.f_globals.get("__name__") == _FOREIGN_INSTRUMENT:
        return frame.f_back
    return None


def _find(entered: _Entered | None, event: PassEvent | None, state: Any) -> Frame | None:
    """Return the open frame of an event: its state, unless a subclass put another there."""
    if entered is None or event is None:
        return None
    for frame in reversed(entered.stack.open):
        if frame is state or (not isinstance(state, Frame) and frame.sequence == event.sequence):
            return frame
    return None
