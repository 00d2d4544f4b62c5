"""What stands in each line of a trace's tree, before anything is cut to a width.

Owns which spans are shown, and what is said beside their names and below them.
Failures are put into words by ``_drawing.failures``. Widths, columns and colours are
up to ``_drawing.tree``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tilelang_otel import semconv
from tilelang_otel.cli._drawing.failures import describe_error, tell_error
from tilelang_otel.cli._drawing.text import Glyphs, clean, count, duration
from tilelang_otel.cli._traces.slowest import FOLDED, NOT_TRACED
from tilelang_otel.cli._traces.tree import Node, Trace

__all__ = ["Hidden", "Row", "find_hidden", "tree_rows"]

# How far up it is looked whether a note was already given.
_NOTE_ANCESTORS = 16

_INHERITED = (
    semconv.TVM_TARGET_KIND,
    semconv.TVM_TARGET_ARCH,
    semconv.TILELANG_KERNEL_NAME,
    semconv.TILELANG_EXECUTION_BACKEND,
    semconv.TILELANG_STAGE,
)


@dataclass(slots=True)
class Row:
    """One line, and what is told below it."""

    kind: Literal["container", "work", "remark"]
    prefix: str
    name: str
    notes: str = ""
    is_error: bool = False
    total_ns: int | None = None
    self_ns: int | None = None
    """None where own time is nobody's work."""
    intervals: Sequence[tuple[int, int]] = ()
    details: str = ""
    message: str = ""
    message_prefix: str = ""


@dataclass(frozen=True, slots=True)
class Hidden:
    """The spans that are too short to be shown."""

    nodes: frozenset[Node]
    duration_ns: int
    """How long they took, not counting those inside another hidden one."""


def find_hidden(trace: Trace, min_duration_ns: int) -> Hidden:
    """Find the spans to leave out.

    Args:
        trace: What is shown.
        min_duration_ns: What is shorter is left out, unless it failed or
            something below it stays.
    """
    if min_duration_ns <= 0:
        return Hidden(frozenset(), 0)
    kept: set[Node] = set()
    for node in reversed(trace.nodes):
        span = node.span
        if span.duration_ns >= min_duration_ns or span.is_error or node in kept:
            kept.add(node)
            if node.parent is not None:
                kept.add(node.parent)
    hidden = frozenset(node for node in trace.nodes if node not in kept)
    topmost = (node for node in hidden if node.parent is None or node.parent in kept)
    return Hidden(hidden, sum(node.span.duration_ns for node in topmost))


def tree_rows(
    trace: Trace, hidden: Hidden, *, min_gap_ns: int, max_indent: int, glyphs: Glyphs
) -> Iterator[Row]:
    """Yield the lines of a tree, parents before children.

    Args:
        trace: What to show.
        hidden: The spans to leave out.
        min_gap_ns: Shorter times that no child explains are not mentioned.
        max_indent: Levels below this one are not indented further.
        glyphs: What to draw with.
    """
    phase = ""
    marks_orphans = not all(root.is_orphan for root in trace.roots)
    waiting: list[tuple[Node | Row, str, bool]] = [
        (root, "", True) for root in reversed(_visible(trace.roots, hidden))
    ]
    while waiting:
        item, indent, is_last = waiting.pop()
        if isinstance(item, Row):
            item.prefix = indent + (glyphs.last if is_last else glyphs.branch)
            yield item
            continue
        row, below = _span_row(item, indent, is_last, max_indent, glyphs)
        entries: list[Node | Row] = [*_visible(item.children, hidden)]
        gap_ns = item.self_ns
        if entries and item.is_container and gap_ns >= min_gap_ns:
            name = NOT_TRACED if item.folded is None else FOLDED
            name = _with_depth(name, item.depth + 1, max_indent)
            entries.append(Row("remark", "", name, "", False, gap_ns, None, item.gaps))
        row.message_prefix = below + (glyphs.down if entries else glyphs.blank)
        remarks = _notes(item, phase, glyphs)
        phase = str(item.span.attributes.get(semconv.TVM_PASS_PHASE, phase))
        if marks_orphans and item.is_orphan:
            remarks.append("parent missing")
        row.notes = " ".join(remarks)
        yield row
        last = len(entries) - 1
        waiting.extend((entries[i], below, i == last) for i in range(last, -1, -1))


def _visible(nodes: Sequence[Node], hidden: Hidden) -> list[Node]:
    return [node for node in nodes if node not in hidden.nodes]


def _span_row(
    node: Node, indent: str, is_last: bool, max_indent: int, glyphs: Glyphs
) -> tuple[Row, str]:
    """Return the line of a span, and the indent of what is below it."""
    prefix = below = indent
    if node.depth:
        prefix += glyphs.last if is_last else glyphs.branch
        if node.depth < max_indent:
            below += glyphs.blank if is_last else glyphs.down
    row = Row(
        kind="container" if node.is_container else "work",
        prefix=prefix,
        name=_with_depth(clean(node.span.name, glyphs), node.depth, max_indent),
        is_error=node.span.is_error,
        total_ns=node.span.duration_ns,
        self_ns=None if node.is_container else node.self_ns,
        intervals=((node.span.start_ns, node.span.end_ns),),
        details=_details(node, glyphs),
        message=_message(node),
    )
    return row, below


def _with_depth(name: str, depth: int, max_indent: int) -> str:
    # The indent no longer tells how deep it is.
    return f"({depth}) {name}" if depth > max_indent else name


def _message(node: Node) -> str:
    if not node.span.is_error:
        return ""
    kind, _ = describe_error(node.span)
    for child in node.children:
        # What came from below is told there, unless it arrived as something else.
        if child.span.is_error and describe_error(child.span)[0] == kind:
            return ""
    return tell_error(node.span)


def _details(node: Node, glyphs: Glyphs) -> str:
    """Say what was folded into a span."""
    folded = node.folded
    if folded is None:
        return ""
    what = f"{count(folded.passes, 'pass', 'passes')} folded" if folded.passes else "folded"
    costliest = (f"{name} {duration(ns, glyphs)}" for name, ns in folded.costliest)
    return "; longest: ".join(filter(None, (what, ", ".join(costliest))))


def _notes(node: Node, phase: str, glyphs: Glyphs) -> list[str]:
    """Return what is worth saying beside a span's name and was not said above it."""
    span = node.span
    attributes = span.attributes
    found: list[str] = []
    own_phase = attributes.get(semconv.TVM_PASS_PHASE)
    if own_phase is not None and own_phase != phase:
        found.append(f"[{own_phase}]")
    found.extend(
        str(attributes[key])
        for key in _INHERITED
        if key in attributes and not _is_said(node, key, attributes[key])
    )
    if semconv.TILELANG_CACHE_RESULT in attributes:
        found.append(f"cache={attributes[semconv.TILELANG_CACHE_RESULT]}")
    if semconv.TILELANG_COMPILE_TRIGGER in attributes:
        found.append(f"trigger={attributes[semconv.TILELANG_COMPILE_TRIGGER]}")
    if attributes.get(semconv.PROCESS_EXIT_CODE):
        found.append(f"exit code {attributes[semconv.PROCESS_EXIT_CODE]}")
    size_bytes = attributes.get(semconv.TILELANG_BINARY_SIZE)
    if isinstance(size_bytes, int):
        found.append(f"{size_bytes / 1000:,.0f} kB")
    if attributes.get(semconv.TVM_PASS_END_ESTIMATED):
        found.append("end not seen")
    return [clean(note, glyphs) for note in found]


def _is_said(node: Node, key: str, value: Any) -> bool:
    if str(value) in node.span.name.split():
        return True
    ancestor = node.parent
    for _ in range(_NOTE_ANCESTORS):
        if ancestor is None:
            return False
        if ancestor.span.attributes.get(key) == value:
            return True
        ancestor = ancestor.parent
    return False
