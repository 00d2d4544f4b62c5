"""Spans that do not arrive are a metric, by why, where metrics still arrive."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.metrics import points_of
from tests.support.programs import run_program
from tests.support.receiver import OTLPReceiver, RefusingEndpoint, SilentEndpoint

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")

_SPANS = 10_000

_PROGRAM = f"""
    import tilelang_otel
    from opentelemetry import trace

    tilelang_otel.configure()
    tracer = trace.get_tracer("program")
    for number in range({_SPANS}):
        tracer.start_span("work").end()
    tilelang_otel.flush(30)
"""


_BATCH = 256

_SMALL_QUEUE = {
    "OTEL_BSP_MAX_QUEUE_SIZE": str(_BATCH),
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": str(_BATCH),
}


def _dropped(traces_to: str | None, variables: Mapping[str, str]) -> tuple[dict[str, int], int]:
    """Return how many spans were dropped, by reason, and how many arrived."""
    with OTLPReceiver() as receiver:
        environment = {**receiver.environment(), "OTEL_METRICS_EXPORTER": "otlp", **variables}
        if traces_to is not None:
            environment["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = traces_to
            environment["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"] = "1"
        done = run_program(_PROGRAM, environment)
        assert done.exit_code == 0, done.stderr
        # Sums so far: the last message, of the exit, has all of it.
        [*_, message] = [r.message for r in receiver.requests if r.signal == "metrics"]
        dropped = {
            point.attributes["tilelang.drop.reason"]: int(point.value)
            for point in points_of(message)
            if point.metric == "tilelang.telemetry.dropped"
        }
        return dropped, len(receiver.spans)


def test_nothing_is_dropped_when_all_is_well() -> None:
    """All reasons are there, so that an alert finds them: none of them has happened."""
    nothing = {"export_failed": 0, "queue_full": 0, "backlog_full": 0}
    assert _dropped(None, {}) == (nothing, _SPANS)


def test_spans_that_nobody_takes_are_counted() -> None:
    """Every one, as the queue holds them all."""
    with RefusingEndpoint() as nobody:
        dropped, _ = _dropped(nobody.endpoint, {})
    assert dropped == {"export_failed": _SPANS, "queue_full": 0, "backlog_full": 0}


def test_spans_that_the_queue_cannot_hold_are_counted() -> None:
    """What the receiver has not got has been dropped, and said to be."""
    dropped, arrived = _dropped(None, _SMALL_QUEUE)
    assert arrived < _SPANS
    assert dropped["export_failed"] == 0
    # What is on its way from the queue to the exporter may be taken for waiting.
    assert dropped["queue_full"] == pytest.approx(_SPANS - arrived, abs=_BATCH)


def test_spans_are_counted_by_where_they_were_lost() -> None:
    """While a receiver lets the exporter wait, the queue fills up."""
    with SilentEndpoint() as silent:
        dropped, _ = _dropped(silent.endpoint, _SMALL_QUEUE)
    assert dropped["export_failed"] >= _BATCH
    lost = dropped["queue_full"] + dropped["export_failed"]
    assert lost == pytest.approx(_SPANS, abs=_BATCH)
