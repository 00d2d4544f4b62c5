"""Spans that were lost on their way out are counted, by why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry import metrics

from tests.support.metrics import MetricMemory
from tilelang_otel import _background
from tilelang_otel._sdk import dropped_spans
from tilelang_otel._sdk.dropped_spans import observe_dropped


@dataclass
class _Exporter:
    failed: int = 0


@dataclass
class _Queue:
    overflowed: int = 0
    exporter: _Exporter = field(default_factory=_Exporter)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MetricMemory:
    """Be the global meter provider."""
    memory = MetricMemory()
    monkeypatch.setattr(metrics, "get_meter", memory.provider.get_meter)
    return memory


def _dropped(memory: MetricMemory) -> dict[str, float]:
    points = memory.points("tilelang.telemetry.dropped")
    assert {point.unit for point in points} == {"{span}"}
    return {point.attributes["tilelang.drop.reason"]: point.value for point in points}


def test_dropped_spans_are_counted_by_reason(
    memory: MetricMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all queues together, as they are when somebody looks."""
    first, second = _Queue(), _Queue()
    observe_dropped([first, second])
    assert _dropped(memory) == {"export_failed": 0, "queue_full": 0, "backlog_full": 0}
    first.exporter.failed, second.exporter.failed = 5, 7
    first.overflowed, second.overflowed = 10, 20
    monkeypatch.setattr(_background, "lost_spans", lambda: 3)
    assert _dropped(memory) == {"export_failed": 12, "queue_full": 30, "backlog_full": 3}


@pytest.mark.usefixtures("swallowing")
def test_meter_that_raises_fails_no_configure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metric is missing, and the traces go on."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken meter")

    monkeypatch.setattr(metrics, "get_meter", fail)
    dropped_spans.observe_dropped([_Queue()])
