"""Metrics of real compiles at a real OTLP receiver, beside the spans of the same compiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.support.metrics import Point, points_of
from tests.support.programs import run_program
from tests.support.received import ReceivedSpan
from tests.support.receiver import PROTOCOLS, OTLPReceiver, Protocol
from tests.support.require import require_tvm

require_tvm()
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

_PASS, _COMPILE = "tvm.pass.duration", "tilelang.compile.duration"

# Compiles an MLP and, after the warm-up, a function; then fails to compile one.
_PROGRAM = """
    import tilelang_otel
    tilelang_otel.configure()
    tilelang_otel.instrument()

    import tvm
    from tests.support import tvm_modules as modules

    modules.compile_mlp()
    tilelang_otel.mark_warmup_done()
    tvm.compile(modules.scaling(), target="llvm")

    def fail(module):
        raise ValueError("no such layout")

    try:
        tvm.compile(modules.mlp(), "llvm", relax_pipeline=modules.python_pass("Bad", fail))
    except Exception:
        print("failed")
"""


@dataclass(frozen=True)
class Telemetry:
    """What one run of a program sent."""

    spans: Sequence[ReceivedSpan]
    points: Sequence[Point]

    def of(self, metric: str) -> list[Point]:
        """Return the series of a metric."""
        return [point for point in self.points if point.metric == metric]

    def passes(self) -> Counter[str]:
        """Return how often each pass ran, by the metric."""
        counts: Counter[str] = Counter()
        for point in self.of(_PASS):
            counts[point.attributes["tvm.pass.name"]] += point.count or 0
        return counts

    def pass_spans(self) -> Counter[str]:
        """Return how often each pass ran, by the spans."""
        return Counter(s.name for s in self.spans if "tvm.pass.name" in s.attributes)


def _run(
    protocol: Protocol = "grpc",
    variables: Mapping[str, str] | None = None,
    program: str = _PROGRAM,
) -> Telemetry:
    with OTLPReceiver(protocol) as receiver:
        environment = {**receiver.environment(), "OTEL_METRICS_EXPORTER": "otlp"}
        done = run_program(program, {**environment, **(variables or {})})
        assert done.exit_code == 0, done.stderr
        assert done.lines[-1:] == ["failed"], done.stderr
        # One export, at exit: cumulative points of several would count twice.
        messages = [r.message for r in receiver.requests if r.signal == "metrics"]
        assert len(messages) == 1
        return Telemetry(receiver.spans, points_of(messages[0]))


@pytest.fixture(scope="module")
def everything() -> Telemetry:
    """What comes by default."""
    return _run()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_passes_are_counted_as_often_as_they_have_spans(protocol: Protocol) -> None:
    """The same records, told twice; over each protocol."""
    found = _run(protocol)
    assert len(found.passes()) > 30
    assert found.passes() == found.pass_spans()


def test_pass_times_are_those_of_the_spans(everything: Telemetry) -> None:
    """To the nanosecond, since nothing is measured twice."""
    of_spans: Counter[str] = Counter()
    for span in everything.spans:
        if "tvm.pass.name" in span.attributes:
            of_spans[span.name] += span.end_ns - span.start_ns
    of_points: dict[str, float] = {}
    for point in everything.of(_PASS):
        name = point.attributes["tvm.pass.name"]
        of_points[name] = of_points.get(name, 0) + point.value
    assert of_points == {name: pytest.approx(ns / 1e9) for name, ns in of_spans.items()}


def test_failed_passes_and_compiles_carry_their_exception(everything: Telemetry) -> None:
    """The pass that raised, those around it, and the compile; each in its own metric."""
    errors = {
        point.attributes["tvm.pass.name"]: point.attributes["error.type"]
        for point in everything.of(_PASS)
        if "error.type" in point.attributes
    }
    assert errors["Bad"] == "ValueError"
    [failed] = everything.of("tilelang.compile.failures")
    assert (failed.value, failed.attributes["error.type"]) == (1, "ValueError")
    timed = Counter(point.attributes.get("error.type") for point in everything.of(_COMPILE))
    assert timed["ValueError"] == 1


def test_compiles_have_target_and_trigger(everything: Telemetry) -> None:
    """What came after the warm-up is told apart, and counted once more by itself."""
    triggers: Counter[str] = Counter()
    for point in everything.of(_COMPILE):
        assert point.attributes["tvm.target.kind"] == "llvm"
        triggers[point.attributes.get("tilelang.compile.trigger", "")] += point.count or 0
    compiles = [span for span in everything.spans if span.name.startswith("compile")]
    assert triggers == {"": 1, "runtime": len(compiles) - 1}
    after = everything.of("tilelang.compile.after_warmup")
    assert sum(point.value for point in after) == len(compiles) - 1


def test_nothing_runs_at_the_end_and_our_time_is_told(everything: Telemetry) -> None:
    """One running compile less for each that was begun, also for the one that failed."""
    [active] = everything.of("tilelang.compile.active")
    assert active.value == 0
    [own] = everything.of("tilelang.telemetry.duration")
    roots = [span for span in everything.spans if not span.parent_span_id]
    assert own.count == len(roots) == 3
    assert 0 < own.value < sum(span.end_ns - span.start_ns for span in roots) / 1e9


def test_exemplars_lead_to_the_spans_that_they_are_of(everything: Telemetry) -> None:
    """Name by name: an exemplar of a pass is a run of that pass."""
    names = {(span.trace_id, span.span_id): span.name for span in everything.spans}
    of_passes = [
        (point.attributes["tvm.pass.name"], names[exemplar])
        for point in everything.of(_PASS)
        for exemplar in point.exemplars
    ]
    assert len(of_passes) >= len(everything.of(_PASS))
    assert [pair for pair in of_passes if pair[0] != pair[1]] == []
    of_compiles = [names[ids] for point in everything.of(_COMPILE) for ids in point.exemplars]
    assert of_compiles
    assert all(name.startswith("compile") for name in of_compiles)


def test_unsampled_compiles_count(everything: Telemetry) -> None:
    """Sampling saves traces, and must not make a service look idle."""
    found = _run(variables={"OTEL_TRACES_SAMPLER": "always_off"})
    assert found.spans == []
    assert found.passes() == everything.passes()
    for metric in (_COMPILE, "tilelang.compile.failures", "tilelang.compile.after_warmup"):
        assert _counts(found, metric) == _counts(everything, metric)
    assert [point for point in found.points if point.exemplars] == []


@pytest.mark.parametrize("emit", ["slow", "compile"])
def test_folded_passes_count(emit: str, everything: Telemetry) -> None:
    """They have no spans of their own, and their exemplars lead to what has: the compile."""
    found = _run(variables={"OTEL_PYTHON_TILELANG_EMIT": emit})
    assert sum(found.pass_spans().values()) < sum(everything.pass_spans().values())
    assert found.passes() == everything.passes()
    assert _counts(found, _COMPILE) == _counts(everything, _COMPILE)
    names = {(span.trace_id, span.span_id): span.name for span in found.spans}
    linked = [names[ids] for point in found.of(_PASS) for ids in point.exemplars]
    assert any(name.startswith("compile") for name in linked)


@pytest.mark.parametrize("emit", ["all", "slow"])
@pytest.mark.parametrize("sampler", ["always_on", "always_off"])
def test_compiles_that_are_handed_on_in_parts_count_once(
    emit: str, sampler: str, everything: Telemetry
) -> None:
    """As long ones are, so that memory is bounded: nothing counts twice, nothing is left out."""
    found = _run(
        variables={
            "OTEL_PYTHON_TILELANG_PART_SPANS": "3",
            "OTEL_PYTHON_TILELANG_EMIT": emit,
            "OTEL_TRACES_SAMPLER": sampler,
        }
    )
    assert found.passes() == everything.passes()
    for metric in (_COMPILE, "tilelang.compile.failures"):
        assert _counts(found, metric) == _counts(everything, metric)


def test_traces_that_nobody_takes_cost_no_metric(everything: Telemetry) -> None:
    """Metrics alone: no tracer provider is asked for anything."""
    found = _run(variables={"OTEL_TRACES_EXPORTER": "none"})
    assert found.spans == []
    assert found.passes() == everything.passes()


def test_an_applications_own_provider_gets_the_metrics(everything: Telemetry) -> None:
    """Given by keyword, and without any tracer provider at all."""
    program = _PROGRAM.replace(
        "tilelang_otel.configure()\n    tilelang_otel.instrument()",
        """
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    tilelang_otel.instrument(meter_provider=provider)
    """,
    )
    assert program != _PROGRAM
    found = _run(program=program)
    assert found.spans == []
    assert found.passes() == everything.passes()
    assert _counts(found, _COMPILE) == _counts(everything, _COMPILE)


def _counts(telemetry: Telemetry, metric: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(p.attributes.items())): p.value if p.count is None else p.count
        for p in telemetry.of(metric)
    }


def test_flush_exports_what_was_counted_too() -> None:
    """A job that is about to be suspended has told everything; nothing comes from its exit."""
    program = """
        import os
        import tilelang_otel
        tilelang_otel.configure()
        tilelang_otel.instrument()
        from tests.support import tvm_modules as modules
        modules.compile_mlp()
        print(tilelang_otel.flush(), flush=True)
        os._exit(0)
    """
    with OTLPReceiver() as receiver:
        done = run_program(program, {**receiver.environment(), "OTEL_METRICS_EXPORTER": "otlp"})
        assert done.lines == ["True"], done.stderr
        [message] = [r.message for r in receiver.requests if r.signal == "metrics"]
        assert any(point.metric == _COMPILE for point in points_of(message))
