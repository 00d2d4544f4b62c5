"""What counts in which metric, with which attributes and exemplars."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import set_span_in_context

from tests.support.metrics import MetricMemory
from tests.support.records import finished_compile, finished_pass
from tests.support.spans import SpanMemory
from tilelang_otel import semconv
from tilelang_otel._frames import Failure, Record
from tilelang_otel._metrics import Instruments, Metrics


@pytest.fixture
def memory() -> MetricMemory:
    """Keep metrics, of a provider that nobody else uses."""
    return MetricMemory()


@pytest.fixture
def instruments(memory: MetricMemory) -> Instruments:
    """Count into ``memory``."""
    found = Metrics(memory.provider).current()
    assert found is not None
    return found


def _nowhere(record: Record) -> Context | None:
    return None


# -- what counts ------------------------------------------------------------------------


def test_passes_are_timed_by_name_phase_and_error(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """In seconds; each run of a pass counts, failed ones by their exception."""
    instruments.finished(
        [
            finished_pass("A", 2, "tirx"),
            finished_pass("A", 3, "tirx"),
            finished_pass("A", 1),
            finished_pass("B", 5, failure=Failure("ValueError", "shapes (3, 4) do not match")),
        ],
        _nowhere,
    )
    points = memory.points("tvm.pass.duration")
    assert {point.unit for point in points} == {"s"}
    assert [(dict(p.attributes), p.count, round(p.value, 9)) for p in points] == [
        ({"tvm.pass.name": "B", "error.type": "ValueError"}, 1, 0.005),
        ({"tvm.pass.name": "A"}, 1, 0.001),
        ({"tvm.pass.name": "A", "tvm.pass.phase": "tirx"}, 2, 0.005),
    ]


def test_compiles_are_timed_with_what_is_known_of_them(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """Nothing of high cardinality: no key, no symbol, no architecture."""
    record = finished_compile(1500)
    record.attributes = {
        "tilelang.kernel.name": "matmul",
        "tilelang.kernel.symbol": "matmul_gc_3",
        "tilelang.cache.key": "0123",
        "tilelang.cache.result": "miss",
        "tilelang.execution_backend": "tvm_ffi",
        "tilelang.compile.trigger": "runtime",
        "tvm.target.kind": "cuda",
        "tvm.target.arch": "sm_90",
    }
    instruments.finished([record], _nowhere)
    [point] = memory.points("tilelang.compile.duration")
    assert (point.unit, point.count, point.value) == ("s", 1, 1.5)
    assert point.attributes == {
        "tilelang.kernel.name": "matmul",
        "tilelang.cache.result": "miss",
        "tilelang.execution_backend": "tvm_ffi",
        "tilelang.compile.trigger": "runtime",
        "tvm.target.kind": "cuda",
    }


def test_buckets_tell_a_pass_of_100_microseconds_from_a_compile_of_10_minutes(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """The SDK's own buckets, made for milliseconds, would put everything into the first."""
    instruments.finished([finished_pass("A"), finished_compile()], _nowhere)
    for metric in ("tvm.pass.duration", "tilelang.compile.duration"):
        [point] = memory.points(metric)
        assert (point.bounds[0], point.bounds[-1]) == (0.0001, 600)


def test_failed_compiles_count_by_exception_and_kernel(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """And only compiles: a pass in them, and a compile that went well, do not."""
    failure = Failure("tvm.error.InternalError", "boom")
    instruments.finished(
        [
            finished_pass("A", failure=failure),
            finished_compile(failure=failure, tilelang_kernel_name="k", tvm_target_kind="cuda"),
            finished_compile(failure=failure, tilelang_kernel_name="k", tvm_target_kind="llvm"),
            finished_compile(failure=failure),
            finished_compile(tilelang_kernel_name="k"),
        ],
        _nowhere,
    )
    counted = [(p.attributes, p.value) for p in memory.points("tilelang.compile.failures")]
    assert counted == [
        ({"error.type": "tvm.error.InternalError"}, 1),
        ({"error.type": "tvm.error.InternalError", "tilelang.kernel.name": "k"}, 2),
    ]
    timed = {p.attributes.get("error.type") for p in memory.points("tilelang.compile.duration")}
    assert timed == {None, "tvm.error.InternalError"}


def test_cache_lookups_count_by_result_and_a_disabled_cache_is_none(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """Hits over look-ups is the rate that people want; TVM has no cache at all."""
    results = ["memory", "disk", "disk", "miss", "disabled"]
    records = [finished_compile(tilelang_cache_result=result) for result in results]
    instruments.finished([*records, finished_compile()], _nowhere)
    counted = {
        p.attributes["tilelang.cache.result"]: p.value
        for p in memory.points("tilelang.cache.lookups")
    }
    assert counted == {"memory": 1, "disk": 2, "miss": 1}


def test_other_records_are_no_metric(memory: MetricMemory, instruments: Instruments) -> None:
    """Containers, compilers and runs of many compiles: their spans tell."""
    work, many = Record(), finished_compile()
    work.name, many.scope_kind = "codegen llvm", semconv.SPAN_AUTOTUNE
    instruments.finished([work, many], _nowhere)
    assert memory.points("tvm.pass.duration") == []
    assert memory.points("tilelang.compile.duration") == []


def test_running_compiles_go_up_and_down(memory: MetricMemory, instruments: Instruments) -> None:
    """At any time, the number of those that have begun and not ended."""
    instruments.compile_began()
    instruments.compile_began()
    instruments.compile_ended()
    [point] = memory.points("tilelang.compile.active")
    assert (point.value, point.attributes) == (1, {})
    instruments.compile_ended()
    assert memory.points("tilelang.compile.active")[0].value == 0


def test_stalls_unwanted_compiles_and_our_own_time_are_counted(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """Each with the attributes that say what it was."""
    work = Record()
    work.name = "codegen cuda"
    instruments.stalled(finished_pass("Slow"))
    instruments.stalled(work)
    unwanted = {"tilelang.kernel.name": "k", "tvm.target.kind": "cuda", "tilelang.cache.key": "01"}
    instruments.compiled_at_runtime(unwanted)
    instruments.telemetry(0.0003)
    stalls = [point.attributes for point in memory.points("tilelang.compile.stalls")]
    assert stalls == [{"tilelang.work.name": "codegen cuda"}, {"tvm.pass.name": "Slow"}]
    [after] = memory.points("tilelang.compile.after_warmup")
    assert after.value == 1
    assert after.attributes == {"tilelang.kernel.name": "k", "tvm.target.kind": "cuda"}
    [own] = memory.points("tilelang.telemetry.duration")
    assert (own.unit, own.count, own.value, own.attributes) == ("s", 1, 0.0003, {})


# -- exemplars --------------------------------------------------------------------------


def test_exemplars_link_the_span_of_the_record(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """Each record its own, not whatever span is current where it is counted."""
    spans = SpanMemory()
    tracer = spans.provider.get_tracer("test")
    of_pass, of_compile = tracer.start_span("A"), tracer.start_span("compile k")
    frame, record = finished_pass("A"), finished_compile(failure=Failure("ValueError"))
    contexts = {id(frame): of_pass, id(record): of_compile}
    with tracer.start_as_current_span("something else"):
        instruments.finished(
            [frame, record], lambda record: set_span_in_context(contexts[id(record)])
        )

    def ids(span: Any) -> tuple[tuple[str, str]]:
        context = span.get_span_context()
        return ((f"{context.trace_id:032x}", f"{context.span_id:016x}"),)

    names = ("tvm.pass.duration", "tilelang.compile.duration", "tilelang.compile.failures")
    assert {point.metric: point.exemplars for point in memory.points(*names)} == {
        "tvm.pass.duration": ids(of_pass),
        "tilelang.compile.duration": ids(of_compile),
        "tilelang.compile.failures": ids(of_compile),
    }


def test_unsampled_compiles_count_and_have_no_exemplar(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """An exemplar would lead to a trace that nobody has."""
    span = SpanMemory(sampler=ALWAYS_OFF).provider.get_tracer("test").start_span("compile k")
    instruments.finished([finished_compile()], lambda record: set_span_in_context(span))
    [point] = memory.points("tilelang.compile.duration")
    assert (point.count, point.exemplars) == (1, ())
