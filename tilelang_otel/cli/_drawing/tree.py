"""Traces as text: a heading, a tree with times and a bar, the slowest names.

Owns what a trace looks like in a terminal, and is shared by ``show``, ``run``
and ``demo``. What stands in the tree is up to ``_drawing.rows``, and what the numbers
mean to ``_traces.tree``.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.segment import Segment

from tilelang_otel.cli._drawing.failures import tell_error, where_failed
from tilelang_otel.cli._drawing.lines import (
    BARS,
    DIM,
    FAILED,
    HOT,
    MESSAGE,
    PLAIN,
    STRONG,
    Line,
    Lines,
)
from tilelang_otel.cli._drawing.rows import Row, find_hidden, tree_rows
from tilelang_otel.cli._drawing.tables import overview_lines, slowest_lines
from tilelang_otel.cli._drawing.text import (
    ASCII,
    UNICODE,
    Glyphs,
    bar,
    clean,
    column_decimals,
    count,
    duration,
    fit,
    milliseconds,
    wrap,
)
from tilelang_otel.cli._traces.slowest import NO_WORK, slowest
from tilelang_otel.cli._traces.tree import Trace

__all__ = ["render_traces"]

# Own time that is worth a second look, as a part of the trace's duration.
_HOT_SHARE = 0.1
_MESSAGE_LINES = 4
_MIN_BAR_WIDTH = 14
_MAX_BAR_WIDTH = 40
_MIN_NAME_WIDTH = 8


def render_traces(
    traces: Sequence[Trace],
    console: Console,
    *,
    min_duration_ns: int = 0,
    top: int = 10,
) -> None:
    """Print traces as trees, then the names that took the most time.

    Args:
        traces: In the order to print them.
        console: Where to. Its width decides what there is room for.
        min_duration_ns: Leave out spans that are shorter, unless they failed or
            something longer is below them; how many and how long is said.
        top: How many of the slowest names to list; 0 for none.
    """
    glyphs = UNICODE if console.encoding.lower().startswith("utf") else ASCII
    if len(traces) > 1:
        console.print(Lines(overview_lines(traces, console.width, glyphs)))
    for trace in traces:
        painter = _Painter(trace, console.width, glyphs, min_duration_ns)
        console.print(Lines(painter.lines()))
    if top > 0 and traces:
        console.print(Lines(slowest_lines(traces, top, console.width, glyphs)))


class _Painter:
    """Draws one trace."""

    def __init__(self, trace: Trace, width: int, glyphs: Glyphs, min_duration_ns: int) -> None:
        self._trace = trace
        self._width = width
        self._glyphs = glyphs
        self._start_ns = trace.start_ns
        self._duration_ns = trace.duration_ns
        self._decimals = column_decimals(self._duration_ns)
        self._min_duration_ns = min_duration_ns
        self._hidden = find_hidden(trace, min_duration_ns)
        self._rows = list(
            tree_rows(
                trace,
                self._hidden,
                # Less would show as zero.
                min_gap_ns=max(min_duration_ns, 10 ** (6 - self._decimals)),
                # Further in, names would have no room.
                max_indent=max(4, (width - 34) // 4),
                glyphs=glyphs,
            )
        )
        self._set_columns()

    def _set_columns(self) -> None:
        self._number_width = max(8, len(milliseconds(self._duration_ns, self._decimals)))
        self._numbers = 2 if self._width >= 44 else 1
        free = self._width - self._numbers * (self._number_width + 1)
        needed = max(
            (len(row.prefix) + len(row.name) + len(row.notes) + 1 for row in self._rows),
            default=0,
        )
        if self._width < 60:
            self._bar_width = 0
            self._name_width = max(free, _MIN_NAME_WIDTH)
        else:
            self._name_width = max(min(needed, free - _MIN_BAR_WIDTH - 2), 24)
            self._bar_width = min(free - self._name_width - 2, _MAX_BAR_WIDTH)

    def lines(self) -> Iterator[Line]:
        """Yield the lines from the heading to the last span."""
        yield from self._heading()
        yield []
        heads = ("total ms", "self ms")[: self._numbers]
        columns = "".join(f" {head:>{self._number_width}}" for head in heads)
        if self._bar_width:
            columns += "  timeline"
        yield [Segment(" " * self._name_width + columns, DIM)]
        for row in self._rows:
            yield self._row(row)
            yield from self._message(row)
        if self._hidden.nodes:
            yield [
                Segment(
                    f"{count(len(self._hidden.nodes), 'span')} shorter than "
                    f"{self._min_duration_ns / 1e6:g} ms hidden, "
                    f"{duration(self._hidden.duration_ns, self._glyphs)} in all",
                    DIM,
                )
            ]
        yield []

    def _heading(self) -> Iterator[Line]:
        trace, glyphs = self._trace, self._glyphs
        errors = len(trace.errors)
        rest: Line = [
            Segment(f"  {duration(self._duration_ns, glyphs)}", STRONG),
            Segment(f"  {count(len(trace.nodes), 'span')}"),
            Segment(f"  {count(errors, 'error')}", FAILED if errors else DIM),
        ]
        name = clean(trace.title, glyphs)
        room = self._width - sum(len(segment.text) for segment in rest)
        service = f"  service {clean(trace.service, glyphs)}"
        if trace.service and room >= min(len(name), 32) + len(service):
            rest.append(Segment(service, DIM))
            room -= len(service)
        room = max(room, _MIN_NAME_WIDTH)
        name = fit(name, room, glyphs) if len(name) > room else name
        yield [Segment(name, FAILED if errors else STRONG), *rest]
        started = datetime.datetime.fromtimestamp(self._start_ns // 10**9, datetime.timezone.utc)
        yield [
            Segment(f"trace {clean(trace.trace_id, glyphs)}  {started:%Y-%m-%d %H:%M:%S} UTC", DIM)
        ]
        yield from self._orphans()
        yield from self._summary()
        culprit = trace.culprit
        if culprit is not None:
            text = ": ".join(filter(None, (where_failed(culprit.span), tell_error(culprit.span))))
            for line in wrap(text, self._width, 2, glyphs):
                yield [Segment(line, FAILED)]

    def _summary(self) -> Iterator[Line]:
        """Say what the time went to, all passes of a phase taken together."""
        entries = slowest([self._trace], by_phase=True)
        if len(entries) < 2:
            return
        line = ""
        for entry in entries:
            if entry.share < 0.01 and entry.name not in NO_WORK:
                continue
            part = f"{clean(entry.name, self._glyphs)} {entry.share:.0%}"
            if line and len(line) + len(part) + 2 >= self._width:
                yield [Segment(f"{line},")]
                line = part
            else:
                line = f"{line}, {part}" if line else part
        yield [Segment(line)]

    def _orphans(self) -> Iterator[Line]:
        known = {node.span.span_id for node in self._trace.nodes}
        orphans = [node for node in self._trace.nodes if node.is_orphan]
        missing = [node for node in orphans if node.span.parent_id not in known]
        parents = {node.span.parent_id for node in missing}
        who = "its parent" if len(missing) == 1 else f"the parent of {len(missing)} roots"
        if len(parents) == 1:
            text = f"{who}, span {clean(parents.pop(), self._glyphs)}, is not in the file"
            yield [Segment(text, DIM)]
        elif missing:
            yield [Segment(f"{len(missing)} roots have parents that are not in the file", DIM)]
        looped = len(orphans) - len(missing)
        if looped:
            yield [Segment(f"{count(looped, 'root')} with a parent among its own children", DIM)]

    def _row(self, row: Row) -> Line:
        glyphs = self._glyphs
        line: Line = []
        room = self._name_width - len(row.prefix)
        style = FAILED if row.is_error else DIM if row.kind == "remark" else PLAIN
        if row.prefix:
            line.append(Segment(row.prefix, DIM))
        if row.notes and room - len(row.name) > min(len(row.notes), 6):
            line.append(Segment(f"{row.name} ", style))
            line.append(Segment(fit(row.notes, room - len(row.name) - 1, glyphs), DIM))
        else:
            line.append(Segment(fit(row.name, room, glyphs), style))
        line.append(Segment(self._number(row.total_ns), DIM if row.kind == "remark" else PLAIN))
        if self._numbers == 2 and (row.self_ns is not None or self._bar_width):
            is_hot = (row.self_ns or 0) >= max(self._duration_ns * _HOT_SHARE, 1)
            line.append(Segment(self._number(row.self_ns), HOT if is_hot else PLAIN))
        if self._bar_width:
            drawn = bar(row.intervals, self._start_ns, self._duration_ns, self._bar_width, glyphs)
            line.append(Segment(f"  {drawn.rstrip()}", MESSAGE if row.is_error else BARS[row.kind]))
        return line

    def _number(self, ns: int | None) -> str:
        text = "" if ns is None else milliseconds(ns, self._decimals)
        return f" {text:>{self._number_width}}"

    def _message(self, row: Row) -> Iterator[Line]:
        room = max(self._width - len(row.message_prefix), 20)
        for text in wrap(row.details, room, _MESSAGE_LINES, self._glyphs):
            yield [Segment(row.message_prefix, DIM), Segment(text, DIM)]
        for text in wrap(row.message, room, _MESSAGE_LINES, self._glyphs):
            yield [Segment(row.message_prefix, DIM), Segment(text, MESSAGE)]
