"""What a recording needs of whoever has it, and where its times come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import Tracer

from tilelang_otel._config import Settings
from tilelang_otel._emission import Emission
from tilelang_otel._frames import Record

if TYPE_CHECKING:
    from tilelang_otel._crash import CompileLog
    from tilelang_otel._metrics import Instruments

__all__ = ["Clock", "Host"]


class Clock:
    """Where times come from.

    Attributes:
        wall_ns: Nanoseconds since the epoch; read once for each recording.
        monotonic_ns: Nanoseconds of a clock that never steps; for everything else.
    """

    def __init__(self, wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> None:
        self.wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns


class Host(Protocol):
    """What a recording needs of whoever has it."""

    settings: Settings
    clock: Clock
    wants: Callable[[str, int], bool] | None
    """Tells from name and depth whether to record a pass; None if all are."""

    def tracer(self) -> Tracer:
        """Return what starts spans."""
        ...

    def instruments(self) -> Instruments | None:
        """Return the metrics in force."""
        ...

    def needs_unsampled(self) -> bool:
        """Tell whether compiles that are not sampled have to be recorded all the same."""
        ...

    def emission(
        self,
        tracer: Tracer,
        root: Record | None,
        context: Context,
        wall_offset_ns: int,
        is_sampled: bool,
    ) -> tuple[Emission, CompileLog | None]:
        """Return what takes a recording's records, and who keeps them for a crash."""
        ...
