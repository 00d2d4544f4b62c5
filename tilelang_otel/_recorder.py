"""Who records: one tracer provider, one set of options, any number of compiles.

Owns which recording is running on which thread, and the scopes in which
adapters put whole compiles and named pieces of work. Nothing here raises into
the compile.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Tracer, TracerProvider

from tilelang_otel import semconv
from tilelang_otel._config import Settings, read_settings
from tilelang_otel._frames import Failure, Record, is_running
from tilelang_otel._guard import guard
from tilelang_otel._recording import Clock, Recording
from tilelang_otel._scrub import clean_name
from tilelang_otel.version import __version__

__all__ = ["CompileScope", "Describe", "Recorder", "Work"]


look_up_provider: Callable[[], TracerProvider] = trace.get_tracer_provider
"""Finds the tracer provider of whoever names none. ``tilelang-otel run`` sets it, to
build one no sooner than a compile needs it."""

_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]

Describe = Callable[[], tuple[str, dict[str, Any]]]
"""Gives the name and the attributes of a span that is about to be needed."""


class _Thread(threading.local):
    """The recordings that are running on this thread, outermost first."""

    def __init__(self) -> None:
        self.recordings: list[tuple[Recorder, TracerProvider | None, Recording]] = []
        """Each with who began it, and the provider that was found for it."""


_thread = _Thread()


def _forget_the_parents() -> None:
    # What the parent process was recording when it forked is the parent's to emit.
    _thread.recordings.clear()


os.register_at_fork(after_in_child=_forget_the_parents)


class Recorder:
    """Records compiles for one tracer provider, with one set of options.

    Args:
        tracer_provider: Where spans go; None means the global one, looked up at
            each compile.
        settings: The options in force; None reads them from the environment.
        clock: Where times come from; None means the system's clocks.

    Attributes:
        cover: Set by who can see to it that the passes in a compile are seen.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.tracer_provider = tracer_provider
        self.settings = settings or read_settings()
        self._clock = clock or Clock(time.time_ns, time.perf_counter_ns)
        self._wants = _pass_filter(self.settings)
        self._cached: tuple[TracerProvider, Tracer] | None = None
        self.cover: Callable[[CompileScope, FrameType], AbstractContextManager[None]] | None = None

    def current(self) -> Recording | None:
        """Return this thread's recording for this tracer provider."""
        for recorder, provider, recording in reversed(_thread.recordings):
            if recorder.tracer_provider is self.tracer_provider or provider is self.provider():
                return recording
        return None

    def provider(self) -> TracerProvider | None:
        """Return where spans go now; None when there is an error in finding it."""
        if self.tracer_provider is not None:
            return self.tracer_provider
        with guard:
            return look_up_provider()
        return None

    def shares(self, other: Recorder) -> bool:
        """Tell whether the spans of both go to one tracer provider."""
        if self.tracer_provider is other.tracer_provider:
            return True
        return self.provider() is other.provider()

    def enter(
        self, name: str, attributes: Mapping[str, Any] | None = None, has_root: bool = True
    ) -> Recording:
        """Join this thread's recording, or begin one; :meth:`leave` ends it.

        Args:
            name: Name of the root span, if a recording begins.
            attributes: Attributes of the root span, if a recording begins.
            has_root: Whether a recording that begins has a root span.

        Returns:
            The recording, which may be muted.
        """
        recording = self.current()
        if recording is None:
            with guard:
                # It may have to be built first, which is not the compile's time.
                self._tracer()
            recording = Recording(self._tracer, self.settings, self._wants, self._clock)
            item = (self, self.provider(), recording)
            _thread.recordings.append(item)
            try:
                with guard:
                    recording.begin(name, attributes, has_root)
            except BaseException:
                # A signal: nobody will know of the recording, to end it.
                _thread.recordings.remove(item)
                raise
        recording.scopes += 1
        return recording

    def drop_stale(self) -> None:
        """End recordings of this thread whose end a signal has cut off.

        Called where an outermost scope may begin: it would join them for ever.
        """
        for item in [item for item in _thread.recordings if not item[2].is_alive()]:
            _thread.recordings.remove(item)
            with guard:
                item[2].finish(None)

    def leave(self, recording: Recording, error: BaseException | Failure | None = None) -> None:
        """Leave a scope of a recording; the outermost one emits everything.

        Args:
            recording: What :meth:`enter` returned.
            error: The exception that is leaving the scope, if any.
        """
        recording.scopes -= 1
        if recording.scopes > 0:
            return
        # First of all, so that whatever cuts the rest short leaves nothing running.
        _thread.recordings[:] = [r for r in _thread.recordings if r[2] is not recording]
        with guard:
            recording.finish(error)

    def compile_scope(
        self, describe: Describe, kind: str = semconv.SPAN_COMPILE, fans_out: bool = False
    ) -> CompileScope:
        """Return a context manager for a whole compile.

        Args:
            describe: Gives the span's name and attributes.
            kind: Entry points of the same kind that call each other share a span.
            fans_out: Whether other threads work for it.
        """
        return CompileScope(self, describe, kind, fans_out)

    def work(self, describe: Describe, is_client: bool = False) -> Work:
        """Return a context manager for a named piece of work within a compile.

        Args:
            describe: Gives the span's name and attributes; called only if
                something records.
            is_client: Whether a child process does the work.
        """
        return Work(self.current(), describe, is_client)

    def annotate(self, name: str, value: Any) -> None:
        """Add an attribute to the innermost piece of work that is open. Never raises."""
        with guard:
            recording = self.current()
            if recording is not None and recording.current is not None:
                recording.current.set_attribute(name, value)

    def age_s(self, record: Record) -> float:
        """Return how many seconds ago an open record was started."""
        return (self._clock.monotonic_ns() - record.start_ns) / 1e9

    def _tracer(self) -> Tracer:
        provider = self.tracer_provider or look_up_provider()
        if self._cached is None or self._cached[0] is not provider:
            tracer = provider.get_tracer(
                semconv.SCOPE_NAME, __version__, schema_url=semconv.SCHEMA_URL
            )
            self._cached = (provider, tracer)
        return self._cached[1]


class Work:
    """A named piece of work: a record while it runs, or nothing when nothing records.

    Attributes:
        record: What is recorded; None when nothing is.
    """

    def __init__(self, recording: Recording | None, describe: Describe, is_client: bool) -> None:
        self.record: Record | None = None
        self._recording = None if recording is None or recording.is_muted else recording
        self._describe = describe
        self._is_client = is_client
        self._failure: BaseException | Failure | None = None

    def __enter__(self) -> Work:
        recording = self._recording
        if recording is not None:
            with guard:
                record = Record()
                name, record.attributes = self._describe()
                record.name = clean_name(name)
                record.is_client = self._is_client
                recording.open(record)
                self.record = record
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(error if error is not None else self._failure)

    def end(self, error: BaseException | Failure | None) -> None:
        """End the work.

        Args:
            error: Why it failed; None if it did not.
        """
        if self._recording is not None and self.record is not None:
            with guard:
                self._recording.close(self.record, error)

    def fail(self, error: BaseException | Failure) -> None:
        """Mark the work as failed, although no exception leaves it.

        Args:
            error: What to report.
        """
        self._failure = error

    def set_attribute(self, name: str, value: Any) -> None:
        """Add an attribute, which only the end of the work could tell."""
        if self.record is not None:
            self.record.set_attribute(name, value)


class CompileScope:
    """A whole compile: the root of a recording, or work within one that is running.

    Entry points call each other. The outermost is the compile, and those that it
    calls directly only add what they know of it.

    The root is the current span for as long as the scope lasts, so that what the
    compile starts joins its trace: other spans, log lines, child processes.

    Attributes:
        record: What is recorded; None when nothing is.
        is_muted: Whether nothing in this scope is to be recorded.
        is_outermost: Whether this scope began the compile.
    """

    def __init__(self, recorder: Recorder, describe: Describe, kind: str, fans_out: bool) -> None:
        self.record: Record | None = None
        self.is_muted = True
        self.is_outermost = False
        self._recorder = recorder
        self._describe = describe
        self._kind = kind
        self._fans_out = fans_out
        self._outcome: tuple[BaseException | Failure | None] | None = None
        self._recording: Recording | None = None
        self._work: Work | None = None
        self._token: Any = None
        self._cover: AbstractContextManager[None] | None = None

    def __enter__(self) -> CompileScope:
        with guard:
            caller = _getframe(1)
            self._enter(caller)
            if self._recorder.cover is not None:
                cover = self._recorder.cover(self, caller)
                cover.__enter__()
                self._cover = cover
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A signal may cut any of these steps short; the others are done all the same.
        try:
            if self._cover is not None:
                self._cover.__exit__(kind, error, trace)
        except BaseException as other:
            if other is not error:
                error = other
                raise
        finally:
            self._end(self._outcome[0] if self._outcome is not None else error)

    def _end(self, outcome: BaseException | Failure | None) -> None:
        try:
            if self._work is not None:
                self._work.end(outcome)
        finally:
            try:
                if self._token is not None:
                    with guard:
                        otel_context.detach(self._token)
            finally:
                if self._recording is not None:
                    self._recorder.leave(self._recording, outcome)

    def set_outcome(self, error: BaseException | Failure | None) -> None:
        """Decide how the scope ends, whatever leaves it.

        Args:
            error: What to report; None for a success.
        """
        self._outcome = (error,)

    def set_attribute(self, name: str, value: Any) -> None:
        """Add an attribute, which only the compile itself could tell."""
        with guard:
            if self.record is not None:
                self.record.set_attribute(name, value)

    def age_s(self) -> float | None:
        """Return how many seconds the compile has taken so far; None if not recorded."""
        return None if self.record is None else self._recorder.age_s(self.record)

    def _enter(self, caller: FrameType) -> None:
        self._recorder.drop_stale()
        running = self._recorder.current()
        if running is None:
            self._begin(caller)
        elif running.is_muted:
            return
        elif running.current is not None and running.current.scope_kind == self._kind:
            self.is_muted = False
            self.record = running.current
            self._add(*self._describe())
        else:
            self._join(running)

    def _begin(self, caller: FrameType) -> None:
        name, attributes = self._describe()
        recording = self._recording = self._recorder.enter(name, attributes)
        if is_with_statement(caller):
            # With a ``with`` statement, so the scope lasts no longer than the frame runs.
            recording.is_alive = functools.partial(is_running, caller)
        self.is_outermost = True
        self.is_muted = recording.is_muted
        self.record = recording.root
        if recording.root is not None:
            recording.root.scope_kind = self._kind
            recording.root.attributes = attributes
            self._token = otel_context.attach(recording.root.span_context)

    def _join(self, running: Recording) -> None:
        self.is_muted = False
        self.is_outermost = True
        self._work = Work(running, self._describe, is_client=False)
        record = self.record = self._work.__enter__().record
        if record is not None:
            record.scope_kind = self._kind
            if self._fans_out:
                # Other threads need a span to put theirs below.
                self._token = otel_context.attach(running.start_early(record))

    def _add(self, name: str, attributes: dict[str, Any]) -> None:
        record = self.record
        if record is None or record.attributes is None:
            return
        if (
            semconv.TILELANG_KERNEL_NAME in attributes
            and semconv.TILELANG_KERNEL_NAME not in record.attributes
        ):
            record.rename(clean_name(name))
        for key, value in attributes.items():
            record.set_attribute(key, value)


def is_with_statement(caller: FrameType) -> bool:
    """Tell whether what ``caller`` enters lasts no longer than ``caller`` runs.

    Not so where an ``ExitStack`` enters it, on behalf of whoever closes the stack.
    """
    return caller.f_code.co_filename != contextlib.__file__


def _pass_filter(settings: Settings) -> Callable[[str, int], bool] | None:
    """Return what tells from name and depth whether to record a pass; None if all are."""
    if settings.capture_nested and not settings.include and not settings.exclude:
        return None
    known: dict[str, bool] = {}

    def matches(name: str, patterns: tuple[str, ...]) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    def wants(name: str, depth: int) -> bool:
        if depth and not settings.capture_nested:
            return False
        answer = known.get(name)
        if answer is None:
            answer = not matches(name, settings.exclude) and (
                not settings.include or matches(name, settings.include)
            )
            if len(known) < 4096:
                known[name] = answer
        return answer

    return wants
