"""Spans become trees whose times add up, whatever the file holds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.trace_files import EPOCH_NS, error, line, span
from tilelang_otel.cli._traces.file import SpanReader
from tilelang_otel.cli._traces.slowest import slowest
from tilelang_otel.cli._traces.tree import Trace, build_traces


def _traces(*spans: Mapping[str, Any]) -> list[Trace]:
    reader = SpanReader()
    reader.read_lines([line(item) for item in spans], "t.jsonl")
    assert reader.problems == []
    return build_traces(reader.spans)


def _trace(*spans: Mapping[str, Any]) -> Trace:
    (trace,) = _traces(*spans)
    return trace


def _outline(trace: Trace) -> list[tuple[int, str]]:
    return [(node.depth, node.span.name) for node in trace.nodes]


def _self_ms(trace: Trace) -> dict[str, float]:
    return {node.span.name: node.self_ns / 1e6 for node in trace.nodes}


def _pass(number: int, name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    return span(number, name, start, end, attributes={"tvm.pass.name": name}, **more)


def test_spans_in_any_order_give_the_same_tree() -> None:
    """A batch exporter writes children before their parents: the tree does not depend on it."""
    spans = [
        span(1, "compile f", 0, 100),
        span(2, "a", 0, 40, parent=1),
        span(3, "a1", 10, 20, parent=2),
        span(4, "b", 40, 90, parent=1),
        span(5, "b1", 50, 60, parent=4),
        span(6, "b2", 60, 70, parent=4),
    ]
    expected = [(0, "compile f"), (1, "a"), (2, "a1"), (1, "b"), (2, "b1"), (2, "b2")]
    chance = random.Random(1)
    for _ in range(20):
        chance.shuffle(spans)
        assert _outline(_trace(*spans)) == expected


def test_span_whose_parent_is_missing_is_a_root_and_says_so() -> None:
    """A compile below a request that is not in the file is still shown."""
    trace = _trace(span(2, "compile f", 1, 9, parent=77), span(3, "a", 2, 3, parent=2))
    assert _outline(trace) == [(0, "compile f"), (1, "a")]
    assert [node.is_orphan for node in trace.nodes] == [True, False]


@pytest.mark.parametrize(
    "parents",
    [{1: 1}, {1: 2, 2: 1}, {1: 3, 2: 1, 3: 2, 4: 3, 5: 4}, {1: 2, 2: 3, 3: 2, 4: 4, 5: 0}],
    ids=["self", "two", "three with a tail", "tail first and two more roots"],
)
def test_spans_that_are_their_own_ancestors_appear_once_each(parents: dict[int, int]) -> None:
    """A cycle neither hangs the tree nor hides a span."""
    trace = _trace(
        *(span(child, f"s{child}", child, 9, parent=parent) for child, parent in parents.items())
    )
    assert sorted(node.span.name for node in trace.nodes) == [f"s{n}" for n in parents]
    for node in trace.nodes:
        assert node.depth == (0 if node.parent is None else node.parent.depth + 1)


def test_span_below_a_cycle_stays_below_it() -> None:
    """Only the cycle is cut, not what hangs on it, even if that started first."""
    trace = _trace(
        span(1, "tail", 0, 1, parent=2), span(2, "x", 3, 4, parent=3), span(3, "y", 2, 5, parent=2)
    )
    assert _outline(trace) == [(0, "x"), (1, "tail"), (1, "y")]


def test_traces_are_ordered_by_their_start() -> None:
    """Several traces come in the order in which they happened."""
    traces = _traces(
        span(1, "late", 5, 6, trace=1),
        span(1, "early", 1, 9, trace=3),
        span(1, "mid", 2, 3, trace=2),
    )
    assert [trace.name for trace in traces] == ["early", "mid", "late"]


def test_trace_lasts_from_its_first_start_to_its_last_end() -> None:
    """Roots that do not overlap are both within the trace."""
    trace = _trace(span(1, "a", 1, 2), span(2, "b", 4, 8), span(3, "c", 5, 6))
    assert (trace.start_ns - EPOCH_NS, trace.duration_ns) == (1_000_000, 7_000_000)
    assert trace.title == "a and 2 more roots"
    assert trace.service == "demo"


def test_overlapping_children_are_not_counted_twice() -> None:
    """Self time is when no child ran, however many ran at once."""
    trace = _trace(
        span(1, "par_compile", 0, 100),
        span(2, "a", 10, 50, parent=1),
        span(3, "b", 20, 60, parent=1),
        span(4, "inside a", 20, 30, parent=1),
        span(5, "c", 80, 90, parent=1),
    )
    root = trace.nodes[0]
    assert root.self_ns == 40_000_000
    assert [(a - EPOCH_NS, b - EPOCH_NS) for a, b in root.gaps] == [
        (0, 10_000_000),
        (60_000_000, 80_000_000),
        (90_000_000, 100_000_000),
    ]


def test_child_beyond_its_parent_counts_only_inside_it() -> None:
    """Children that start before or outlive their parent never make self time negative."""
    trace = _trace(
        span(1, "p", 10, 20),
        span(2, "before", 0, 12, parent=1),
        span(3, "after", 18, 40, parent=1),
        span(4, "elsewhere", 50, 60, parent=1),
    )
    assert _self_ms(trace)["p"] == 6
    assert min(_self_ms(trace).values()) >= 0


def test_self_times_of_a_serial_compile_add_up_to_its_duration() -> None:
    """Where nothing overlaps, no time is lost and none is counted twice."""
    trace = _trace(
        span(1, "compile f", 0, 100),
        _pass(2, "A", 5, 40, parent=1),
        _pass(3, "B", 10, 30, parent=2),
        _pass(4, "C", 10, 20, parent=3),
        span(5, "codegen llvm", 40, 95, parent=1),
    )
    assert sum(node.self_ns for node in trace.nodes) == trace.duration_ns


def test_very_deep_tree_is_built() -> None:
    """Depth is not limited by Python's stack."""
    trace = _trace(*(span(n, f"s{n}", n, 9_000, parent=n - 1) for n in range(1, 3_001)))
    assert (trace.nodes[-1].depth, trace.nodes[-1].span.name) == (2_999, "s3000")


def test_slowest_adds_up_self_times_by_name() -> None:
    """Same-named passes are one entry; time of containers that nothing explains is another."""
    trace = _trace(
        span(1, "compile f", 0, 100),
        _pass(2, "Simplify", 0, 20, parent=1),
        _pass(3, "LowerIntrin", 20, 50, parent=1),
        _pass(4, "Simplify", 25, 30, parent=3, **error("ValueError", "no")),
        span(5, "lower", 50, 60, parent=1),
        span(6, "codegen llvm", 60, 90, parent=1),
    )
    got = [
        (
            entry.name,
            entry.count,
            entry.self_ns / 1e6,
            entry.max_ns / 1e6,
            entry.share,
            entry.errors,
        )
        for entry in slowest([trace])
    ]
    assert got == [
        ("codegen llvm", 1, 30, 30, 0.30, 0),
        ("LowerIntrin", 1, 25, 25, 0.25, 0),
        ("Simplify", 2, 25, 20, 0.25, 1),
        ("(not traced)", 2, 20, 10, 0.20, 0),
    ]


def test_slowest_by_phase_takes_all_passes_of_a_phase_together() -> None:
    """The summary tells phases apart, and passes from code generation."""
    phase = "tvm.pass.phase"
    trace = _trace(
        span(1, "compile f", 0, 100),
        span(2, "A", 0, 10, parent=1, attributes={"tvm.pass.name": "A", phase: "relax"}),
        span(3, "B", 10, 30, parent=1, attributes={"tvm.pass.name": "B", phase: "relax"}),
        _pass(4, "C", 30, 35, parent=1),
        span(5, "link", 35, 100, parent=1),
    )
    got = [(entry.name, entry.self_ns / 1e6) for entry in slowest([trace], by_phase=True)]
    assert got == [("link", 65), ("relax passes", 30), ("passes", 5), ("(not traced)", 0)]


@pytest.mark.parametrize(
    ("name", "attributes", "has_child", "expected"),
    [
        ("compile f", {}, True, True),
        ("compile", {}, False, True),
        ("lower", {}, True, True),
        ("PassContext", {}, False, True),
        ("adapter", {}, True, True),
        ("request", {}, True, True),
        ("load weights", {}, False, False),
        ("lower", {"tvm.pass.name": "lower"}, True, False),
        ("codegen cuda", {}, True, False),
        ("link", {}, True, False),
        ("g++", {"process.executable.name": "g++"}, True, False),
    ],
)
def test_only_what_names_no_work_is_a_container(
    name: str, attributes: dict[str, Any], has_child: bool, expected: bool
) -> None:
    """Passes, code generation and compilers explain their time; a compile span does not."""
    children = [span(2, "child", 1, 2, parent=1)] if has_child else []
    trace = _trace(span(1, name, 0, 9, attributes=attributes), *children)
    assert trace.nodes[0].is_container is expected


def test_culprit_is_the_deepest_span_that_carries_the_exception() -> None:
    """Ancestors that failed through a child are not blamed, nor an error without an exception."""
    trace = _trace(
        span(1, "compile f", 0, 9, **error("E", "failed in B", is_origin=False)),
        span(2, "odd", 0, 1, parent=1, **error("", "", is_origin=False)),
        _pass(3, "A", 1, 9, parent=1, **error("E", "failed in B", is_origin=False)),
        _pass(4, "B", 2, 9, parent=3, **error("ValueError", "no")),
    )
    assert trace.culprit is trace.nodes[3]
    assert len(trace.errors) == 4


def test_trace_without_errors_has_no_culprit() -> None:
    """Nothing is blamed where nothing failed."""
    assert _trace(span(1, "compile f", 0, 9)).culprit is None
