"""Spans as plain data, and tracer providers, clocks and ids that tests know.

Owns what a span looks like to a test. Which spans there are to be, only the
test says.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Sampler

from tests.support.received import ReceivedSpan

__all__ = [
    "CountingIds",
    "SpanMemory",
    "SpanTree",
    "Ticks",
    "assert_sound",
    "covered_fraction",
    "outline",
    "trees",
]

AnySpan = ReadableSpan | ReceivedSpan


@dataclass(frozen=True)
class SpanTree:
    """One span and what is below it, to compare with ``==``."""

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those that the test asked for, and that the span has."""
    children: Sequence[SpanTree] = ()
    """In start order."""
    status: str = "UNSET"
    message: str = ""
    """The status description."""
    events: Sequence[str] = ()
    """Names of the events."""
    times: tuple[int, int] | None = None
    """Start and end, where the test asked for them."""


@dataclass(frozen=True)
class _Plain:
    """What the two kinds of span have in common."""

    id: str
    parent: str
    trace: str
    name: str
    attributes: Mapping[str, Any]
    status: str
    message: str
    events: tuple[str, ...]
    start_ns: int
    end_ns: int


def trees(spans: Iterable[AnySpan], *attributes: str, with_times: bool = False) -> list[SpanTree]:
    """Return the spans as trees, one for each span whose parent is not among them.

    Args:
        spans: Finished spans, in any order.
        *attributes: Names of the attributes to show.
        with_times: Whether to show start and end.
    """
    children = _by_parent(spans)

    def tree(span: _Plain) -> SpanTree:
        return SpanTree(
            span.name,
            {key: span.attributes[key] for key in attributes if key in span.attributes},
            tuple(tree(child) for child in children.get(span.id, ())),
            span.status,
            span.message,
            span.events,
            (span.start_ns, span.end_ns) if with_times else None,
        )

    return [tree(span) for span in children.get("", ())]


def outline(spans: Iterable[AnySpan], *attributes: str) -> list[str]:
    """Return the spans as lines: name, ``!`` on errors, ``*`` where an exception is.

    Children are indented by two spaces, in start order.

    Args:
        spans: Finished spans, in any order.
        *attributes: Names of attributes whose values follow the name.
    """
    children = _by_parent(spans)
    lines: list[str] = []

    def add(span: _Plain, indent: str) -> None:
        mark = "!" if span.status == "ERROR" else ""
        mark += "*" * span.events.count("exception")
        values = [str(span.attributes[key]) for key in attributes if key in span.attributes]
        lines.append(" ".join([f"{indent}{span.name}{mark}", *values]))
        for child in children.get(span.id, ()):
            add(child, indent + "  ")

    for root in children.get("", ()):
        add(root, "")
    return lines


def assert_sound(spans: Iterable[AnySpan]) -> None:
    """Assert what is true of all spans, whatever was compiled.

    Times are integers, no duration is negative, no span came twice, and
    children lie within their parents.
    """
    plain = [_plain(span) for span in spans]
    by_id = {span.id: span for span in plain}
    assert len(by_id) == len(plain), "a span was exported twice"
    for span in plain:
        assert type(span.start_ns) is int
        assert type(span.end_ns) is int
        assert span.start_ns <= span.end_ns, f"{span.name} ends before it starts"
        parent = by_id.get(span.parent)
        if parent is not None:
            assert parent.trace == span.trace, f"{span.name} left the trace of {parent.name}"
            assert parent.start_ns <= span.start_ns, f"{span.name} starts before {parent.name}"
            assert span.end_ns <= parent.end_ns, f"{span.name} ends after {parent.name}"


def covered_fraction(root: AnySpan, spans: Iterable[AnySpan]) -> float:
    """Return which part of ``root`` the spans explain, overlaps counted once.

    Args:
        root: The span to be explained.
        spans: The spans that name work; ``root`` itself does not count.
    """
    whole = _plain(root)
    intervals = sorted(
        (max(span.start_ns, whole.start_ns), min(span.end_ns, whole.end_ns))
        for span in map(_plain, spans)
        if span.id != whole.id and span.trace == whole.trace
    )
    covered_ns = 0
    reached_ns = whole.start_ns
    for start_ns, end_ns in intervals:
        covered_ns += max(0, end_ns - max(start_ns, reached_ns))
        reached_ns = max(reached_ns, end_ns)
    return covered_ns / (whole.end_ns - whole.start_ns)


class SpanMemory:
    """A tracer provider of the SDK that keeps its finished spans.

    Args:
        sampler: Which traces to keep; by default all.
    """

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(
            sampler=sampler, id_generator=CountingIds(), shutdown_on_exit=False
        )
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """What has finished so far, in order of its end."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """Return the only finished span of that name."""
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, f"{len(found)} spans named {name!r}: {outline(self.spans)}"
        return found[0]

    def take(self) -> tuple[ReadableSpan, ...]:
        """Return what has finished, and forget it."""
        spans = self.spans
        self._exporter.clear()
        return spans


class CountingIds(IdGenerator):
    """Ids that count up, over all providers, so that they tell which span came first."""

    _ids = itertools.count(1)
    _lock = threading.Lock()

    def generate_span_id(self) -> int:
        """Return the next span id."""
        with self._lock:
            return next(self._ids)

    def generate_trace_id(self) -> int:
        """Return the next trace id."""
        return self.generate_span_id()


class Ticks:
    """A clock: each reading is the next of the times, in nanoseconds.

    Args:
        times: What it shows; by default 0, 1, 2, …
    """

    def __init__(self, times: Iterable[int] | None = None) -> None:
        self._times: Iterator[int] = iter(itertools.count() if times is None else times)
        self.readings = 0

    def __call__(self) -> int:
        """Read the clock."""
        self.readings += 1
        return next(self._times)


def _by_parent(spans: Iterable[AnySpan]) -> dict[str, list[_Plain]]:
    """Group spans by their parent's id; those without a parent here under ``""``."""
    plain = [_plain(span) for span in spans]
    known = {span.id for span in plain}
    grouped: dict[str, list[_Plain]] = {}
    # Ids count up, so they tell the order of spans that start at one time.
    for span in sorted(plain, key=lambda span: (span.start_ns, span.id)):
        grouped.setdefault(span.parent if span.parent in known else "", []).append(span)
    return grouped


def _plain(span: AnySpan) -> _Plain:
    if isinstance(span, ReceivedSpan):
        return _Plain(
            span.span_id,
            span.parent_span_id,
            span.trace_id,
            span.name,
            span.attributes,
            span.status,
            span.status_message,
            tuple(event.name for event in span.events),
            span.start_ns,
            span.end_ns,
        )
    context = span.get_span_context()
    assert context is not None
    assert span.start_time is not None
    assert span.end_time is not None, f"{span.name} has not ended"
    return _Plain(
        f"{context.span_id:016x}",
        "" if span.parent is None else f"{span.parent.span_id:016x}",
        f"{context.trace_id:032x}",
        span.name,
        span.attributes or {},
        span.status.status_code.name,
        span.status.description or "",
        tuple(event.name for event in span.events),
        span.start_time,
        span.end_time,
    )
