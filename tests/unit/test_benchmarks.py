"""The benchmarks' own arithmetic, gates and tables; what they measure is not tested here."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.benchmarks.counts import Check, PassCost, check_costs, check_memory
from tests.benchmarks.emission import Emission
from tests.benchmarks.latency import Latency
from tests.benchmarks.memory import Memory
from tests.benchmarks.report import as_markdown, print_checks, print_results
from tests.benchmarks.results import Results
from tests.benchmarks.statistics import Spread, interleaved, spread_of

_TITLES = {
    "nothing": "nothing",
    "unsampled": "ours, not sampled",
    "discard": "ours, SDK, spans discarded",
    "background": "the same, spans made in the background",
    "crash": "ours, with the crash record",
    "zero_code": "ours, zero-code, discarded",
    "cpp_timing": "TVM's PassTimingInstrument (C++)",
}
_CHEAP = PassCost(callbacks=2, calls=7, objects=2, blocks=5, left=0)
_FREE = PassCost(callbacks=2, calls=2, objects=0, blocks=0, left=0)


def _spread(value: float) -> Spread:
    return Spread(value, value * 0.99, value * 1.01)


def _results(**changes: Any) -> Results:
    latency = Latency(_spread(1399.5), _spread(1.05), _spread(1399.5), _spread(1.125))
    results = Results(
        machine="a machine",
        load=None,
        titles=_TITLES,
        passes={"small": 79, "large": 92},
        rounds={"small": 25, "large": 9},
        latency={name: dict.fromkeys(_TITLES, latency) for name in ("small", "large")},
        callbacks=dict.fromkeys(_TITLES, _spread(0.5)),
        costs=dict.fromkeys(_TITLES, _CHEAP),
        emission=Emission(
            92, _spread(16), _spread(17.6), _spread(1.1), _spread(16.8), _spread(1.05)
        ),
        memory=dict.fromkeys(_TITLES, Memory(12.0, 0, 0)),
        checks=[Check("spans", "79", "79", True)],
    )
    return replace(results, **changes)


class _Terminal(io.TextIOWrapper):
    """A stream that is no terminal, with an encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def written(self) -> str:
        self.seek(0)
        return self.read()


def test_interleaved_measures_each_subject_once_a_round_in_changing_order() -> None:
    """What the machine does meanwhile hits every subject alike."""
    rounds: list[int] = []
    seen = list(interleaved("abcd", 8, rounds.append))
    orders = ["".join(seen[i : i + 4]) for i in range(0, 32, 4)]
    assert [sorted(order) for order in orders] == [list("abcd")] * 8
    assert len(set(orders)) > 1
    assert rounds == list(range(8))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([7.0], Spread(7, 7, 7)), ([1.0, 2.0, 3.0, 4.0, 100.0], Spread(3, 2, 4))],
)
def test_spread_of_values_is_median_and_quartiles(values: list[float], expected: Spread) -> None:
    """An outlier moves neither."""
    assert spread_of(values) == expected


def test_goals_all_met_are_reached() -> None:
    """Every goal is compared, and met when the number is small enough."""
    fast = Latency(*[_spread(1.004)] * 4)
    goals = _results(latency={"small": {"background": fast}}).goals()
    assert [(goal.reached, goal.is_reached) for goal in goals] == [
        *[("0.50", True)] * 4,
        ("1.00", True),
        ("1.10", True),
        ("12", True),
    ]


def test_goals_missed_are_said_to_be_missed() -> None:
    """What falls short is printed as it is."""
    results = _results(
        callbacks={**dict.fromkeys(_TITLES, _spread(3.01)), "unsampled": _spread(1.01)},
        emission=Emission(92, *[_spread(1.16)] * 5),
        memory={**dict.fromkeys(_TITLES, Memory(None, 0, 0)), "discard": Memory(4096.0, 9, 9)},
    )
    assert [goal.is_reached for goal in results.goals()] == [False] * 7


def test_costs_within_their_bounds_hold() -> None:
    """A recorded pass may take some steps; one that is not sampled only the callbacks."""
    costs = {"discard": _CHEAP, "zero_code": _CHEAP, "unsampled": _FREE}
    assert all(check.holds for check in check_costs(costs))


@pytest.mark.parametrize("field", ["callbacks", "calls", "objects", "blocks", "left"])
def test_cost_of_recording_out_of_bounds_fails(field: str) -> None:
    """One that grows fails the run, and names what grew."""
    costly = replace(_CHEAP, **{field: 40})
    costs = {"discard": costly, "zero_code": _CHEAP, "unsampled": _FREE}
    [broken] = [check for check in check_costs(costs) if not check.holds]
    assert broken.got == "40.00"
    assert broken.what.endswith(": discard")


def test_unsampled_pass_that_keeps_anything_fails() -> None:
    """Nothing is recorded when nothing is sampled."""
    kept = replace(_FREE, calls=3, objects=1, blocks=1)
    costs = {"discard": _CHEAP, "zero_code": _CHEAP, "unsampled": kept}
    assert [check.what for check in check_costs(costs) if not check.holds] == [
        "calls a pass: unsampled",
        "objects a pass: unsampled",
        "blocks a pass: unsampled",
    ]


@pytest.mark.parametrize("left", [Memory(0.0, 0, 1), Memory(0.0, 100, 0)])
def test_compiles_that_leave_objects_fail(left: Memory) -> None:
    """One object of ours is too many; so are some of anybody's a compile."""
    assert [
        check.holds for check in check_memory({"discard": left, "nothing": Memory(0, 3, 0)})
    ] == [
        False,
        True,
    ]


def test_results_printed_fit_100_columns_uncut() -> None:
    """Readable in a terminal of 100 columns, with no cell cut short."""
    file = _Terminal("utf-8")
    print_results(_results(), file)
    text = file.written()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    assert "…" not in text
    assert "TVM's PassTimingInstrument (C++)" in text
    assert "✓" in text


@pytest.mark.parametrize(("load", "is_said"), [(0.0, False), (9999.0, True), (None, False)])
def test_results_of_a_busy_machine_say_so(load: float | None, is_said: bool) -> None:
    """Wall times are worth little where others compute."""
    file = _Terminal("utf-8")
    print_results(_results(load=load), file)
    assert ("The machine was busy" in file.written()) is is_said
    assert ("The machine was busy" in as_markdown(_results(load=load))) is is_said


def test_results_printed_in_ascii_have_their_marks_spelled_out() -> None:
    """A stream without Unicode gets letters instead, not an error."""
    file = _Terminal("ascii")
    print_results(_results(), file)
    assert "us a pass" in file.written()
    assert " ok" in file.written()


def test_checks_broken_are_each_printed_with_what_was_found() -> None:
    """The one line that matters says what, and what it should have been."""
    file = _Terminal("utf-8")
    print_checks([Check("spans", "79", "79", True), Check("calls", "at most 2", "3", False)], file)
    assert file.written().splitlines() == [
        "✗ calls: 3 instead of at most 2",
        "✗ 1 of 2 counts are as they must be (spans, calls, objects)",
    ]


def test_markdown_has_a_row_for_each_way_and_each_goal() -> None:
    """The README's table is complete, and regular enough to be rendered."""
    lines = as_markdown(_results()).splitlines()
    table = lines[: lines.index("")]
    assert len(table) == 2 + len(_TITLES)
    assert len({line.count("|") for line in table}) == 1
    assert sum(line.endswith("| ✓ |") for line in lines) == 6


def test_results_as_json_are_plain_data() -> None:
    """Everything, and the goals, can be read by other programs."""
    found = json.loads(json.dumps(_results().as_json()))
    assert found["latency"]["small"]["discard"]["ratio"]["median"] == 1.05
    assert found["goals"][0]["is_reached"] is True
