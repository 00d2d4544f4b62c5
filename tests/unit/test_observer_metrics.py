"""An observer counts, with and without anybody who takes its spans. No compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, TracerProvider

from tests.support.fake_tvm import callbacks_for, pass_context, run
from tests.support.metrics import MetricMemory
from tests.support.observers import MODES, EventObserver
from tests.support.spans import SpanMemory
from tilelang_otel import OTelPassObserver
from tilelang_otel.events._callbacks import PassCallbacks

pytestmark = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def metrics() -> MetricMemory:
    """Keep metrics, of a provider that nobody else uses."""
    return MetricMemory()


def _callbacks(
    mode: str, provider: TracerProvider | None, metrics: MetricMemory, **options: Any
) -> PassCallbacks:
    kind = OTelPassObserver if mode == "frames" else EventObserver
    return callbacks_for(kind(provider, meter_provider=metrics.provider, **options))


def _counts(metrics: MetricMemory) -> Mapping[str, int | None]:
    points = metrics.points("tvm.pass.duration")
    return {str(point.attributes["tvm.pass.name"]): point.count for point in points}


def _compile(callbacks: PassCallbacks) -> None:
    with pass_context(callbacks):
        run(callbacks, "A")
        run(callbacks, "A")
        run(callbacks, "B")


@pytest.mark.parametrize("kind", ["none", "no-op", "unsampled"])
def test_passes_count_where_nobody_takes_spans(mode: str, kind: str, metrics: MetricMemory) -> None:
    """Metrics have a provider of their own."""
    providers = {
        "none": None,
        "no-op": NoOpTracerProvider(),
        "unsampled": SpanMemory(ALWAYS_OFF).provider,
    }
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    _compile(_callbacks(mode, providers[kind], metrics))
    assert _counts(metrics) == {"A": 2, "B": 1}


def test_pass_times_are_those_of_the_spans(
    mode: str, memory: SpanMemory, metrics: MetricMemory
) -> None:
    """Of one measurement, whoever tells of it."""
    _compile(_callbacks(mode, memory.provider, metrics))
    [of_b] = [span for span in memory.spans if span.name == "B"]
    [point] = [
        p for p in metrics.points("tvm.pass.duration") if p.attributes["tvm.pass.name"] == "B"
    ]
    assert of_b.end_time is not None
    assert of_b.start_time is not None
    assert point.value == pytest.approx((of_b.end_time - of_b.start_time) / 1e9)


def test_passes_that_are_not_captured_do_not_count(
    mode: str, memory: SpanMemory, metrics: MetricMemory
) -> None:
    """What somebody excludes, they want to know nothing of."""
    _compile(_callbacks(mode, memory.provider, metrics, exclude="A"))
    assert _counts(metrics) == {"B": 1}


def test_suppressed_compile_does_not_count(
    mode: str, memory: SpanMemory, metrics: MetricMemory
) -> None:
    """Suppressing instrumentation means all of it."""
    callbacks = _callbacks(mode, memory.provider, metrics)
    with suppress_instrumentation():
        _compile(callbacks)
    assert _counts(metrics) == {}
    assert metrics.points("tilelang.telemetry.duration") == []


def test_pass_context_alone_is_no_compile(
    mode: str, memory: SpanMemory, metrics: MetricMemory
) -> None:
    """It may hold one pass of many: only compile entry points count as compiles."""
    _compile(_callbacks(mode, memory.provider, metrics))
    assert metrics.points("tilelang.compile.duration", "tilelang.compile.active") == []
    [own] = metrics.points("tilelang.telemetry.duration")
    assert own.count == 1
