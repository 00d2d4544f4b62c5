"""One compile on one thread: what is open, what has finished, when it is handed on.

Owns the recording, its root span, and the decision when records are handed on:
when the outermost scope closes, or in parts when a compile is long. What becomes
of them is up to ``_emission``; who records what, to ``_recorder``, the observer and
the adapters.

The root span alone is live. It decides sampling once for the whole compile,
gives other spans and log lines a context to join, and tells a backend what
was being compiled if the process dies. A compile that is suppressed gets a
recording that is muted, and so does one that is not sampled, unless somebody wants
to know of it for another purpose.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracer, Span

from tilelang_otel import _activity, _context, semconv
from tilelang_otel._emission import Emission
from tilelang_otel._frames import Failure, Frame, Record
from tilelang_otel._guard import guard
from tilelang_otel._host import Host
from tilelang_otel._interrupt import is_from_signal
from tilelang_otel._scrub import clean_kernel_name, clean_name
from tilelang_otel._spans import context_below
from tilelang_otel._tree import RecordTree
from tilelang_otel._until_end import UntilEnd

if TYPE_CHECKING:
    from tilelang_otel._metrics import Instruments

__all__ = ["Recording", "active_recordings"]


def active_recordings() -> list[Recording]:
    """Return what is being recorded now, on all threads."""
    return _activity.running()


class Recording(RecordTree):
    """What one thread's compile has done so far.

    Attributes:
        is_muted: Whether nothing is recorded.
        scopes: How many contexts and compile scopes are inside it.
        is_alive: Whether its end can still come. Set by whoever can tell.
        instruments: The metrics that it counts in, if any.
        host: Who has it.
        found_provider: The tracer provider that was in force when it began.
        provider: The tracer provider of its spans; None while it is muted.
        thread_name: Name of its thread.
        start_ns: When it began, on the clock of its records.
    """

    def __init__(self, host: Host, found_provider: Any) -> None:
        super().__init__(host.clock.monotonic_ns)
        self.is_muted = True
        self.host = host
        self.found_provider = found_provider
        self.scopes = 0
        self.is_alive: Callable[[], bool] = _always
        self.instruments: Instruments | None = None
        self._wants = host.wants
        self._part_spans = host.settings.part_spans
        self._part_age_ns = int(host.settings.part_age_s * 1e9)
        self._frame_attributes: dict[str, Any] | None = None
        self._reads_names = True
        self._emission: Emission | None = None
        self._events: list[tuple[str, Mapping[str, Any], int]] = []
        self._pid = os.getpid()
        self._own_ns = 0
        # The wall clock first: the other way round, a span could end after a
        # parent that is timed by the wall clock alone.
        wall_ns = host.clock.wall_ns()
        start_ns = self.now_ns()
        self.start_ns = start_ns
        self._wall_offset_ns = wall_ns - start_ns
        self._part_due_ns = start_ns + self._part_age_ns

    def begin(self, name: str, attributes: Mapping[str, Any] | None, has_root: bool) -> None:
        """Decide whether to record, and start the root span.

        Args:
            name: Name of the root span.
            attributes: Its attributes.
            has_root: Whether there is a root span at all.
        """
        if _context.is_suppressed():
            return
        began_ns = time.perf_counter_ns()
        host = self.host
        tracer = host.tracer()
        self.instruments = host.instruments()
        must_record = self.instruments is not None or host.needs_unsampled()
        if isinstance(tracer, NoOpTracer) and not must_record:
            return
        parent = _context.parent_context()
        if has_root:
            root = Record()
            root.name = clean_name(name)
            root.start_ns = self.start_ns
            if attributes is not None:
                root.attributes = dict(attributes)
            root.span = tracer.start_span(
                root.name,
                parent,
                attributes=attributes,
                start_time=self.start_ns + self._wall_offset_ns,
            )
            root.span_context = trace.set_span_in_context(root.span, parent)
            # Not before: a provider that raises must leave no root without a span.
            self.root = self.current = root
            is_sampled = root.span.is_recording()
        else:
            # Without a root there is nobody to ask but the parent.
            context = trace.get_current_span(parent).get_span_context()
            is_sampled = not context.is_valid or context.trace_flags.sampled
            is_sampled = is_sampled and not isinstance(tracer, NoOpTracer)
        if not is_sampled and not must_record:
            return
        self._emission, self._crash_log = host.emission(
            tracer, self.root, parent, self._wall_offset_ns, is_sampled
        )
        self.is_muted = False
        self._thread = threading.current_thread()
        self.thread_name = self._thread.name
        self._own_ns += time.perf_counter_ns() - began_ns

    @property
    def provider(self) -> Any:
        """The tracer provider of the spans; None while nothing is recorded."""
        return None if self._emission is None else self._emission.provider

    # -- passes: the callback path ----------------------------------------------

    def opened(self, frame: Frame, mod: Any) -> None:
        """Start recording a pass."""
        if self._wants is not None and not self._wants(frame.name, frame.depth):
            return
        if self._reads_names and frame.depth == 0:
            self._read_name(mod)
        frame.is_recorded = True
        if self._frame_attributes is not None:
            frame.attributes = self._frame_attributes
        frame.parent = self.current
        self.current = frame
        self._records.append(frame)
        frame.start_ns = self.now_ns()
        if self._crash_log is not None:
            self._crash_log.opened_pass(frame)

    def closed(self, frame: Frame) -> None:
        """Finish recording a pass."""
        if not frame.is_recorded:
            return
        end_ns = self.now_ns()
        self._close(frame, end_ns)
        if len(self._records) >= self._part_spans or end_ns >= self._part_due_ns:
            self._hand_on(end_ns)

    def dropped(self, frames: list[Frame], error: BaseException | None, seen_late: bool) -> None:
        """Record passes that got no after-callback as failed."""
        with guard:
            end_ns = None if seen_late else self.now_ns()
            self.fail([frame for frame in frames if frame.is_recorded], error, end_ns)

    def failed(self, error: Exception) -> None:
        """Report an error of ours; what was recorded so far is still emitted."""
        guard.report(error)

    def set_kernel_name(self, name: str | None) -> None:
        """Name the function that the passes from here on work on."""
        self._reads_names = name is None
        self._frame_attributes = None if name is None else {semconv.TILELANG_KERNEL_NAME: name}

    def _read_name(self, mod: Any) -> None:
        """Name the passes below after the module's function, if it has just one."""
        try:
            name = mod.get_global_vars()[0].name_hint if len(mod.functions) == 1 else None
        except Exception as error:
            if is_from_signal(error):
                raise
            name = None  # whatever was called a module here has no functions
        self._frame_attributes = (
            None if name is None else {semconv.TILELANG_KERNEL_NAME: clean_kernel_name(str(name))}
        )

    # -- what is not of the compile itself -------------------------------------------

    def add_event(self, name: str, attributes: Mapping[str, Any], at_ns: int) -> None:
        """Have the compile's span tell of something that another thread has seen.

        Args:
            name: Name of the span event.
            attributes: Its attributes.
            at_ns: When it was, on the records' clock.
        """
        self._events.append((name, attributes, at_ns))

    # -- handing on -----------------------------------------------------------------

    def finish(self, error: BaseException | Failure | None) -> None:
        """Hand everything on, and end the root.

        Args:
            error: The exception that is leaving the outermost scope, if any.
        """
        records, self._records = self._records, []
        self.is_alive = _always
        if self._pid != os.getpid():
            # A forked child came out here: the recording is its parent's.
            return
        root = self.root
        emission = self._emission
        if self.is_muted or emission is None:
            if root is not None:
                root.span.end()
            return
        # Read before anything is handed on: that takes time which is not the compile's.
        end_ns = self.now_ns()
        began_ns = time.perf_counter_ns()
        self.fail([record for record in records if not record.end_ns], error, end_ns)
        if root is not None and not root.end_ns:
            self.close(root, error, end_ns)
        self.current = self.root = self._last_failed = None
        if root is not None:
            self._add_events(root.span)
        emission.finish(records, root, end_ns)
        if self.instruments is not None:
            own_ns = self._own_ns + time.perf_counter_ns() - began_ns
            self.instruments.telemetry(own_ns / 1e9)

    def start_early(self, record: Record) -> Context:
        """Start the span of an open record, and those of all that it is in.

        Returns:
            The context below it.
        """
        emission = self._emission
        context = None
        if emission is not None:
            emission.start(self._records)
            context = context_below(record, emission.context)
        return context or otel_context.get_current()

    def emit_finished(self) -> bool:
        """Make spans of what has finished, from whichever thread.

        Returns:
            Whether that was done; not so if another thread is at it.
        """
        return self._emission is None or self._emission.emit(list(self._records), is_urgent=True)

    def give_up(self, failure: Failure) -> Callable[[], None]:
        """Make error spans of all that is open, from whichever thread: the process ends.

        What the compile does from here on is not recorded.

        Args:
            failure: Why.

        Returns:
            What counts them in the metrics, and may have to wait for whoever counts.
        """
        emission = self._let_go()
        if emission is None:
            return lambda: None
        records, root, now_ns = list(self._records), self.root, self.now_ns()
        emission.emit(records, is_urgent=True)
        still_open = [record for record in records if not record.end_ns]
        for record in [*still_open, *([] if root is None else [root])]:
            if record.span is not None:
                # The compile may go on for a while, and add to what has ended.
                record.span = UntilEnd(record.span)
        self.fail(still_open, failure, now_ns)
        if root is not None:
            self.close(root, failure, now_ns)
            self._add_events(root.span)
            records.append(root)
        emission.emit(records, is_urgent=True)
        return lambda: emission.count(records)

    def exited(self) -> None:
        """Hand everything on as the process exits, from whichever thread.

        What a thread is still at are errors. A context that merely nobody has left is none,
        and all that is said of a compile whose thread is over is that its end wasn't seen.
        """
        root, thread = self.root, self._thread
        is_busy = root is not None and bool(root.scope_kind)
        is_busy = is_busy or any(not record.end_ns for record in list(self._records))
        if is_busy and thread.is_alive() and thread is not threading.main_thread():
            message = "the process exited while this was running"
            self.give_up(Failure(semconv.ERROR_TYPE_PROCESS_DIED, message))()
        else:
            self.finish(None)
            self._let_go()

    def _let_go(self) -> Emission | None:
        """Record nothing from here on; return what took the records so far."""
        self.is_muted = True
        emission, self._emission = self._emission, None
        return emission

    def _add_events(self, span: Span) -> None:
        for name, attributes, at_ns in self._events:
            span.add_event(name, attributes, at_ns + self._wall_offset_ns)

    def _hand_on(self, now_ns: int) -> None:
        began_ns = time.perf_counter_ns()
        with guard:
            self._part_due_ns = now_ns + self._part_age_ns
            records, self._records = self._records, []
            if self._emission is not None:
                is_full = len(records) >= self._part_spans
                self._records = self._emission.part(records, now_ns, is_full)
        self._own_ns += time.perf_counter_ns() - began_ns


def _always() -> bool:
    return True
