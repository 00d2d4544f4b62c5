"""Pass contexts that zero-code has come across: recorded once something happens in them.

A context that a program opens around a compile is not what the program is
about. So it begins no recording: the compile in it does, or the first pass
that runs outside of one.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from tilelang_otel import semconv
from tilelang_otel._frames import ExceptionMark, Frame, FrameLog
from tilelang_otel._guard import guard
from tilelang_otel._recorder import Recorder
from tilelang_otel._recording import Recording
from tilelang_otel._scopes import Work
from tilelang_otel.events._entered import is_context_entered
from tilelang_otel.events._model import PassEventObserver

__all__ = ["ContextObserver", "Stage", "announce"]


class Stage(NamedTuple):
    """What a pass context is made for, and how to show it."""

    span_name: str
    attributes: dict[str, Any]


class _Announced(threading.local):
    stage: Stage | None = None


_announced = _Announced()


def announce(stage: Stage) -> None:
    """Tell what the next pass context is for that this thread enters."""
    _announced.stage = stage


class _ContextLog(FrameLog):
    """The frames of one context, handed to whatever records when they start."""

    def __init__(self, recorder: Recorder) -> None:
        self.mark = ExceptionMark()
        self._container: Work | None = None
        self._recorder = recorder
        self._own: Recording | None = None
        self._target: Recording | None = None

    def opened(self, frame: Frame, mod: Any) -> None:
        """Start recording a pass."""
        target = self._target
        if target is None or frame.depth == 0:
            target = self._target = self._recorder.current() or self._begin()
        if not target.is_muted:
            target.opened(frame, mod)

    def closed(self, frame: Frame) -> None:
        """Finish recording a pass."""
        if frame.is_recorded and self._target is not None:
            self._target.closed(frame)

    def dropped(self, frames: list[Frame], error: BaseException | None, seen_late: bool) -> None:
        """Record passes that got no after-callback as failed."""
        if self._target is not None:
            self._target.dropped(frames, error, seen_late)

    def failed(self, error: Exception) -> None:
        """Report an error of ours."""
        guard.report(error)

    def enter(self, stage: Stage) -> None:
        """Begin a span for the context itself, which says what it is for."""
        self._container = self._recorder.work(lambda: stage)
        self._container.__enter__()
        self._name_passes(stage.attributes.get(semconv.TILELANG_KERNEL_NAME))

    def _name_passes(self, name: str | None) -> None:
        recording = self._recorder.current()
        if recording is not None:
            recording.set_kernel_name(name)

    def leave(self) -> None:
        """Leave the context, and end what was begun for it."""
        try:
            if self._container is not None:
                error = self.mark.leaving()
                self._container.__exit__(type(error) if error else None, error, None)
                self._name_passes(None)
        finally:
            own, self._own = self._own, None
            if own is not None:
                self._recorder.leave(own, self.mark.leaving())

    def _begin(self) -> Recording:
        self._own = self._recorder.enter(
            semconv.SPAN_PASS_CONTEXT, has_root=self._recorder.settings.context_span
        )
        self._own.is_alive = is_context_entered
        return self._own


class _Thread(threading.local):
    """The contexts entered on this thread, outermost first."""

    def __init__(self) -> None:
        self.logs: list[_ContextLog] = []


class ContextObserver(PassEventObserver):
    """Records the passes of any context, for one recorder. Never raises.

    Args:
        recorder: Who records.

    Attributes:
        is_active: Whether contexts that are entered from now on are recorded.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.is_active = True
        self._recorder = recorder
        self._thread = _Thread()

    def shares(self, recorder: Recorder) -> bool:
        """Tell whether the spans go where those of ``recorder`` go."""
        return self._recorder.shares(recorder)

    def enter_pass_context(self) -> Any:
        """Take the frames of the context, unless the compile around it is muted."""
        with guard:
            log = _ContextLog(self._recorder)
            self._thread.logs.append(log)
            stage, _announced.stage = _announced.stage, None
            self._recorder.drop_stale()
            running = self._recorder.current()
            if not self.is_active or (running is not None and running.is_muted):
                return False
            if stage is not None:
                log.enter(stage)
            return log
        return False

    def exit_pass_context(self) -> None:
        """Leave the innermost context of this thread."""
        with guard:
            if self._thread.logs:
                self._thread.logs.pop().leave()
