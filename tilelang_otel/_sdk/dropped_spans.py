"""The metric of spans that were lost on their way out of the process.

Owns where the numbers come from. Who counts them is up to ``_sdk.delivery`` and
``_background``; what is said of a loss at exit, to ``_sdk.exit``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from tilelang_otel import _background, semconv
from tilelang_otel._guard import guard
from tilelang_otel.version import __version__

__all__ = ["Exporting", "Queue", "observe_dropped"]


class Exporting(Protocol):
    """The end of a queue."""

    @property
    def failed(self) -> int:
        """How many spans could not be exported."""
        ...


class Queue(Protocol):
    """Spans that wait for an exporter."""

    @property
    def exporter(self) -> Exporting:
        """Where they go."""
        ...

    @property
    def overflowed(self) -> int:
        """How many spans came when it was full, each of which cost one."""
        ...


def observe_dropped(queues: Sequence[Queue]) -> None:
    """Have ``tilelang.telemetry.dropped`` observed from now on. Never raises.

    With the global meter provider: the one there is, or the one that is to come.

    Args:
        queues: What spans wait in; read at each observation.
    """

    def observe(options: CallbackOptions) -> Iterable[Observation]:
        dropped = {
            "export_failed": sum(queue.exporter.failed for queue in queues),
            "queue_full": sum(queue.overflowed for queue in queues),
            "backlog_full": _background.lost_spans(),
        }
        return [
            Observation(spans, {semconv.TILELANG_DROP_REASON: reason})
            for reason, spans in dropped.items()
        ]

    with guard:
        metrics.get_meter(
            semconv.SCOPE_NAME, __version__, schema_url=semconv.SCHEMA_URL
        ).create_observable_counter(
            semconv.METRIC_TELEMETRY_DROPPED,
            [observe],
            "{span}",
            "Spans that were lost on their way out of the process.",
        )
