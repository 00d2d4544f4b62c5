"""Observers whose clock the test knows, on callbacks without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.trace import TracerProvider

from tests.support.fake_tvm import callbacks_for
from tests.support.spans import Ticks
from tilelang_otel import OTelPassObserver
from tilelang_otel._host import Clock
from tilelang_otel._recorder import Recorder
from tilelang_otel.events import PassEvent
from tilelang_otel.events._callbacks import PassCallbacks

__all__ = ["MODES", "WALL_NS", "EventObserver", "observed"]

WALL_NS = 1_700_000_000_000_000_000
"""What the wall clock of :func:`observed` shows."""

MODES = ("frames", "events")
"""The two ways in which the observer is told of passes, to parametrise with."""


class EventObserver(OTelPassObserver):
    """A subclass that looks at events, and so is given events."""

    def pass_started(self, mod: Any, event: PassEvent) -> Any:
        """Do as the base class does."""
        return super().pass_started(mod, event)


def observed(
    provider: TracerProvider | None,
    mode: str = "frames",
    monotonic_ns: Callable[[], int] | None = None,
    wall_ns: Callable[[], int] | None = None,
    **options: Any,
) -> PassCallbacks:
    """Return callbacks of an observer with clocks of the test's.

    Args:
        provider: Where spans go.
        mode: One of :data:`MODES`.
        monotonic_ns: The clock; by default each reading is one more, from 0.
        wall_ns: The wall clock; by default it stands at :data:`WALL_NS`.
        **options: Options of the observer.
    """
    observer = (OTelPassObserver if mode == "frames" else EventObserver)(provider, **options)
    clock = Clock(wall_ns or (lambda: WALL_NS), monotonic_ns or Ticks())
    observer._recorder = Recorder(provider, observer._recorder.settings, clock)
    return callbacks_for(observer)
