"""Spans put together into traces: who is whose child, and whose time is whose.

Owns the tree, self times and what no child explains. It copes with whatever a
file may hold: parents that are missing, parents that are their own descendants,
children that overlap or outlive their parent, trees of any depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilelang_otel import semconv
from tilelang_otel.cli._traces.otlp_json import Span

__all__ = ["NOT_TRACED", "Node", "Slowest", "Trace", "build_traces", "slowest"]

NOT_TRACED: Final = "(not traced)"
"""What the time of a container is called that none of its children explains."""

_WORK_ATTRIBUTES = (
    semconv.TVM_PASS_NAME,
    semconv.TILELANG_CODEGEN_NAME,
    semconv.PROCESS_EXECUTABLE_NAME,
)
_KNOWN = semconv.CONTAINER_SPANS | semconv.WORK_SPANS


@dataclass(eq=False, slots=True)
class Node:
    """A span in its tree."""

    span: Span
    parent: Node | None = field(default=None, repr=False)
    children: list[Node] = field(default_factory=list["Node"], repr=False)
    """In order of their start."""
    depth: int = 0
    is_orphan: bool = False
    """A root only because its parent is in no file, or is its own descendant."""
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]], repr=False)
    """The times, from and to, at which no child was running."""
    self_ns: int = 0
    """How long no child was running."""

    @property
    def is_container(self) -> bool:
        """Whether its own time is nobody's work: it names what children do."""
        attributes = self.span.attributes
        if any(name in attributes for name in _WORK_ATTRIBUTES):
            return False
        name = self.span.name
        kind = name if name in _KNOWN else name.split(" ", 1)[0]
        if kind in _KNOWN:
            return kind in semconv.CONTAINER_SPANS
        return bool(self.children)


@dataclass(eq=False, slots=True)
class Trace:
    """All spans of one trace."""

    trace_id: str
    nodes: list[Node]
    """Every span, parents before their children."""

    @property
    def roots(self) -> list[Node]:
        """The spans at the top, in order of their start; at least one."""
        return [node for node in self.nodes if node.parent is None]

    @property
    def start_ns(self) -> int:
        """When the first span started."""
        return min(node.span.start_ns for node in self.nodes)

    @property
    def end_ns(self) -> int:
        """When the last span ended."""
        return max(node.span.end_ns for node in self.nodes)

    @property
    def duration_ns(self) -> int:
        """Nanoseconds from the first start to the last end."""
        return self.end_ns - self.start_ns

    @property
    def name(self) -> str:
        """The name of its first root."""
        return self.nodes[0].span.name

    @property
    def title(self) -> str:
        """The name, and how many other roots there are."""
        more = len(self.roots) - 1
        return f"{self.name} and {more} more root{'' if more == 1 else 's'}" if more else self.name

    @property
    def service(self) -> str:
        """``service.name`` of its first root, empty if unknown."""
        return str(self.nodes[0].span.resource.get("service.name") or "")

    @property
    def errors(self) -> list[Node]:
        """The spans that failed."""
        return [node for node in self.nodes if node.span.is_error]

    @property
    def culprit(self) -> Node | None:
        """The span to blame: the first one that failed by itself, not through a child."""
        failed = self.errors
        alone = [n for n in failed if not any(child.span.is_error for child in n.children)]
        for node in alone:
            if any(event.name == semconv.EXCEPTION_EVENT for event in node.span.events):
                return node
        return alone[0] if alone else None


@dataclass(frozen=True, slots=True)
class Slowest:
    """All spans of one name, taken together. Times are nanoseconds of self time."""

    name: str
    count: int
    self_ns: int
    max_ns: int
    share: float
    """Of the self times of all spans, from 0 to 1."""
    errors: int


def build_traces(spans: Iterable[Span]) -> list[Trace]:
    """Put spans together.

    Args:
        spans: In any order; no two with the same trace and span id.

    Returns:
        The traces in order of their start.
    """
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    traces = [_build_trace(trace_id, members) for trace_id, members in by_trace.items()]
    return sorted(traces, key=lambda trace: (trace.nodes[0].span.start_ns, trace.trace_id))


def _build_trace(trace_id: str, spans: list[Span]) -> Trace:
    nodes = {span.span_id: Node(span) for span in sorted(spans, key=_start)}
    roots: list[Node] = []
    for node in nodes.values():
        parent = nodes.get(node.span.parent_id)
        if parent is None:
            node.is_orphan = bool(node.span.parent_id)
            roots.append(node)
        else:
            node.parent = parent
            parent.children.append(node)
    ordered: list[Node] = []
    placed: set[str] = set()
    for root in roots:
        _place(root, ordered, placed)
    for node in nodes.values():
        if node.span.span_id not in placed:  # no root leads there: a cycle does
            root = _cut_cycle(node)
            _place(root, ordered, placed)
    for node in ordered:
        _measure(node)
    return Trace(trace_id, ordered)


def _start(span: Span) -> tuple[int, int, str]:
    # Of two that start together, the longer one first: it is more likely around the other.
    return (span.start_ns, -span.end_ns, span.span_id)


def _cut_cycle(node: Node) -> Node:
    """Make a root of a span that is its own ancestor, and ``node``'s."""
    passed: set[Node] = set()
    while node.parent is not None and node not in passed:
        passed.add(node)
        node = node.parent
    if node.parent is not None:
        node.parent.children.remove(node)
    node.parent = None
    node.is_orphan = True
    return node


def _place(root: Node, ordered: list[Node], placed: set[str]) -> None:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        placed.add(node.span.span_id)
        node.depth = node.parent.depth + 1 if node.parent is not None else 0
        ordered.append(node)
        waiting.extend(reversed(node.children))


def _measure(node: Node) -> None:
    covered_ns = node.span.start_ns
    for child in node.children:
        start_ns = min(child.span.start_ns, node.span.end_ns)
        if start_ns > covered_ns:
            node.gaps.append((covered_ns, start_ns))
        covered_ns = max(covered_ns, min(child.span.end_ns, node.span.end_ns))
    if node.span.end_ns > covered_ns:
        node.gaps.append((covered_ns, node.span.end_ns))
    node.self_ns = sum(end - start for start, end in node.gaps)


def slowest(traces: Sequence[Trace], *, by_phase: bool = False) -> list[Slowest]:
    """Add self times up by name.

    Self times of containers count as ``(not traced)``. Where nothing overlaps,
    all self times together are the duration of the traces.

    Args:
        traces: What to look at.
        by_phase: Take all passes of a phase together.

    Returns:
        One entry a name, the slowest first.
    """
    groups: dict[str, list[Node]] = {}
    for trace in traces:
        for node in trace.nodes:
            groups.setdefault(_group(node, by_phase), []).append(node)
    all_ns = sum(node.self_ns for nodes in groups.values() for node in nodes)
    entries: list[Slowest] = []
    for name, nodes in groups.items():
        self_ns = sum(node.self_ns for node in nodes)
        entries.append(
            Slowest(
                name=name,
                count=len(nodes),
                self_ns=self_ns,
                max_ns=max(node.self_ns for node in nodes),
                share=self_ns / all_ns if all_ns else 0.0,
                errors=sum(node.span.is_error for node in nodes),
            )
        )
    return sorted(entries, key=lambda entry: (-entry.self_ns, entry.name))


def _group(node: Node, by_phase: bool) -> str:
    if node.is_container:
        return NOT_TRACED
    attributes = node.span.attributes
    if by_phase and semconv.TVM_PASS_NAME in attributes:
        phase = attributes.get(semconv.TVM_PASS_PHASE)
        return "passes" if phase is None else f"{phase} passes"
    return node.span.name
