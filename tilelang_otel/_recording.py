"""One compile on one thread: what is open, what has finished, when it is emitted.

Owns the recording, its root span, and the decision when records become spans:
when the outermost scope closes, or in parts when a compile is long. How a
record becomes a span is up to ``_spans``; who records what, to ``_recorder``,
the observer and the adapters.

The root span alone is live. It decides sampling once for the whole compile,
gives other spans and log lines a context to join, and tells a backend what
was being compiled if the process dies. A compile that is not sampled, or is
suppressed, gets a recording that is muted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracer, Tracer

from tilelang_otel import _context, semconv
from tilelang_otel._config import Settings
from tilelang_otel._frames import Failure, Frame, FrameLog, Record
from tilelang_otel._guard import guard
from tilelang_otel._interrupt import is_from_signal
from tilelang_otel._scrub import clean_kernel_name, clean_name, describe_failure
from tilelang_otel._spans import context_below, emit

__all__ = ["Clock", "Recording"]


class Clock:
    """Where times come from.

    Attributes:
        wall_ns: Nanoseconds since the epoch; read once for each recording.
        monotonic_ns: Nanoseconds of a clock that never steps; for everything else.
    """

    def __init__(self, wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> None:
        self.wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns


class Recording(FrameLog):
    """What one thread's compile has done so far.

    Attributes:
        is_muted: Whether nothing is recorded.
        scopes: How many contexts and compile scopes are inside it.
        root: The record of the root span; None when there is no root.
        current: The innermost open record.
        is_alive: Whether its end can still come. Set by whoever can tell.
    """

    def __init__(
        self,
        tracer: Callable[[], Tracer],
        settings: Settings,
        wants: Callable[[str, int], bool] | None,
        clock: Clock,
    ) -> None:
        self.is_muted = True
        self.scopes = 0
        self.root: Record | None = None
        self.current: Record | None = None
        self.is_alive: Callable[[], bool] = _always
        self._make_tracer = tracer
        self._wants = wants
        self._now = clock.monotonic_ns
        self._part_spans = settings.part_spans
        self._part_age_ns = int(settings.part_age_s * 1e9)
        self._records: list[Record] = []
        self._last_failed: Record | None = None
        self._frame_attributes: dict[str, Any] | None = None
        self._reads_names = True
        self._context: Context | None = None
        self._pid = os.getpid()
        # The wall clock first: the other way round, a span could end after a
        # parent that is timed by the wall clock alone.
        wall_ns = clock.wall_ns()
        start_ns = self._now()
        self._start_ns = start_ns
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
        self._tracer = self._make_tracer()
        if isinstance(self._tracer, NoOpTracer):
            return
        self._context = parent = _context.parent_context()
        if not has_root:
            # Without a root there is nobody to ask but the parent.
            span = trace.get_current_span(parent)
            context = span.get_span_context()
            self.is_muted = context.is_valid and not context.trace_flags.sampled
            return
        root = Record()
        root.name = clean_name(name)
        root.start_ns = self._start_ns
        root.span = self._tracer.start_span(
            root.name,
            parent,
            attributes=attributes,
            start_time=self._start_ns + self._wall_offset_ns,
        )
        root.span_context = trace.set_span_in_context(root.span, parent)
        self.root = self.current = root
        self.is_muted = not root.span.is_recording()

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
        frame.start_ns = self._now()

    def closed(self, frame: Frame) -> None:
        """Finish recording a pass."""
        if not frame.is_recorded:
            return
        end_ns = self._now()
        self._close(frame, end_ns)
        if len(self._records) >= self._part_spans or end_ns >= self._part_due_ns:
            self._emit_part(end_ns)

    def dropped(self, frames: list[Frame], error: BaseException | None, seen_late: bool) -> None:
        """Record passes that got no after-callback as failed."""
        with guard:
            end_ns = None if seen_late else self._now()
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

    # -- other work -----------------------------------------------------------------

    def open(self, record: Record) -> None:
        """Start recording a piece of work below what is open."""
        record.parent = self.current
        self.current = record
        self._records.append(record)
        record.start_ns = self._now()

    def close(
        self,
        record: Record,
        error: BaseException | Failure | None,
        end_ns: int | None = None,
    ) -> None:
        """Finish recording a piece of work, with the exception that ended it, now."""
        end_ns = end_ns or self._now()
        if error is None:
            self._close(record, end_ns)
        else:
            self.fail([record], error, end_ns)

    def fail(
        self,
        records: list[Record],
        error: BaseException | Failure | None,
        end_ns: int | None,
    ) -> None:
        """Finish records that an exception has ended.

        Args:
            records: Each inside the one before it; may be empty.
            error: The exception, if known, or what is to be said of it.
            end_ns: When it was seen; None when it happened at some time before now.
        """
        if not records:
            return
        failure = error if isinstance(error, Failure) else describe_failure(error)
        origin = failure.origin or self._origin(records[-1], failure)
        for record in reversed(records):
            record.failure = (
                Failure(failure.type, failure.message, origin=origin) if origin else failure
            )
            origin = origin or record.name
            record.end_estimated = end_ns is None
            self._close(record, max(record.start_ns, record.last_ns) if end_ns is None else end_ns)
        self._last_failed = records[0]

    def _origin(self, record: Record, failure: Failure) -> str:
        """Name what failed first, if ``record`` only passes a failure on.

        TVM makes a new exception at each crossing between Python and C++, so only
        the message tells; and the failure must be the last thing that happened in
        ``record``: one that was caught, with more work after it, is not passed on.
        """
        last = self._last_failed
        if last is None or last.failure is None or last.parent is not record:
            return ""
        if last.end_ns < record.last_ns:
            return ""
        # What is raised about a failed compiler quotes its output and the source.
        if last.failure.message != failure.message and not last.is_client:
            return ""
        return last.failure.origin or last.name

    def _close(self, record: Record, end_ns: int) -> None:
        record.end_ns = end_ns
        parent = record.parent
        if parent is not None:
            parent.children_ns += end_ns - record.start_ns
            parent.last_ns = end_ns
            # Instruments that share this recording close in registration order.
            while parent is not None and parent.end_ns:
                parent = parent.parent
        if self.current is record:
            self.current = parent

    # -- emission -------------------------------------------------------------------

    def finish(self, error: BaseException | Failure | None) -> None:
        """Emit everything, and end the root.

        Args:
            error: The exception that is leaving the outermost scope, if any.
        """
        records, self._records = self._records, []
        self.is_alive = _always
        if self._pid != os.getpid():
            # A forked child came out here: the recording is its parent's.
            return
        root = self.root
        if self.is_muted:
            if root is not None:
                root.span.end()
            return
        # Read before anything is emitted: that takes time which is not the compile's.
        end_ns = self._now()
        self.fail([record for record in records if not record.end_ns], error, end_ns)
        if root is not None:
            self.close(root, error, end_ns)
        self.current = self.root = self._last_failed = None
        # In their order: a backend that has the root has what is below it.
        self._emit(records if root is None else [*records, root])

    def start_early(self, record: Record) -> Context:
        """Start the span of an open record, and those of all that it is in.

        Returns:
            The context below it.
        """
        self._emit_part(self._now())
        return context_below(record, self._context) or otel_context.get_current()

    def _emit_part(self, now_ns: int) -> None:
        with guard:
            self._part_due_ns = now_ns + self._part_age_ns
            records, self._records = self._records, []
            self._records = self._emit(records)

    def _emit(self, records: list[Record]) -> list[Record]:
        # The SDK suppresses instrumentation while a span is exported, and a signal
        # at that moment would leave it so.
        token = otel_context.attach(otel_context.get_current())
        try:
            return emit(records, self._tracer, self._context, self._wall_offset_ns)
        finally:
            otel_context.detach(token)


def _always() -> bool:
    return True
