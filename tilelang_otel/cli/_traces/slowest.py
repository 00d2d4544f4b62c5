"""Self times of traces, added up by name.

What self time is, is up to ``_traces.tree``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilelang_otel import semconv
from tilelang_otel.cli._traces.tree import Node, Trace

__all__ = ["FOLDED", "NOT_TRACED", "NO_WORK", "Slowest", "slowest"]

NOT_TRACED: Final = "(not traced)"
"""What the time of a container is called that none of its children explains."""

FOLDED: Final = "(folded)"
"""What the time of a compile is called whose passes have no spans, as far as nothing
says what took it."""

NO_WORK: Final = (NOT_TRACED, FOLDED)
"""What is no name of a span."""


@dataclass(frozen=True, slots=True)
class Slowest:
    """All spans of one name, taken together. Times are nanoseconds of self time."""

    name: str
    count: int
    """How many spans, and how many compiles that it was folded into."""
    self_ns: int
    max_ns: int
    share: float
    """Of the self times of all spans, from 0 to 1."""
    errors: int


def slowest(traces: Sequence[Trace], *, by_phase: bool = False) -> list[Slowest]:
    """Add self times up by name.

    Self times of containers count as ``(not traced)``. What was folded into a
    compile counts by its name, the rest of that compile's own time as ``(folded)``.
    Where nothing overlaps, all self times together are the duration of the traces.

    Args:
        traces: What to look at.
        by_phase: Take all passes of a phase together.

    Returns:
        One entry a name, the slowest first.
    """
    groups: dict[str, _Sum] = {}
    for trace in traces:
        for node in trace.nodes:
            is_error = node.span.is_error
            own_ns = node.self_ns
            for name, ns in node.folded.costliest if node.folded is not None else ():
                groups.setdefault(name, _Sum()).add(ns, is_error=False)
                own_ns -= ns
            groups.setdefault(_group(node, by_phase), _Sum()).add(max(own_ns, 0), is_error)
    all_ns = sum(group.self_ns for group in groups.values())
    entries = [
        Slowest(
            name=name,
            count=group.count,
            self_ns=group.self_ns,
            max_ns=group.max_ns,
            share=group.self_ns / all_ns if all_ns else 0.0,
            errors=group.errors,
        )
        for name, group in groups.items()
    ]
    return sorted(entries, key=lambda entry: (-entry.self_ns, entry.name))


class _Sum:
    """What has been added up under one name."""

    def __init__(self) -> None:
        self.count = self.self_ns = self.max_ns = self.errors = 0

    def add(self, self_ns: int, is_error: bool) -> None:
        self.count += 1
        self.self_ns += self_ns
        self.max_ns = max(self.max_ns, self_ns)
        self.errors += is_error


def _group(node: Node, by_phase: bool) -> str:
    if node.is_container:
        return NOT_TRACED if node.folded is None else FOLDED
    attributes = node.span.attributes
    if by_phase and semconv.TVM_PASS_NAME in attributes:
        phase = attributes.get(semconv.TVM_PASS_PHASE)
        return "passes" if phase is None else f"{phase} passes"
    return node.span.name
