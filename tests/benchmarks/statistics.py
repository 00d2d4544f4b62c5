"""Interleaved measurements, and what is said about them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeVar

__all__ = ["Spread", "interleaved", "spread_of"]

T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """A median, and the quartiles around it."""

    median: float
    low: float
    """First quartile."""
    high: float
    """Third quartile."""

    @property
    def iqr(self) -> float:
        """Distance between the quartiles."""
        return self.high - self.low


def spread_of(values: Sequence[float]) -> Spread:
    """Return median and quartiles of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(median(values), low, high)


def interleaved(
    subjects: Sequence[T], rounds: int, on_round: Callable[[int], None] | None = None
) -> Iterator[T]:
    """Yield every subject once a round, each round in another order.

    So that what the machine does meanwhile hits all of them alike. The orders are
    the same in every run.

    Args:
        subjects: What to measure.
        rounds: How many times to measure each.
        on_round: Told the number of each round, from 0, before it begins.
    """
    orders = random.Random(20)
    for number in range(rounds):
        if on_round is not None:
            on_round(number)
        yield from orders.sample(subjects, len(subjects))
