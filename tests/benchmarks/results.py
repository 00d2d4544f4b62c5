"""What one benchmark run found, the goals, and how that compares."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from tests.benchmarks.counts import Check, PassCost
from tests.benchmarks.emission import Emission
from tests.benchmarks.latency import Latency
from tests.benchmarks.memory import COMPILES, Memory
from tests.benchmarks.statistics import Spread

__all__ = ["Goal", "Results", "compare", "describe_machine", "load_average"]

_CALLBACKS_US = 3.0
_UNSAMPLED_US = 1.0
_LATENCY_RATIO = 1.01
_EMISSION_RATIO = 1.15
_MEMORY_KIB = 1024.0
"""Growth that allocators alone may cause; 1.3 KiB a compile."""


@dataclass(frozen=True)
class Goal:
    """What was wanted and what was reached."""

    what: str
    wanted: str
    reached: str
    is_reached: bool


@dataclass(frozen=True)
class Results:
    """All of a run; the dictionaries are by the variants' keys."""

    machine: str
    load: float | None
    """How many programs wanted to run in the minute before; None where unknown."""
    titles: dict[str, str]
    passes: dict[str, int]
    """How many passes each compile has: ``small`` and ``large``."""
    rounds: dict[str, int]
    """How often each thing was measured."""
    latency: dict[str, dict[str, Latency]]
    """``small`` and ``large``."""
    callbacks: dict[str, Spread]
    """Microseconds a pass."""
    costs: dict[str, PassCost]
    emission: Emission
    memory: dict[str, Memory]
    checks: list[Check]

    @property
    def is_busy(self) -> bool:
        """Whether others used so much of the machine that wall times say little."""
        return self.load is not None and self.load > (os.cpu_count() or 1)

    def goals(self) -> list[Goal]:
        """Compare with the goals."""
        goals = [
            compare(f"{what}, µs a pass", limit, self.callbacks[key].median)
            for what, key, limit in (
                ("callbacks", "discard", _CALLBACKS_US),
                ("callbacks, zero-code", "zero_code", _CALLBACKS_US),
                ("callbacks, with the crash record", "crash", _CALLBACKS_US),
                ("callbacks, not sampled", "unsampled", _UNSAMPLED_US),
            )
        ]
        background = self.latency["small"]["background"].ratio.median
        goals.append(compare("small compile, in the background", _LATENCY_RATIO, background))
        goals.append(
            compare(
                "emission, times the SDK's own cost",
                _EMISSION_RATIO,
                self.emission.ours_ratio.median,
            )
        )
        grown = [
            found.resident_kib for found in self.memory.values() if found.resident_kib is not None
        ]
        if grown:
            goals.append(
                compare(f"memory grown over {COMPILES} compiles, KiB", _MEMORY_KIB, max(grown), 0)
            )
        return goals

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {**asdict(self), "goals": [asdict(goal) for goal in self.goals()]}


def load_average() -> float | None:
    """Return how many programs wanted to run, on average over the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def describe_machine() -> str:
    """Return what the numbers depend on, in one line."""
    tvm = next(
        (
            f"{name} {metadata.version(name)}"
            for name in ("apache-tvm", "tilelang")
            if _is_installed(name)
        ),
        "TVM",
    )
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {tvm}, "
        f"opentelemetry-sdk {metadata.version('opentelemetry-sdk')}"
    )


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def compare(what: str, limit: float, value: float, digits: int = 2) -> Goal:
    """Return a goal, and whether it is reached.

    Args:
        what: What was measured.
        limit: The most that it may be.
        value: What it was.
        digits: To how many decimals both are said, and compared.
    """
    wanted = f"at most {limit:.{digits}f}"
    return Goal(what, wanted, f"{value:.{digits}f}", round(value, digits) <= limit)
