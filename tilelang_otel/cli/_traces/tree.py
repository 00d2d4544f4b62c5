"""Spans put together into traces: who is whose child, and whose time is whose.

Owns the tree, self times and what no child explains; adding them up by name is up
to ``_traces.slowest``. It copes with whatever a file may hold: parents that are
missing, parents that are their own descendants, children that overlap or outlive
their parent, trees of any depth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilelang_otel import semconv
from tilelang_otel.cli._traces.folded import Folded, read_folded
from tilelang_otel.cli._traces.otlp_json import Span

__all__ = ["Node", "Trace", "build_traces"]

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
    folded: Folded | None = None
    """What ran in it and has no spans."""

    @property
    def is_container(self) -> bool:
        """Whether its own time is nobody's work: it names what children do."""
        attributes = self.span.attributes
        if any(name in attributes for name in _WORK_ATTRIBUTES):
            return False
        if self.folded is not None:
            return True
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
            # Whatever else failed, the process went on after it.
            if node.span.attributes.get(semconv.ERROR_TYPE) == semconv.ERROR_TYPE_PROCESS_DIED:
                return node
        for node in alone:
            if any(event.name == semconv.EXCEPTION_EVENT for event in node.span.events):
                return node
        return alone[0] if alone else None


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
    nodes = {
        span.span_id: Node(span, folded=read_folded(span)) for span in sorted(spans, key=_start)
    }
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
