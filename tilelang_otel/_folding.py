"""How much of a compile gets spans, decided when it is known how the compile went.

Owns the policy: which records become spans, and what the span of a compile says of
those that do not. A *unit* is what is decided about as a whole: a compile, a run that
compiles many kernels, or whatever else nothing is above.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tilelang_otel import semconv
from tilelang_otel._config import Settings
from tilelang_otel._frames import Failure, Frame, Record
from tilelang_otel._scrub import clean_name

__all__ = ["Folding", "Sorted", "TraceBudget"]

_UNIT_KINDS: Final = frozenset(
    {semconv.SPAN_COMPILE, semconv.SPAN_PAR_COMPILE, semconv.SPAN_AUTOTUNE}
)

_COSTLIEST: Final = 5
"""How many names the span of a folded compile lists."""

_MAX_NAMES: Final = 512
"""How many names are told apart while a compile runs; what comes later is one."""

_OTHER: Final = "other"


class TraceBudget:
    """How many spans each trace has got from this process.

    Args:
        max_traces: How many traces are remembered; the oldest are forgotten.
    """

    def __init__(self, max_traces: int = 1024) -> None:
        self._max_traces = max_traces
        self._spans: OrderedDict[int, int] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, trace_id: int, spans: int, limit: int) -> bool:
        """Count spans of a trace, if it may have that many more.

        Args:
            trace_id: The trace; 0 is none, and has no limit.
            spans: How many more.
            limit: How many it may have in all.

        Returns:
            Whether it may have them.
        """
        if not trace_id:
            return True
        with self._lock:
            taken = self._spans.pop(trace_id, 0)
            has_room = taken + spans <= limit
            self._spans[trace_id] = taken + spans if has_room else taken
            if len(self._spans) > self._max_traces:
                self._spans.popitem(last=False)
            return has_room


_budget = TraceBudget()


@dataclass
class Sorted:
    """What becomes of some records, each list in the order in which they started."""

    emitted: list[Record] = field(default_factory=list[Record])
    """These get spans."""

    folded: list[Record] = field(default_factory=list[Record])
    """These get none."""

    kept: list[Record] = field(default_factory=list[Record])
    """These are yet to be decided about."""


class Folding:
    """Sorts the records of one recording, and sums up what gets no spans.

    Args:
        settings: The options in force.
        root: The record of the root span, if there is one.
        trace_id: The trace that spans go to; 0 if it is not known.
        budget: What spans are counted in.
    """

    def __init__(
        self,
        settings: Settings,
        root: Record | None,
        trace_id: int,
        budget: TraceBudget = _budget,
    ) -> None:
        self._extent = settings.emit
        self._slow_ns = int(settings.slow_s * 1e9)
        self._limit = settings.trace_spans
        self._root = root
        self._trace_id = trace_id
        self._budget = budget
        self._sums: dict[int, _Sum] = {}

    def needs_no_span(self, record: Record) -> bool:
        """Tell whether an open record gets a span only if it is a unit, and is none."""
        return self._extent == "compile" and self._unit(record) is not record

    def sort(self, records: Sequence[Record], now_ns: int, may_wait: bool = False) -> Sorted:
        """Decide about finished records.

        Args:
            records: In the order in which they started.
            now_ns: What time it is, on the records' clock.
            may_wait: Whether those may be kept whose unit goes on, and is not slow yet.
        """
        spans = len(records)
        if self._extent == "all" and self._budget.take(self._trace_id, spans, self._limit):
            return Sorted(emitted=list(records))
        found = Sorted()
        for record in records:
            unit = self._unit(record)
            if self._extent == "compile":
                is_whole = False
            elif unit.failure is not None:
                is_whole = True
            elif self._extent == "all":
                is_whole = False
            else:
                is_whole = (unit.end_ns or now_ns) - unit.start_ns >= self._slow_ns
                if not is_whole and may_wait and not unit.end_ns:
                    found.kept.append(record)
                    continue
            (found.emitted if is_whole or unit is record else found.folded).append(record)
        if self._extent != "all" and not self._budget.take(
            self._trace_id, len(found.emitted), self._limit
        ):
            self._fold_more(found)
        return found

    def _fold_more(self, found: Sorted) -> None:
        """Let only units have spans, and what is in a unit that failed."""
        emitted, found.emitted = found.emitted, []
        for record in emitted:
            unit = self._unit(record)
            is_whole = unit is record or unit.failure is not None
            (found.emitted if is_whole else found.folded).append(record)

    def fold(self, records: Sequence[Record]) -> None:
        """Sum up records that get no spans, for the units that they belong to."""
        for record in records:
            unit = self._unit(record)
            self._sums.setdefault(id(unit), _Sum(unit)).add(record)

    def tell(self, records: Sequence[Record]) -> None:
        """Have the spans of finished units say what was folded into them.

        Args:
            records: What is about to get spans.
        """
        if not self._sums:
            return
        for record in records:
            total = self._sums.pop(id(record), None) if record.end_ns else None
            if total is not None:
                total.tell()

    def _unit(self, record: Record) -> Record:
        while True:
            parent = record.parent
            if parent is None or record is self._root or record.scope_kind in _UNIT_KINDS:
                return record
            record = parent


class _Sum:
    """What was folded into one unit."""

    def __init__(self, unit: Record) -> None:
        self._unit = unit
        self._passes = 0
        self._own_ns: dict[str, int] = {}
        self._failure: Failure | None = None

    def add(self, record: Record) -> None:
        self._passes += isinstance(record, Frame)
        name = clean_name(record.name)
        if name not in self._own_ns and len(self._own_ns) >= _MAX_NAMES:
            name = _OTHER
        own_ns = max(record.end_ns - record.start_ns - record.children_ns, 0)
        self._own_ns[name] = self._own_ns.get(name, 0) + own_ns
        if record.failure is not None and not record.failure.origin:
            self._failure = record.failure

    def tell(self) -> None:
        unit = self._unit
        costliest = sorted(self._own_ns.items(), key=lambda item: -item[1])[:_COSTLIEST]
        unit.set_attribute(semconv.TILELANG_FOLDED_PASSES, self._passes)
        unit.set_attribute(semconv.TILELANG_FOLDED_NAMES, [name for name, _ in costliest])
        unit.set_attribute(semconv.TILELANG_FOLDED_DURATIONS, [ns / 1e9 for _, ns in costliest])
        ended = unit.failure
        if ended is not None and ended.origin and self._failure is not None:
            # The span that would have carried the exception is not there.
            unit.failure = Failure(
                ended.type,
                self._failure.message,
                self._failure.stacktrace,
                ended.origin,
                is_carrier=True,
            )
