"""What must hold whatever the machine does: counts of spans, calls and objects.

The only part of a benchmark run that can fail.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tests.benchmarks.collector import Collector
from tests.benchmarks.compiles import Compile, cheap_passes
from tests.benchmarks.memory import COMPILES, Memory
from tests.benchmarks.variants import Variant

__all__ = [
    "Check",
    "PassCost",
    "check_arrival",
    "check_costs",
    "check_memory",
    "check_spans",
    "measure_pass_costs",
    "passes_seen",
]

_PASSES = 100
_CALLER = "tvm.ir.transform"
"""The module that calls into C++ to run a pass, so that callbacks seem to come from it."""

_MAX_CALLS = 12
"""Python functions called a pass while it is recorded."""
_MAX_OBJECTS = 3
"""Objects that a pass adds to the garbage collector's work until it is emitted."""
_MAX_BLOCKS = 12
"""Blocks of memory that a pass holds until it is emitted."""
_MAX_LEFT = _PASSES // 10
"""Objects that the passes of a context may leave: a tenth of one each is chance."""


@dataclass(frozen=True)
class Check:
    """One thing that must hold."""

    what: str
    expected: str
    got: str
    holds: bool


@dataclass(frozen=True)
class PassCost:
    """What a variant does a pass, counted; what TVM does by itself is subtracted."""

    callbacks: float
    """Calls from TVM."""
    calls: float
    """Python functions that were called, callbacks among them."""
    objects: float
    """Objects known to the garbage collector that are there until the context closes."""
    blocks: float
    """Blocks of memory, likewise."""
    left: int
    """Objects that are left, of all passes together, when the context has closed."""


def passes_seen(compile_it: Compile) -> int:
    """Return how many passes a compile has, as TVM tells a plain instrument."""
    from tvm.ir import instrument, transform  # pyright: ignore[reportMissingImports]

    class Count(instrument.PassInstrument):
        __slots__ = ("__dict__",)

        def __init__(self) -> None:
            self.passes = 0
            super().__init__()

        def run_before_pass(self, mod: Any, info: Any) -> None:
            self.passes += 1

    count = Count()
    with transform.PassContext(instruments=[count]):
        compile_it()
    return count.passes


def check_spans(variants: Sequence[Variant], compile_it: Compile, what: str) -> list[Check]:
    """Compile once under each variant that discards its spans, and count these.

    Args:
        variants: What to check.
        compile_it: The compile.
        what: What it compiles, in words.
    """
    expected = passes_seen(compile_it)
    checks: list[Check] = []
    for variant in variants:
        exporter = variant.exporter
        if exporter is None:
            continue
        wanted = 0 if variant.key == "unsampled" else expected
        variant.flush()
        exporter.passes = exporter.spans = 0
        with variant.context() as context, context:
            compile_it()
        variant.flush()
        checks.append(
            Check(
                f"pass spans of the {what} compile: {variant.title}",
                str(wanted),
                str(exporter.passes),
                exporter.passes == wanted and (exporter.spans > wanted or wanted == 0),
            )
        )
    return checks


def check_arrival(
    variants: Sequence[Variant], compile_it: Compile, collector: Collector
) -> list[Check]:
    """Compile once under the variant that sends its spans, and count what arrives."""
    expected = passes_seen(compile_it) + 1
    sending = next(variant for variant in variants if variant.key == "otlp")
    sending.flush()
    before = collector.spans()
    with sending.context() as context, context:
        compile_it()
    sending.flush()
    arrived = collector.wait_for(before + expected) - before
    what = "spans that arrive, of passes and their root"
    return [Check(what, str(expected), str(arrived), arrived == expected)]


def measure_pass_costs(variants: Sequence[Variant]) -> dict[str, PassCost]:
    """Count what the callbacks of each variant do; one has the key ``nothing``."""
    run = cheap_passes(_PASSES)
    first = cheap_passes(1)
    found: dict[str, tuple[int, int, int, int, int]] = {}
    for variant in variants:
        with variant.context() as context:

            def measured(measure: Callable[[], tuple[int, int]]) -> tuple[int, int, int]:
                gc.collect()
                before = len(gc.get_objects())
                with context:
                    first()
                    counts = measure()
                variant.flush()  # noqa: B023
                gc.collect()
                return *counts, len(gc.get_objects()) - before

            # The first time, things are made that stay.
            measured(lambda: _calls_of(run))
            callbacks, calls, _ = measured(lambda: _calls_of(run))
            objects, blocks, left = measured(lambda: _allocated_by(run))
        found[variant.key] = callbacks, calls, objects, blocks, left
    base = found["nothing"]
    return {
        key: PassCost(
            *((values[i] - base[i]) / (_PASSES + 1) for i in range(4)),  # pyright: ignore
            left=values[4] - base[4],
        )
        for key, values in found.items()
    }


def check_costs(costs: dict[str, PassCost]) -> list[Check]:
    """Check that recording a pass takes a bounded number of steps, and leaves nothing."""
    return [
        *(
            _check_cost(costs, key, name, limit)
            for key in ("discard", "zero_code")
            for name, limit in (
                ("callbacks", 2),
                ("calls", _MAX_CALLS),
                ("objects", _MAX_OBJECTS),
                ("blocks", _MAX_BLOCKS),
                ("left", _MAX_LEFT),
            )
        ),
        _check_cost(costs, "unsampled", "calls", 2),
        _check_cost(costs, "unsampled", "objects", 0),
        _check_cost(costs, "unsampled", "blocks", 0),
    ]


def _check_cost(costs: dict[str, PassCost], key: str, name: str, limit: float) -> Check:
    value = getattr(costs[key], name)
    what = "objects left of all passes" if name == "left" else f"{name} a pass"
    # What is done once, at the first pass, is a fraction of one a pass.
    return Check(f"{what}: {key}", f"at most {limit}", f"{value:.2f}", value < limit + 0.5)


def check_memory(memory: dict[str, Memory]) -> list[Check]:
    """Check that compiles leave no objects behind."""
    return [
        Check(
            f"objects left of {COMPILES} compiles: {key}",
            "0 of ours, less than one a ten compiles",
            f"{found.ours}, {found.objects}",
            found.ours <= 0 and found.objects < COMPILES / 10,
        )
        for key, found in memory.items()
    ]


def _calls_of(run: Callable[[], object]) -> tuple[int, int]:
    """Return how many callbacks TVM made, and how many Python functions were called."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            caller = frame.f_back
            is_callback = caller is not None and caller.f_globals["__name__"] == _CALLER
            calls["callback" if is_callback else "other"] += 1

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls["callback"], calls["callback"] + calls["other"]


def _allocated_by(run: Callable[[], object]) -> tuple[int, int]:
    """Return how many more objects and blocks there are after ``run``."""
    gc.collect()
    gc.disable()
    try:
        objects = len(gc.get_objects())
        blocks = sys.getallocatedblocks()
        run()
        blocks = sys.getallocatedblocks() - blocks
        return len(gc.get_objects()) - objects, blocks
    finally:
        gc.enable()
