"""What the span of a compile says of passes that have no spans of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang_otel import semconv
from tilelang_otel.cli._traces.otlp_json import Span

__all__ = ["Folded", "read_folded"]


@dataclass(frozen=True, slots=True)
class Folded:
    """What ran in a compile and has no spans."""

    passes: int
    """How many passes."""

    costliest: tuple[tuple[str, int], ...]
    """What took longest, passes and other work, with nanoseconds; the longest first."""

    @property
    def told_ns(self) -> int:
        """How many nanoseconds ``costliest`` explains."""
        return sum(ns for _, ns in self.costliest)


def read_folded(span: Span) -> Folded | None:
    """Return what was folded into a span; None if nothing was. Bad values are left out."""
    passes: Any = span.attributes.get(semconv.TILELANG_FOLDED_PASSES)
    if not isinstance(passes, int):
        return None
    names: Any = span.attributes.get(semconv.TILELANG_FOLDED_NAMES)
    durations: Any = span.attributes.get(semconv.TILELANG_FOLDED_DURATIONS)
    found: list[tuple[str, int]] = []
    if isinstance(names, list) and isinstance(durations, list):
        pairs: list[tuple[Any, Any]] = list(zip(names, durations, strict=False))  # pyright: ignore[reportUnknownArgumentType]
        found = [(str(name), _nanoseconds(duration_s)) for name, duration_s in pairs]
    return Folded(max(passes, 0), tuple(found))


def _nanoseconds(duration_s: Any) -> int:
    # Times are numbers of 64 bits; a larger one is damage.
    if not isinstance(duration_s, int | float) or not 0 <= duration_s < 2**64 / 1e9:
        return 0
    return round(duration_s * 1e9)
