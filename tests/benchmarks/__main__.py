"""Runs the benchmarks: ``python -m tests.benchmarks``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import tilelang_otel
from tests.benchmarks import compiles
from tests.benchmarks.callbacks import measure_callbacks
from tests.benchmarks.collector import Collector
from tests.benchmarks.counts import (
    Check,
    check_arrival,
    check_costs,
    check_memory,
    check_spans,
    measure_pass_costs,
    passes_seen,
)
from tests.benchmarks.emission import measure_emission
from tests.benchmarks.latency import measure_latency
from tests.benchmarks.memory import measure_memory
from tests.benchmarks.report import as_markdown, print_checks, print_results
from tests.benchmarks.results import Results, describe_machine, load_average
from tests.benchmarks.variants import Variant, make_variants

_ROUNDS = {"small": 30, "large": 9, "callbacks": 300, "emission": 300}
_QUICK_ROUNDS = {"small": 7, "large": 3, "callbacks": 80, "emission": 80}


def main() -> int:
    """Run, print, and return 1 if a count is not what it must be."""
    arguments = _parser().parse_args()
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            del os.environ[name]
    with Collector() as collector:
        os.environ.update(collector.environment())
        tilelang_otel.configure()
        variants = make_variants()
        if arguments.counts:
            checks = _check(variants, collector)
            print_checks(checks)
        else:
            rounds = _QUICK_ROUNDS if arguments.quick else _ROUNDS
            results = _measure(variants, collector, rounds)
            checks = results.checks
            print_results(results)
            if arguments.json:
                text = json.dumps(results.as_json(), indent=1, ensure_ascii=False)
                arguments.json.write_text(text + "\n", encoding="utf-8")
            if arguments.markdown:
                arguments.markdown.write_text(as_markdown(results), encoding="utf-8")
    return 0 if all(check.holds for check in checks) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Compare ways of watching a TVM compile. Times are reported, counts must hold.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under a minute")
    parser.add_argument("--counts", action="store_true", help="measure nothing, check the counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the README's table")
    return parser


def _check(variants: list[Variant], collector: Collector) -> list[Check]:
    small = compiles.small()
    return [
        *check_spans(variants, small, "small"),
        *check_arrival(variants, small, collector),
        *check_costs(measure_pass_costs(variants)),
        *check_memory(measure_memory(variants)),
    ]


def _measure(variants: list[Variant], collector: Collector, rounds: dict[str, int]) -> Results:
    what = {"small": compiles.small(), "large": compiles.large()}
    load = load_average()
    with _progress() as stage:
        checks = [
            *check_spans(variants, what["small"], "small"),
            *check_spans(variants, what["large"], "large"),
            *check_arrival(variants, what["small"], collector),
        ]
        callbacks = measure_callbacks(
            variants, rounds["callbacks"], stage("callbacks", rounds["callbacks"])
        )
        emission = measure_emission(
            what["large"], rounds["emission"], stage("emission", rounds["emission"])
        )
        latency = {
            name: measure_latency(
                variants, compile_it, rounds[name], stage(f"{name} compile", rounds[name])
            )
            for name, compile_it in what.items()
        }
        costs = measure_pass_costs(variants)
        memory = measure_memory(variants, stage("memory", len(variants)))
    return Results(
        machine=describe_machine(),
        load=load,
        titles={variant.key: variant.title for variant in variants},
        passes={name: passes_seen(compile_it) for name, compile_it in what.items()},
        rounds=rounds,
        latency=latency,
        callbacks=callbacks,
        costs=costs,
        emission=emission,
        memory=memory,
        checks=[*checks, *check_costs(costs), *check_memory(memory)],
    )


Stage = Callable[[str, int], Callable[[int], None]]


@contextmanager
def _progress() -> Iterator[Stage]:
    """Yield what begins a stage, and returns what is told each of its steps."""
    console = Console(stderr=True, highlight=False)
    # Drawn between measurements only: a thread that draws would be measured too.
    with Progress(console=console, auto_refresh=False, transient=True) as progress:

        def stage(name: str, steps: int) -> Callable[[int], None]:
            task = progress.add_task(name, total=steps)
            if not console.is_terminal:
                console.print(f"measuring: {name}")

            def step(number: int) -> None:
                progress.update(task, completed=number)
                progress.refresh()

            return step

        yield stage


if __name__ == "__main__":
    sys.exit(main())
