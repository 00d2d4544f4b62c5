"""Metrics as plain data, from the SDK or from the wire.

Owns what a data point looks like to a test, and a meter provider that nobody else uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.support.received import value_of

__all__ = ["MetricMemory", "Point", "points_of"]


@dataclass(frozen=True)
class Point:
    """One series at one time."""

    metric: str
    unit: str
    attributes: Mapping[str, Any]
    value: float
    """A sum so far; of a histogram, the sum of what was recorded."""

    count: int | None = None
    """Of a histogram: how often something was recorded."""

    bounds: tuple[float, ...] = ()
    """Of a histogram: the upper bounds of its buckets."""

    exemplars: tuple[tuple[str, str], ...] = ()
    """Trace and span ids of the exemplars, in lower-case hexadecimal."""


class MetricMemory:
    """A meter provider, and what has been counted with it."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def points(self, *names: str) -> list[Point]:
        """Return every series of some metrics as it is now, in the order of their attributes.

        Exemplars are those since the last call.

        Args:
            *names: Names of the metrics.
        """
        found: list[Point] = []
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for each in scope.metrics:
                    if each.name in names:
                        points: Iterable[Any] = each.data.data_points
                        found += [_point(each.name, each.unit or "", point) for point in points]
        return _in_order(found)


def _point(metric: str, unit: str, point: Any) -> Point:
    is_histogram = hasattr(point, "bucket_counts")
    return Point(
        metric,
        unit,
        dict(point.attributes or {}),
        point.sum if is_histogram else point.value,
        point.count if is_histogram else None,
        tuple(point.explicit_bounds) if is_histogram else (),
        tuple(
            (f"{exemplar.trace_id or 0:032x}", f"{exemplar.span_id or 0:016x}")
            for exemplar in point.exemplars
        ),
    )


def points_of(message: ExportMetricsServiceRequest) -> list[Point]:
    """Return every data point of an export request.

    Args:
        message: As it came over the wire.
    """
    found: list[Point] = []
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                assert kind is not None, f"{metric.name} has no data"
                points: Iterable[Any] = getattr(metric, kind).data_points
                found += [_received_point(metric.name, metric.unit, point) for point in points]
    return _in_order(found)


def _received_point(metric: str, unit: str, point: Any) -> Point:
    is_histogram = hasattr(point, "bucket_counts")
    return Point(
        metric,
        unit,
        {pair.key: value_of(pair.value) for pair in point.attributes},
        point.sum if is_histogram else point.as_int or point.as_double,
        point.count if is_histogram else None,
        tuple(point.explicit_bounds) if is_histogram else (),
        tuple((each.trace_id.hex(), each.span_id.hex()) for each in point.exemplars),
    )


def _in_order(points: list[Point]) -> list[Point]:
    return sorted(points, key=lambda point: (point.metric, sorted(point.attributes.items())))
