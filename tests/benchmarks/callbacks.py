"""What the callbacks cost a pass, apart from everything else."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

from tests.benchmarks.compiles import cheap_passes
from tests.benchmarks.statistics import Spread, interleaved, spread_of
from tests.benchmarks.variants import Variant

__all__ = ["measure_callbacks"]

_PASSES = 100


def measure_callbacks(
    variants: Sequence[Variant], rounds: int, on_round: Callable[[int], None] | None = None
) -> dict[str, Spread]:
    """Run passes that do nothing, in a context that was entered before.

    Neither entering and leaving a context nor emission is part of it; for who
    makes spans in the callbacks, those are. CPU time of this thread, which is all
    that runs, so that other programs on the machine do not count.

    Args:
        variants: What to compare; one has the key ``nothing``.
        rounds: How often.
        on_round: Told each round's number.

    Returns:
        Microseconds a pass, less those that TVM itself takes in the same round.
    """
    run = cheap_passes(_PASSES)
    first = cheap_passes(1)
    times: dict[str, list[float]] = {variant.key: [] for variant in variants}
    for variant in interleaved(variants, rounds, on_round):
        with variant.context() as context:
            with context:
                # Who begins at the first pass has begun.
                first()
                gc.collect(1)
                start_ns = time.thread_time_ns()
                run()
                end_ns = time.thread_time_ns()
            variant.flush()
        times[variant.key].append((end_ns - start_ns) / 1e3 / (_PASSES + 1))
    nothing = times["nothing"]
    return {
        key: spread_of([value - base for value, base in zip(values, nothing, strict=True)])
        for key, values in times.items()
    }
