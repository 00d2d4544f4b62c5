"""Passes that run for too long, told of while they still run.

Owns the thread that looks at what is open, and when it looks. What is open is up to
``_recording``. Like any thread of Python's, it cannot run while a pass keeps Python's
lock; TVM's own passes don't.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from opentelemetry import context as otel_context

from tilelang_otel import semconv
from tilelang_otel._frames import Frame, Record
from tilelang_otel._guard import guard
from tilelang_otel._recording import Recording, active_recordings
from tilelang_otel._scrub import clean_name

__all__ = ["Watchdog", "stop", "watch"]

_logger = logging.getLogger(__name__)

_SHORTEST_SLEEP_S: Final = 0.01

_MAX_EVENTS: Final = 32
"""How many span events one recording gets; the log goes on."""


class Watchdog:
    """Reports what has been open for longer than a limit, and again whenever that doubles.

    Its thread looks when something may be over the limit and no sooner, and sleeps
    without waking while nothing is recorded.

    Args:
        recordings: Returns what is being recorded now.
    """

    def __init__(self, recordings: Callable[[], list[Recording]]) -> None:
        self._recordings = recordings
        self.reset()

    def reset(self) -> None:
        """Be as new. For a forked child: the thread, and what it knew, is the parent's."""
        # Reentrant: a signal handler that compiles may cut off whoever holds it.
        self._state = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None
        self._limit_ns = 0
        self._was_called = False
        self._is_idle = False
        self._is_stopped = False
        self._due_ns: dict[Record, int] = {}
        self._events: dict[Recording, int] = {}

    def watch(self, limit_s: float) -> None:
        """See to it that the thread looks. Called whenever a recording begins.

        Args:
            limit_s: After how many seconds to report; the lowest ever given holds.
        """
        limit_ns = max(int(limit_s * 1e9), 1)
        with self._state:
            is_lower = not self._limit_ns or limit_ns < self._limit_ns
            if is_lower:
                self._limit_ns = limit_ns
            self._was_called = True
            if self._thread is None:
                self._start()
            elif self._is_idle or is_lower:
                self._state.notify()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread; :meth:`watch` starts another. For tests.

        Args:
            timeout_s: How many seconds to wait for its end.
        """
        with self._state:
            thread = self._thread
            self._is_stopped = True
            self._state.notify()
        if thread is not None:
            thread.join(timeout_s)
        self.reset()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="tilelang-otel-watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the process exits, and this Python starts no thread any more
            return
        self._thread = thread

    def _run(self) -> None:
        while True:
            sleep_s: float | None = _SHORTEST_SLEEP_S
            with guard:
                sleep_s = self.look()
            with self._state:
                if self._is_stopped:
                    return
                # What has begun is not in the list yet when we are called for it.
                if sleep_s is not None or self._was_called:
                    self._was_called = False
                    limit_s = self._limit_ns / 1e9
                    sleep_s = limit_s if sleep_s is None else min(sleep_s, limit_s)
                    self._state.wait(max(sleep_s, _SHORTEST_SLEEP_S))
                else:
                    self._is_idle = True
                    self._state.wait()
                    self._is_idle = False

    def look(self) -> float | None:
        """Report what is to be reported now.

        Returns:
            In how many seconds to look again; None when nothing is recorded.
        """
        recordings = self._recordings()
        # What has ended is forgotten.
        known, self._due_ns = self._due_ns, {}
        events, self._events = self._events, {}
        # Nothing that starts from now on can be over the limit any sooner.
        sleep_ns = self._limit_ns
        for recording in recordings:
            self._events[recording] = events.get(recording, 0)
            with guard:
                is_explained = False
                for record in _open(recording):
                    due_ns = known.get(record, self._limit_ns)
                    age_ns = recording.now_ns() - record.start_ns
                    if is_explained:
                        # What it takes so long for is inside of it, and told of already.
                        if record in known:
                            self._due_ns[record] = due_ns
                        continue
                    is_explained = age_ns >= self._limit_ns
                    if age_ns >= due_ns:
                        while due_ns <= age_ns:
                            due_ns *= 2
                        self._due_ns[record] = due_ns
                        self._report(recording, record, age_ns, is_first=record not in known)
                    elif record in known:
                        self._due_ns[record] = due_ns
                    sleep_ns = min(sleep_ns, due_ns - age_ns)
        return sleep_ns / 1e9 if recordings else None

    def _report(self, recording: Recording, record: Record, age_ns: int, is_first: bool) -> None:
        name = clean_name(record.name)
        root = recording.root
        kind = semconv.TVM_PASS_NAME if isinstance(record, Frame) else semconv.TILELANG_WORK_NAME
        attributes: dict[str, Any] = {
            kind: name,
            semconv.TILELANG_STALL_DURATION: age_ns / 1e9,
            semconv.THREAD_NAME: recording.thread_name,
        }
        if self._events[recording] < _MAX_EVENTS:
            self._events[recording] += 1
            recording.add_event(semconv.STALL_EVENT, attributes, record.start_ns + age_ns)
        # For exemplars, and for log lines that carry the trace they are written in.
        token = otel_context.attach((root and root.span_context) or otel_context.get_current())
        try:
            if is_first and recording.instruments is not None:
                recording.instruments.stalled(record)
            _logger.warning(
                "%s has been running for %.4g s in %s, thread %s%s",
                name,
                age_ns / 1e9,
                "a pass context" if root is None else clean_name(root.name),
                recording.thread_name,
                _within(recording, record),
                extra=attributes,
            )
        finally:
            otel_context.detach(token)


def _open(recording: Recording) -> Iterator[Record]:
    """Yield what is open and takes time itself, innermost first."""
    record = recording.current
    while record is not None:
        if not record.end_ns and _takes_time(record):
            yield record
        record = record.parent


def _takes_time(record: Record) -> bool:
    if isinstance(record, Frame):
        return True
    return not record.scope_kind and record.name.split(" ")[0] not in semconv.CONTAINER_SPANS


def _within(recording: Recording, record: Record) -> str:
    """Say what runs inside of it, if anything."""
    innermost = next(_open(recording), None)
    if innermost is None or innermost is record:
        return ""
    age_ns = recording.now_ns() - innermost.start_ns
    return f"; for {age_ns / 1e9:.4g} s now, in {clean_name(innermost.name)}"


_watchdog = Watchdog(active_recordings)

watch = _watchdog.watch
stop = _watchdog.stop

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watchdog.reset)
