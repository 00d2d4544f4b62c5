"""The tables around the trees: which traces there are, and which names took longest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.segment import Segment

from tilelang_otel.cli._drawing.lines import BARS, DIM, FAILED, PLAIN, STRONG, Line
from tilelang_otel.cli._drawing.text import (
    Glyphs,
    bar,
    clean,
    column_decimals,
    count,
    duration,
    fit,
    milliseconds,
)
from tilelang_otel.cli._traces.slowest import NO_WORK, slowest
from tilelang_otel.cli._traces.tree import Trace

__all__ = ["overview_lines", "slowest_lines"]


def overview_lines(traces: Sequence[Trace], width: int, glyphs: Glyphs) -> Iterator[Line]:
    """Yield a line for each trace."""
    yield [Segment(f"{len(traces):,} traces", STRONG)]
    name_width = max(min(max(len(trace.title) for trace in traces), width - 50), 12)
    for trace in traces:
        errors = len(trace.errors)
        yield [
            Segment(f"{clean(trace.trace_id, glyphs)[:12]:<12}  ", DIM),
            Segment(fit(clean(trace.title, glyphs), name_width, glyphs)),
            Segment(f" {duration(trace.duration_ns, glyphs):>11}"),
            Segment(f" {count(len(trace.nodes), 'span'):>12}"),
            Segment(f"  {count(errors, 'error')}", FAILED if errors else DIM),
        ]
    yield []


def slowest_lines(traces: Sequence[Trace], top: int, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """Yield the ``top`` names with the most self time, and what the others come to."""
    entries = slowest(traces)
    shown = entries[:top]
    decimals = column_decimals(sum(entry.self_ns for entry in entries))
    title = "slowest by self time"
    widest = max(len(title), *(len(entry.name) for entry in shown))
    name_width = max(min(widest, width - 46), 12)
    title = title if len(title) <= name_width else "slowest"
    has_all = width >= name_width + 34
    bar_width = min(width - name_width - 36, 24) if has_all else 0
    head = f"{title:<{name_width}} {'count':>6} {'self ms':>9} {'share':>7}"
    yield [Segment(head + (f" {'max ms':>9}" if has_all else ""), DIM)]
    for entry in shown:
        is_work = entry.name not in NO_WORK
        style = FAILED if entry.errors and is_work else PLAIN if is_work else DIM
        numbers = (
            f" {entry.count:>6,} {milliseconds(entry.self_ns, decimals):>9} {entry.share:>7.1%}"
        )
        if has_all:
            numbers += f" {milliseconds(entry.max_ns, decimals):>9}"
        line = [
            Segment(fit(clean(entry.name, glyphs), name_width, glyphs), style),
            Segment(numbers, PLAIN if is_work else DIM),
        ]
        if bar_width >= 4:
            drawn = bar([(0, entry.self_ns)], 0, entries[0].self_ns, bar_width, glyphs)
            line.append(Segment(f"  {drawn.rstrip()}", BARS["work" if is_work else "remark"]))
        yield line
    rest = entries[top:]
    if rest:
        share = sum(entry.share for entry in rest)
        yield [Segment(f"{count(len(rest), 'more name')}, {share:.1%} of the time", DIM)]
