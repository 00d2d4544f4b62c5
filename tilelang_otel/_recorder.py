"""Who records: one tracer provider, one set of options, any number of compiles.

Owns which recording is running on which thread. What is recorded in one is up to
the observer, and to the scopes of ``_scopes`` that adapters use. Nothing here
raises into the compile.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Tracer, TracerProvider

from tilelang_otel import _crash, _routes, _sigterm, _warmup, _watchdog, semconv
from tilelang_otel._activity import ended, thread
from tilelang_otel._config import Settings, read_settings
from tilelang_otel._emission import Emission
from tilelang_otel._frames import Failure, Record
from tilelang_otel._guard import guard
from tilelang_otel._host import Clock
from tilelang_otel._metrics import Instruments, Metrics
from tilelang_otel._recording import Recording
from tilelang_otel._scopes import CompileScope, Describe, Work
from tilelang_otel.version import __version__

__all__ = ["Recorder"]


look_up_provider: Callable[[], TracerProvider] = trace.get_tracer_provider
"""Finds the tracer provider of whoever names none. ``tilelang-otel run`` sets it, to
build one no sooner than a compile needs it."""


class Recorder:
    """Records compiles for one tracer provider, with one set of options.

    Args:
        tracer_provider: Where spans go; None means the global one, looked up at
            each compile.
        settings: The options in force; None reads them from the environment.
        clock: Where times come from; None means the system's clocks.
        meter_provider: Where metrics go; None means the global one, looked up at
            each compile.

    Attributes:
        clock: See there.
        wants: Tells from name and depth whether to record a pass; None if all are.
        cover: Set by who can see to it that the passes in a compile are seen.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self.tracer_provider = tracer_provider
        self.meter_provider = meter_provider
        self.settings = settings or read_settings()
        self.clock = clock or Clock(time.time_ns, time.perf_counter_ns)
        self.wants = _pass_filter(self.settings)
        self._metrics = Metrics(meter_provider)
        self._cached: tuple[TracerProvider, Tracer] | None = None
        self.cover: Callable[[CompileScope, FrameType], AbstractContextManager[None]] | None = None
        if self.settings.flush_on_sigterm:
            with guard:
                _sigterm.install(self.settings.exit_timeout_s, tracer_provider)

    def current(self) -> Recording | None:
        """Return this thread's recording for this tracer provider."""
        for recording in reversed(thread.recordings):
            is_named = recording.host.tracer_provider is self.tracer_provider
            if is_named or recording.found_provider is self.provider():
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
                # They may have to be made first, which is not the compile's time.
                self.tracer()
                _routes.prepare(self.settings, self.provider())
                self._stay_on_sigterm()
            recording = Recording(self, self.provider())
            thread.recordings.append(recording)
            try:
                with guard:
                    recording.begin(name, attributes, has_root)
            except BaseException:
                # A signal: nobody will know of the recording, to end it.
                thread.recordings.remove(recording)
                raise
        recording.scopes += 1
        return recording

    def drop_stale(self) -> None:
        """End recordings of this thread whose end a signal has cut off.

        Called where an outermost scope may begin: it would join them for ever.
        """
        for recording in [each for each in thread.recordings if not each.is_alive()]:
            thread.recordings.remove(recording)
            with guard:
                recording.finish(None)

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
        thread.recordings[:] = [each for each in thread.recordings if each is not recording]
        ended()
        provider = recording.provider
        with guard:
            recording.finish(error)
        if provider is not None:
            with guard:
                _routes.flush_in_child(provider, self.settings.exit_timeout_s)
        with guard:
            self._stay_on_sigterm()

    def _stay_on_sigterm(self) -> None:
        """See to it, around an outermost recording, that SIGTERM still exports first."""
        if self.settings.flush_on_sigterm and not thread.recordings:
            _sigterm.stay()

    def compile_scope(
        self,
        describe: Describe,
        kind: str = semconv.SPAN_COMPILE,
        fans_out: bool = False,
        shapes: Callable[[], str] | None = None,
    ) -> CompileScope:
        """Return a context manager for a whole compile.

        Args:
            describe: Gives the span's name and attributes.
            kind: Entry points of the same kind that call each other share a span.
            fans_out: Whether other threads work for it.
            shapes: Returns the shapes that are compiled for, as text.
        """
        return CompileScope(self, describe, kind, fans_out, shapes)

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
        return (self.clock.monotonic_ns() - record.start_ns) / 1e9

    # -- what a recording needs: _recording.Host -----------------------------------

    def tracer(self) -> Tracer:
        """Return what starts spans now."""
        provider = self.tracer_provider or look_up_provider()
        if self._cached is None or self._cached[0] is not provider:
            tracer = provider.get_tracer(
                semconv.SCOPE_NAME, __version__, schema_url=semconv.SCHEMA_URL
            )
            self._cached = (provider, tracer)
        return self._cached[1]

    def instruments(self) -> Instruments | None:
        """Return the metrics in force; None if nobody takes any."""
        return self._metrics.current()

    def needs_unsampled(self) -> bool:
        """Tell whether compiles that are not sampled have to be recorded all the same."""
        return self.settings.stall_limit_s is not None or _warmup.is_done()

    def emission(
        self,
        tracer: Tracer,
        root: Record | None,
        context: Context,
        wall_offset_ns: int,
        is_sampled: bool,
    ) -> tuple[Emission, _crash.CompileLog | None]:
        """Return what takes a recording's records, and who keeps them for a crash.

        Args:
            tracer: What starts the spans.
            root: The record of the root span, if there is one.
            context: What the outermost spans are in.
            wall_offset_ns: What to add to a record's times to get wall clock times.
            is_sampled: Whether there are to be spans.
        """
        if self.settings.stall_limit_s is not None:
            _watchdog.watch(self.settings.stall_limit_s)
        return _routes.emission(
            self.settings,
            self.provider(),
            tracer if is_sampled else None,
            root,
            context,
            wall_offset_ns,
            self.instruments(),
        )


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
