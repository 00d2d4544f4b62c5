"""Results for reading: on a terminal of 100 columns, and as Markdown."""

# ruff: noqa: RUF001 - real dashes and multiplication signs are meant

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table

from tests.benchmarks.counts import Check
from tests.benchmarks.latency import Latency
from tests.benchmarks.memory import COMPILES
from tests.benchmarks.results import Goal, Results
from tests.benchmarks.statistics import Spread

__all__ = ["as_markdown", "as_range", "goals_as_markdown", "print_checks", "print_results"]

_COLUMNS = 100

_ASCII = str.maketrans({"✓": "ok", "✗": "NO", "µ": "u", "×": "x", "…": "..", "–": "-"})


class _Printer:
    """Prints on a console, in ASCII where it has nothing else."""

    def __init__(self, file: IO[str] | None) -> None:
        self._console = Console(file=file, highlight=False, markup=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = _COLUMNS
        self._is_ascii = not self._console.encoding.lower().startswith("utf")

    def text(self, text: str) -> str:
        return text.translate(_ASCII) if self._is_ascii else text

    def line(self, text: str = "", style: str | None = None) -> None:
        self._console.print(self.text(text), style=style, soft_wrap=True)

    def table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        table = Table(title=self.text(title), title_justify="left", title_style="bold", box=None)
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column(self.text(column), justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(self.text(cell) for cell in row))
        self._console.print(table)
        self._console.print()


def print_results(results: Results, file: IO[str] | None = None) -> None:
    """Print everything.

    Args:
        results: Of one run.
        file: Where to; None means standard output.
    """
    out = _Printer(file)
    out.line(results.machine)
    out.line("Medians of interleaved runs, and the quartiles around them.\n")
    if results.is_busy:
        out.line(f"The machine was busy (load {results.load:.1f}): CPU times say more.\n", "yellow")
    for name, latencies in results.latency.items():
        out.table(
            f"What a compile takes: {name}, {results.passes[name]} passes, "
            f"{results.rounds[name]} rounds",
            ["ms", "× nothing", "quartiles", "CPU ms", "× nothing"],
            [_latency_row(results.titles[key], found) for key, found in latencies.items()],
        )
    out.table(
        f"What a pass takes in the callbacks; memory grown over {COMPILES} compiles",
        ["µs", "quartiles", "calls", "objects", "blocks", "KiB grown"],
        [_pass_row(results, key) for key in results.titles],
    )
    emission = results.emission
    out.table(
        f"What making a span of a record takes, {emission.spans} spans",
        ["µs", "quartiles", "× bare", "quartiles"],
        [
            ["SDK: bare start_span and end", *_microseconds(emission.bare_us), "1.00", ""],
            [
                "ours, with reading the name",
                *_microseconds(emission.ours_us),
                f"{emission.ours_ratio.median:.2f}",
                as_range(emission.ours_ratio),
            ],
            [
                "ours, name known",
                *_microseconds(emission.named_us),
                f"{emission.named_ratio.median:.2f}",
                as_range(emission.named_ratio),
            ],
        ],
    )
    out.table(
        "Goals",
        ["wanted", "reached", ""],
        [_goal_row(goal) for goal in results.goals()],
    )
    print_checks(results.checks, file)


def print_checks(checks: list[Check], file: IO[str] | None = None) -> None:
    """Print what had to hold: a line each for what does not, one for what does."""
    out = _Printer(file)
    broken = [check for check in checks if not check.holds]
    for check in broken:
        out.line(f"✗ {check.what}: {check.got} instead of {check.expected}", style="red")
    held = len(checks) - len(broken)
    mark = "✗" if broken else "✓"
    out.line(f"{mark} {held} of {len(checks)} counts are as they must be (spans, calls, objects)")


def as_markdown(results: Results) -> str:
    """Return the table for the README."""
    names = list(results.latency)
    head = ["", *(f"{name} compile, {results.passes[name]} passes" for name in names)]
    head += [f"CPU, {name}" for name in names]
    head += ["µs a pass in callbacks", "memory grown"]
    lines = [_markdown_row(head), _markdown_row(["---", *["---:"] * (len(head) - 1)])]
    for key, title in results.titles.items():
        latencies = [results.latency[name][key] for name in names]
        grown = results.memory[key].resident_kib
        if key == "nothing":
            row = [f"{found.wall_ms.median:.1f} ms" for found in latencies]
            row += [f"{found.cpu_ms.median:.1f} ms" for found in latencies]
            row.append("")
        else:
            row = [f"{found.ratio.median:.2f} ({as_range(found.ratio)})" for found in latencies]
            row += [f"{found.cpu_ratio.median:.2f}" for found in latencies]
            row.append(f"{results.callbacks[key].median:.1f}")
        row.append("" if grown is None else f"{grown:.0f} KiB")
        lines.append(_markdown_row([title, *row]))
    lines += ["", *goals_as_markdown(results.goals())]
    busy = f" The machine was busy (load {results.load:.1f})." if results.is_busy else ""
    return "\n".join([*lines, "", f"{results.machine}.{busy}", ""])


def goals_as_markdown(goals: Sequence[Goal]) -> list[str]:
    """Return the lines of a table of goals for the README."""
    head = ["| goal | wanted | reached | |", "| --- | ---: | ---: | --- |"]
    return head + [_markdown_row(_goal_row(goal)) for goal in goals]


def _goal_row(goal: Goal) -> list[str]:
    return [goal.what, goal.wanted, goal.reached, "✓" if goal.is_reached else "✗"]


def _latency_row(title: str, found: Latency) -> list[str]:
    return [
        title,
        f"{found.wall_ms.median:.1f}",
        f"{found.ratio.median:.3f}",
        as_range(found.ratio, 3),
        f"{found.cpu_ms.median:.1f}",
        f"{found.cpu_ratio.median:.3f}",
    ]


def _pass_row(results: Results, key: str) -> list[str]:
    cost, grown = results.costs[key], results.memory[key].resident_kib
    return [
        results.titles[key],
        *_microseconds(results.callbacks[key]),
        f"{cost.calls:.1f}",
        f"{cost.objects:.1f}",
        f"{cost.blocks:.1f}",
        "" if grown is None else f"{grown:.0f}",
    ]


def _microseconds(spread: Spread) -> tuple[str, str]:
    return f"{spread.median:.2f}", as_range(spread)


def as_range(spread: Spread, digits: int = 2) -> str:
    """Return the quartiles as text."""
    return f"{spread.low:.{digits}f}–{spread.high:.{digits}f}"


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
