"""What stays behind after many compiles."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.compiles import cheap_passes
from tests.benchmarks.variants import Variant

__all__ = ["COMPILES", "Memory", "measure_memory"]

COMPILES = 1000
_WARM_UP = 200
_FLUSH_EVERY = 20


@dataclass(frozen=True)
class Memory:
    """Growth from compile 200 to compile 1,000."""

    resident_kib: float | None
    """Of the resident set, in KiB; None where the system does not tell."""
    objects: int
    """Of the number of objects that the garbage collector knows."""
    ours: int
    """How many objects of this package's classes are left more than before."""


def measure_memory(
    variants: Sequence[Variant], on_variant: Callable[[int], None] | None = None
) -> dict[str, Memory]:
    """Enter a context and run twenty passes that do nothing, 1,000 times a variant.

    Args:
        variants: What to compare.
        on_variant: Told each variant's number.
    """
    run = cheap_passes(19)
    found: dict[str, Memory] = {}
    for number, variant in enumerate(variants):
        if on_variant is not None:
            on_variant(number)
        with variant.context() as context:
            before = None
            for compiled in range(COMPILES):
                if compiled == _WARM_UP:
                    before = _now(variant)
                with context:
                    run()
                if compiled % _FLUSH_EVERY == 0:
                    variant.flush()
            after = _now(variant)
        assert before is not None
        found[variant.key] = Memory(
            resident_kib=(
                None if after[0] is None or before[0] is None else (after[0] - before[0]) / 1024
            ),
            objects=after[1] - before[1],
            ours=after[2] - before[2],
        )
    return found


def _now(variant: Variant) -> tuple[int | None, int, int]:
    variant.flush()
    gc.collect()
    objects = gc.get_objects()
    ours = sum(str(type(thing).__module__).startswith("tilelang_otel") for thing in objects)
    return _resident_bytes(), len(objects), ours


def _resident_bytes() -> int | None:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return None
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
