"""Finished records on their way: to metrics, to spans, or into the span of their compile.

Owns the order of these steps and that each record takes each of them once, whichever
threads are at it. How a record becomes a span is up to ``_spans``, which ones do to
``_folding``, and in which thread to ``_background``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Tracer

from tilelang_otel._background import Job, Pace
from tilelang_otel._folding import Folding
from tilelang_otel._frames import Record
from tilelang_otel._guard import guard
from tilelang_otel._spans import context_below, emit

if TYPE_CHECKING:
    from tilelang_otel._crash import CompileLog
    from tilelang_otel._metrics import Instruments

__all__ = ["Emission"]

_PATIENCE_S: Final = 2.0
_URGENT_S: Final = 0.2


class Emission:
    """Takes the records of one recording.

    Attributes:
        provider: The tracer provider of the spans.
        context: Where spans of records without a parent start.

    Args:
        provider: See there.
        tracer: What starts spans; None if the compile is not sampled.
        context: See there.
        wall_offset_ns: What to add to a record's times to get wall clock times.
        folding: Decides which records get spans.
        instruments: The metrics that records count in, if any.
        crash_log: Who keeps records for the case that the process dies.
        send: Has a job done, now or later.
    """

    def __init__(
        self,
        provider: Any,
        tracer: Tracer | None,
        context: Context | None,
        wall_offset_ns: int,
        folding: Folding,
        instruments: Instruments | None,
        crash_log: CompileLog | None,
        send: Callable[[Job], None],
    ) -> None:
        self.provider = provider
        self.context = context
        self._tracer = tracer
        self._wall_offset_ns = wall_offset_ns
        self._folding = folding
        self._instruments = instruments
        self._crash_log = crash_log
        self._send = send
        self._lock = threading.RLock()

    def part(self, records: list[Record], now_ns: int, is_full: bool) -> list[Record]:
        """Hand on what has finished of a running compile.

        Args:
            records: Everything there is, in start order.
            now_ns: What time it is, on the records' clock.
            is_full: Whether there is no room for what could wait.

        Returns:
            What is to be given again, in start order.
        """
        finished = [record for record in records if record.end_ns]
        found = self._folding.sort(finished, now_ns, may_wait=not is_full)
        kept = {id(record) for record in found.kept}
        rest = [record for record in records if not record.end_ns or id(record) in kept]
        if found.emitted:
            self.start(rest)
        if found.emitted or found.folded:
            self._send(_Part(self, found.emitted, found.folded))
        return rest

    def finish(self, records: list[Record], root: Record | None, now_ns: int) -> None:
        """Hand on all that is left.

        Args:
            records: What there is, in start order, all of it finished.
            root: The record of the root span, finished as well.
            now_ns: What time it is, on the records' clock.
        """
        if self._crash_log is not None and root is not None:
            self._crash_log.finished(root)
        # The root last: a backend that has it has what is below it.
        whole = records if root is None else [*records, root]
        self._send(_Rest(self, whole, now_ns))

    def start(self, records: Sequence[Record]) -> None:
        """Start the spans of those records that are open, and get spans."""
        self.emit(
            [r for r in records if not r.end_ns and not self._folding.needs_no_span(r)],
        )

    def emit(self, records: Sequence[Record], is_urgent: bool = False) -> bool:
        """Make spans of records here and now, unless they have got theirs.

        Args:
            records: In start order; open ones get started only.
            is_urgent: Whether to leave it to another thread that is at it.

        Returns:
            Whether it was done.
        """
        if self._tracer is None:
            return True
        # A signal may have cut off whoever had the lock, which must not last.
        is_alone = self._lock.acquire(timeout=_URGENT_S if is_urgent else _PATIENCE_S)
        if is_urgent and not is_alone:
            return False
        try:
            # The SDK suppresses instrumentation while a span is exported, and a signal
            # at that moment would leave it so.
            token = otel_context.attach(otel_context.get_current())
            try:
                emit(records, self._tracer, self.context, self._wall_offset_ns, self._crash_log)
            finally:
                otel_context.detach(token)
        finally:
            if is_alone:
                self._lock.release()
        return True

    def sort(self, records: list[Record], now_ns: int) -> tuple[list[Record], list[Record]]:
        """Return which records get spans, and which don't."""
        if self._tracer is None:
            return [], []
        found = self._folding.sort(records, now_ns)
        return found.emitted, found.folded

    def deliver(
        self,
        pace: Pace,
        records: Sequence[Record],
        emitted: Sequence[Record],
        folded: Sequence[Record],
    ) -> None:
        """Take the steps.

        Args:
            pace: How fast.
            records: All that has finished.
            emitted: What of it gets spans.
            folded: What of it does not.
        """
        with guard:
            self._folding.fold(folded)
            if self._crash_log is not None:
                for record in folded:
                    self._crash_log.forget(record)
            self._folding.tell(emitted)
        for start in range(0, len(emitted), pace.chunk):
            some = emitted[start : start + pace.chunk]
            with guard:
                self.emit(some)
            pace.made(len(some))
        for start in range(0, len(records), pace.chunk):
            self.count(records[start : start + pace.chunk])
            pace.made(0)

    def give_up(self, records: Sequence[Record]) -> None:
        """End the spans that are started already, and make no others; all count."""
        self.emit([record for record in records if record.span is not None])
        if self._crash_log is not None:
            for record in records:
                if record.span is None:
                    self._crash_log.forget(record)
        self.count(records)

    def count(self, records: Sequence[Record]) -> None:
        """Count finished records in the metrics, each once."""
        if self._instruments is not None:
            self._instruments.finished(records, self._context_of)

    def _context_of(self, record: Record) -> Context | None:
        return context_below(record, self.context)


class _Part:
    """Records of a compile that goes on."""

    def __init__(
        self, emission: Emission, emitted: Sequence[Record], folded: Sequence[Record]
    ) -> None:
        self.provider = emission.provider
        self.size = len(emitted) + len(folded)
        self._emission = emission
        self._emitted = emitted
        self._folded = folded

    def run(self, pace: Pace) -> None:
        """Make spans of them."""
        self._emission.deliver(pace, [*self._emitted, *self._folded], self._emitted, self._folded)

    def give_up(self) -> None:
        """End what is started already: nothing of it."""
        self._emission.give_up([*self._emitted, *self._folded])


class _Rest:
    """The last records of a compile, with its root."""

    def __init__(self, emission: Emission, records: list[Record], now_ns: int) -> None:
        self.provider = emission.provider
        self.size = len(records)
        self._emission = emission
        self._records = records
        self._now_ns = now_ns

    def run(self, pace: Pace) -> None:
        """Make spans of them."""
        emitted, folded = self._emission.sort(self._records, self._now_ns)
        self._emission.deliver(pace, self._records, emitted, folded)

    def give_up(self) -> None:
        """End what is started already: the root, and what others joined early."""
        self._emission.give_up(self._records)
