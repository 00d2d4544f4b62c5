"""What the user waits for, and what the whole process computes, a compile."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.benchmarks.compiles import Compile
from tests.benchmarks.statistics import Spread, interleaved, spread_of
from tests.benchmarks.variants import Variant

__all__ = ["Latency", "measure_latency"]


@dataclass(frozen=True)
class Latency:
    """One variant's compile."""

    wall_ms: Spread
    """From entering the pass context until it is left."""
    ratio: Spread
    """Wall time by that of nothing in the same round."""
    cpu_ms: Spread
    """CPU time of all threads until everything is exported."""
    cpu_ratio: Spread


def measure_latency(
    variants: Sequence[Variant],
    compile_it: Compile,
    rounds: int,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, Latency]:
    """Compile under every variant in turn.

    Args:
        variants: What to compare; one has the key ``nothing``.
        compile_it: The compile.
        rounds: How often.
        on_round: Told each round's number.

    Returns:
        By the variants' keys.
    """
    wall: dict[str, list[float]] = {variant.key: [] for variant in variants}
    cpu: dict[str, list[float]] = {variant.key: [] for variant in variants}
    for variant in variants:
        _one(variant, compile_it)
    for variant in interleaved(variants, rounds, on_round):
        wall_ms, cpu_ms = _one(variant, compile_it)
        wall[variant.key].append(wall_ms)
        cpu[variant.key].append(cpu_ms)
    return {
        key: Latency(
            wall_ms=spread_of(wall[key]),
            ratio=_ratios(wall[key], wall["nothing"]),
            cpu_ms=spread_of(cpu[key]),
            cpu_ratio=_ratios(cpu[key], cpu["nothing"]),
        )
        for key in wall
    }


def _one(variant: Variant, compile_it: Compile) -> tuple[float, float]:
    with variant.context() as context:
        # Each pays for the garbage that it makes, and for no other's.
        gc.collect()
        cpu_ns = time.process_time_ns()
        start_ns = time.perf_counter_ns()
        with context:
            compile_it()
        end_ns = time.perf_counter_ns()
        variant.flush()
        cpu_ns = time.process_time_ns() - cpu_ns
    return (end_ns - start_ns) / 1e6, cpu_ns / 1e6


def _ratios(values: Sequence[float], base: Sequence[float]) -> Spread:
    return spread_of([value / of for value, of in zip(values, base, strict=True)])
