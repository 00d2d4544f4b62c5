"""``tilelang-otel show``: compiles without spans of their own passes, and processes that died."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from tests.support.trace_files import error, line, span
from tilelang_otel.cli._drawing.tree import render_traces
from tilelang_otel.cli._traces.as_json import to_json
from tilelang_otel.cli._traces.file import SpanReader
from tilelang_otel.cli._traces.slowest import slowest
from tilelang_otel.cli._traces.tree import Trace, build_traces


def _traces(*spans: Mapping[str, Any]) -> list[Trace]:
    reader = SpanReader()
    reader.read_lines([line(*spans)], "t.jsonl")
    assert reader.problems == []
    return build_traces(reader.spans)


def _render(*spans: Mapping[str, Any], width: int = 80) -> list[str]:
    out = io.StringIO()
    render_traces(_traces(*spans), Console(file=out, width=width), top=0)
    return out.getvalue().splitlines()


def _folded(passes: int, names: Any, durations_s: Any) -> dict[str, Any]:
    return {
        "tilelang.folded.passes": passes,
        "tilelang.folded.names": names,
        "tilelang.folded.durations": durations_s,
    }


_COMPILE = span(
    1,
    "compile main",
    0,
    50,
    attributes={
        "tvm.target.kind": "llvm",
        **_folded(78, ["codegen llvm", "FuseOps", "tirx.Simplify"], [0.0405, 0.004, 0.000_5]),
    },
)


def test_folded_compile_says_how_many_passes_and_what_took_the_time() -> None:
    """One span tells where its time went, and what nothing tells is told apart."""
    assert _render(_COMPILE) == [
        "compile main  50.0 ms  1 span  no errors  service demo",
        f"trace {1:032x}  2023-11-14 22:13:20 UTC",
        "codegen llvm 81%, (folded) 10%, FuseOps 8%, tirx.Simplify 1%",
        "",
        "                         total ms  self ms  timeline",
        f"compile main llvm           50.00           {'█' * 36}",
        "  78 passes folded; longest: codegen llvm 40.5 ms, FuseOps 4.0 ms, tirx.Simplify",
        "  500 µs",
        "",
    ]


def test_folded_compiles_add_up_with_those_that_are_whole() -> None:
    """A name's time counts wherever it was spent."""
    whole = [
        span(2, "compile main", 100, 160),
        span(3, "FuseOps", 100, 130, parent=2, attributes={"tvm.pass.name": "FuseOps"}),
    ]
    entries = slowest(_traces(_COMPILE, *whole))
    assert [(entry.name, entry.count, entry.self_ns / 1e6) for entry in entries] == [
        ("codegen llvm", 1, 40.5),
        ("FuseOps", 2, 34.0),
        ("(not traced)", 1, 30.0),
        ("(folded)", 1, 5.0),
        ("tirx.Simplify", 1, 0.5),
    ]
    assert sum(entry.share for entry in entries) == pytest.approx(1.0)


def test_spans_below_a_folded_compile_leave_the_rest_to_what_was_folded() -> None:
    """A tuning run whose configurations have spans is not said to be untraced between them."""
    shown = _render(
        span(1, "autotune matmul", 0, 50, attributes=_folded(2, ["elaborate"], [0.010])),
        span(2, "compile matmul", 10, 40, parent=1, attributes=_folded(5, [], [])),
    )
    assert [" ".join(text.split("  ")[:2]).rstrip() for text in shown[5:]] == [
        "autotune matmul",
        "│ 2 passes folded; longest: elaborate 10.0 ms",
        "├─compile matmul",
        "│  5 passes folded",
        "└─(folded)",
        "",
    ]


def test_folded_work_without_passes_does_not_count_none() -> None:
    """A kernel from the cache ran no pass, and still did something."""
    shown = _render(span(1, "compile f", 0, 5, attributes=_folded(0, ["cache load"], [0.004])))
    assert shown[-2] == "  folded; longest: cache load 4.0 ms"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (_folded(-3, ["A"], [0.001]), ["folded; longest: A 1.0 ms"]),
        (_folded(3, ["A", "B"], [0.001]), ["3 passes folded; longest: A 1.0 ms"]),
        (_folded(3, "A", 0.001), ["3 passes folded"]),
        (
            _folded(1, [5, "\x1b[1mB"], ["long", -1.0]),
            ["1 pass folded; longest: 5 0 ns, ?[1mB 0 ns"],
        ),
        (_folded(3, ["A"], [1e300]), ["3 passes folded; longest: A 0 ns"]),
        ({"tilelang.folded.passes": "many"}, []),
        ({"tilelang.folded.names": ["A"], "tilelang.folded.durations": [1.0]}, []),
    ],
    ids=["negative", "too-few", "no-lists", "other-types", "too-large", "no-number", "no-count"],
)
def test_odd_values_of_folded_passes_are_left_out(
    attributes: dict[str, Any], expected: list[str]
) -> None:
    """Whatever a file holds, the compile is shown."""
    shown = _render(span(1, "compile f", 0, 5, attributes=attributes))
    row = next(i for i, text in enumerate(shown) if text.startswith("compile f") and i > 0)
    assert [text.strip() for text in shown[row + 1 : -1]] == expected


def test_folded_failure_is_told_where_it_happened() -> None:
    """The pass that failed has no span, but the compile's status names it."""
    failed = error("ValueError", "no good")
    failed["status"]["message"] = "failed in FuseOps"
    shown = _render(span(1, "compile f", 0, 5, attributes=_folded(9, [], []), **failed))
    assert shown[2] == "failed in FuseOps: ValueError: no good"
    assert shown[-3:] == ["  9 passes folded", "  ValueError: no good", ""]


def test_compile_that_came_after_warm_up_is_marked() -> None:
    """Compiles that nobody wanted are found at a glance."""
    attributes = {"tilelang.cache.result": "miss", "tilelang.compile.trigger": "runtime"}
    shown = _render(span(1, "compile f", 0, 5, attributes=attributes))
    assert shown[-2].startswith("compile f cache=miss trigger=runtime ")


def _died(**more: Any) -> list[dict[str, Any]]:
    """Return a compile whose process died in a pass inside another, after a pass that failed."""
    attributes = {"error.type": "process_died", **more}
    passed_on = error("process_died", "failed in tirx.Simplify", is_origin=False)
    return [
        span(1, "compile main", 0, 50, attributes=attributes, **passed_on),
        span(2, "Tried", 0, 5, parent=1, **error("ValueError", "no")),
        span(
            3,
            "Outer",
            10,
            50,
            parent=1,
            attributes={"tvm.pass.name": "Outer", "error.type": "process_died"},
            **passed_on,
        ),
        span(
            4,
            "tirx.Simplify",
            20,
            50,
            parent=3,
            attributes={**attributes, "tvm.pass.end_estimated": True},
            **error("process_died", "process_died", is_origin=False),
        ),
    ]


def test_dead_process_is_told_with_its_signal_and_the_pass_it_died_in() -> None:
    """The pass that ran then is blamed, not one that had failed before, and once."""
    shown = _render(*_died(**{"tilelang.process.signal": "SIGKILL"}))
    assert shown[0] == "compile main  50.0 ms  4 spans  4 errors  service demo"
    assert "failed in tirx.Simplify: the process died of SIGKILL" in shown
    row = next(
        i for i, text in enumerate(shown) if text.startswith("│ └─tirx.Simplify end not seen ")
    )
    assert [i for i, text in enumerate(shown) if "died" in text] == [3, row + 1]
    assert shown[row + 1] == "│     the process died of SIGKILL"


def test_dead_process_without_a_known_signal_just_died() -> None:
    """Who finds a record later may not know of what."""
    shown = _render(*_died())
    assert "failed in tirx.Simplify: the process died" in shown


def test_dead_process_keeps_its_error_type_in_json() -> None:
    """Scripts get what is in the file."""
    traces = to_json(_traces(*_died(**{"tilelang.process.signal": "SIGKILL"})), [])["traces"]
    deepest = traces[0]["spans"][-1]
    assert deepest["error"]["type"] == "process_died"
    assert deepest["attributes"]["tilelang.process.signal"] == "SIGKILL"
