"""Traces as text: a heading, a tree with times and a bar, the slowest names.

Owns what a trace looks like in a terminal, and is shared by ``show``, ``run``
and ``demo``. What stands in the tree is up to ``_rows``, and what the numbers
mean to ``_trace_tree``.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from tilelang_otel.cli._rows import Row, describe_error, find_hidden, tree_rows
from tilelang_otel.cli._text import (
    ASCII,
    UNICODE,
    Glyphs,
    bar,
    clean,
    duration,
    fit,
    milliseconds,
    wrap,
)
from tilelang_otel.cli._trace_tree import NOT_TRACED, Trace, slowest

__all__ = ["render_traces"]

_PLAIN = Style()
_STRONG = Style(bold=True)
_DIM = Style(dim=True)
_FAILED = Style(color="red", bold=True)
_MESSAGE = Style(color="red")
_HOT = Style(color="yellow", bold=True)
_BARS = {"container": Style(color="blue"), "work": Style(color="cyan"), "remark": _DIM}

# Own time that is worth a second look, as a part of the trace's duration.
_HOT_SHARE = 0.1
_MESSAGE_LINES = 4
_MIN_BAR_WIDTH = 14
_MAX_BAR_WIDTH = 40
_MIN_NAME_WIDTH = 8

_Line = list[Segment]


class _Lines:
    """Finished lines; laid out by rich, many of them would take far longer."""

    def __init__(self, lines: Iterable[_Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from line
            yield Segment.line()


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
        console.print(_Lines(_overview_lines(traces, console.width, glyphs)), crop=False)
    for trace in traces:
        painter = _Painter(trace, console.width, glyphs, min_duration_ns)
        console.print(_Lines(painter.lines()), crop=False)
    if top > 0 and traces:
        console.print(_Lines(_slowest_lines(traces, top, console.width, glyphs)), crop=False)


class _Painter:
    """Draws one trace."""

    def __init__(self, trace: Trace, width: int, glyphs: Glyphs, min_duration_ns: int) -> None:
        self._trace = trace
        self._width = width
        self._glyphs = glyphs
        self._start_ns = trace.start_ns
        self._duration_ns = trace.duration_ns
        self._decimals = _decimals(self._duration_ns)
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

    def lines(self) -> Iterator[_Line]:
        """Yield the lines from the heading to the last span."""
        yield from self._heading()
        yield []
        heads = ("total ms", "self ms")[: self._numbers]
        columns = "".join(f" {head:>{self._number_width}}" for head in heads)
        if self._bar_width:
            columns += "  timeline"
        yield [Segment(" " * self._name_width + columns, _DIM)]
        for row in self._rows:
            yield self._row(row)
            yield from self._message(row)
        if self._hidden.nodes:
            yield [
                Segment(
                    f"{_count(len(self._hidden.nodes), 'span')} shorter than "
                    f"{self._min_duration_ns / 1e6:g} ms hidden, "
                    f"{duration(self._hidden.duration_ns, self._glyphs)} in all",
                    _DIM,
                )
            ]
        yield []

    def _heading(self) -> Iterator[_Line]:
        trace, glyphs = self._trace, self._glyphs
        errors = len(trace.errors)
        rest: _Line = [
            Segment(f"  {duration(self._duration_ns, glyphs)}", _STRONG),
            Segment(f"  {_count(len(trace.nodes), 'span')}"),
            Segment(f"  {_count(errors, 'error')}", _FAILED if errors else _DIM),
        ]
        name = clean(trace.title, glyphs)
        room = self._width - sum(len(segment.text) for segment in rest)
        service = f"  service {clean(trace.service, glyphs)}"
        if trace.service and room >= min(len(name), 32) + len(service):
            rest.append(Segment(service, _DIM))
            room -= len(service)
        room = max(room, _MIN_NAME_WIDTH)
        name = fit(name, room, glyphs) if len(name) > room else name
        yield [Segment(name, _FAILED if errors else _STRONG), *rest]
        started = datetime.datetime.fromtimestamp(self._start_ns // 10**9, datetime.timezone.utc)
        yield [
            Segment(f"trace {clean(trace.trace_id, glyphs)}  {started:%Y-%m-%d %H:%M:%S} UTC", _DIM)
        ]
        yield from self._orphans()
        yield from self._summary()
        culprit = trace.culprit
        if culprit is not None:
            what = ": ".join(part for part in describe_error(culprit.span) if part)
            text = f"failed in {culprit.span.name}" + (f": {what}" if what else "")
            for line in wrap(text, self._width, 2, glyphs):
                yield [Segment(line, _FAILED)]

    def _summary(self) -> Iterator[_Line]:
        """Say what the time went to, all passes of a phase taken together."""
        entries = slowest([self._trace], by_phase=True)
        if len(entries) < 2:
            return
        line = ""
        for entry in entries:
            if entry.share < 0.01 and entry.name != NOT_TRACED:
                continue
            part = f"{clean(entry.name, self._glyphs)} {entry.share:.0%}"
            if line and len(line) + len(part) + 2 >= self._width:
                yield [Segment(f"{line},")]
                line = part
            else:
                line = f"{line}, {part}" if line else part
        yield [Segment(line)]

    def _orphans(self) -> Iterator[_Line]:
        known = {node.span.span_id for node in self._trace.nodes}
        orphans = [node for node in self._trace.nodes if node.is_orphan]
        missing = [node for node in orphans if node.span.parent_id not in known]
        parents = {node.span.parent_id for node in missing}
        who = "its parent" if len(missing) == 1 else f"the parent of {len(missing)} roots"
        if len(parents) == 1:
            text = f"{who}, span {clean(parents.pop(), self._glyphs)}, is not in the file"
            yield [Segment(text, _DIM)]
        elif missing:
            yield [Segment(f"{len(missing)} roots have parents that are not in the file", _DIM)]
        looped = len(orphans) - len(missing)
        if looped:
            yield [Segment(f"{_count(looped, 'root')} with a parent among its own children", _DIM)]

    def _row(self, row: Row) -> _Line:
        glyphs = self._glyphs
        line: _Line = []
        room = self._name_width - len(row.prefix)
        style = _FAILED if row.is_error else _DIM if row.kind == "remark" else _PLAIN
        if row.prefix:
            line.append(Segment(row.prefix, _DIM))
        if row.notes and room - len(row.name) > min(len(row.notes), 6):
            line.append(Segment(f"{row.name} ", style))
            line.append(Segment(fit(row.notes, room - len(row.name) - 1, glyphs), _DIM))
        else:
            line.append(Segment(fit(row.name, room, glyphs), style))
        line.append(Segment(self._number(row.total_ns), _DIM if row.kind == "remark" else _PLAIN))
        if self._numbers == 2:
            is_hot = (row.self_ns or 0) >= max(self._duration_ns * _HOT_SHARE, 1)
            line.append(Segment(self._number(row.self_ns), _HOT if is_hot else _PLAIN))
        if self._bar_width:
            drawn = bar(row.intervals, self._start_ns, self._duration_ns, self._bar_width, glyphs)
            line.append(
                Segment(f"  {drawn.rstrip()}", _MESSAGE if row.is_error else _BARS[row.kind])
            )
        return line

    def _number(self, ns: int | None) -> str:
        text = "" if ns is None else milliseconds(ns, self._decimals)
        return f" {text:>{self._number_width}}"

    def _message(self, row: Row) -> Iterator[_Line]:
        if not row.message:
            return
        room = max(self._width - len(row.message_prefix), 20)
        for text in wrap(row.message, room, _MESSAGE_LINES, self._glyphs):
            yield [Segment(row.message_prefix, _DIM), Segment(text, _MESSAGE)]


def _overview_lines(traces: Sequence[Trace], width: int, glyphs: Glyphs) -> Iterator[_Line]:
    yield [Segment(f"{len(traces):,} traces", _STRONG)]
    name_width = max(min(max(len(trace.title) for trace in traces), width - 50), 12)
    for trace in traces:
        errors = len(trace.errors)
        yield [
            Segment(f"{clean(trace.trace_id, glyphs)[:12]:<12}  ", _DIM),
            Segment(fit(clean(trace.title, glyphs), name_width, glyphs)),
            Segment(f" {duration(trace.duration_ns, glyphs):>11}"),
            Segment(f" {_count(len(trace.nodes), 'span'):>12}"),
            Segment(f"  {_count(errors, 'error')}", _FAILED if errors else _DIM),
        ]
    yield []


def _slowest_lines(
    traces: Sequence[Trace], top: int, width: int, glyphs: Glyphs
) -> Iterator[_Line]:
    entries = slowest(traces)
    shown = entries[:top]
    decimals = _decimals(sum(entry.self_ns for entry in entries))
    title = "slowest by self time"
    widest = max(len(title), *(len(entry.name) for entry in shown))
    name_width = max(min(widest, width - 46), 12)
    title = title if len(title) <= name_width else "slowest"
    has_all = width >= name_width + 34
    bar_width = min(width - name_width - 36, 24) if has_all else 0
    head = f"{title:<{name_width}} {'count':>6} {'self ms':>9} {'share':>7}"
    yield [Segment(head + (f" {'max ms':>9}" if has_all else ""), _DIM)]
    for entry in shown:
        is_work = entry.name != NOT_TRACED
        style = _FAILED if entry.errors and is_work else _PLAIN if is_work else _DIM
        numbers = (
            f" {entry.count:>6,} {milliseconds(entry.self_ns, decimals):>9} {entry.share:>7.1%}"
        )
        if has_all:
            numbers += f" {milliseconds(entry.max_ns, decimals):>9}"
        line = [
            Segment(fit(clean(entry.name, glyphs), name_width, glyphs), style),
            Segment(numbers, _PLAIN if is_work else _DIM),
        ]
        if bar_width >= 4:
            drawn = bar([(0, entry.self_ns)], 0, entries[0].self_ns, bar_width, glyphs)
            line.append(Segment(f"  {drawn.rstrip()}", _BARS["work" if is_work else "remark"]))
        yield line
    rest = entries[top:]
    if rest:
        share = sum(entry.share for entry in rest)
        yield [Segment(f"{_count(len(rest), 'more name')}, {share:.1%} of the time", _DIM)]


def _decimals(duration_ns: int) -> int:
    """Return how many decimals of a millisecond are worth showing."""
    if duration_ns < 10_000_000:
        return 3
    return 2 if duration_ns < 1_000_000_000 else 1


def _count(number: int, noun: str) -> str:
    if number == 0:
        return f"no {noun}s"
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
