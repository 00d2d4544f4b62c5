"""What counts in which metric, with which attributes, and for whom nothing is counted."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SDKMeterProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import set_span_in_context

from tests.support.metrics import MetricMemory
from tests.support.spans import SpanMemory
from tilelang_otel import _metrics, semconv
from tilelang_otel._frames import Failure, Frame, Record
from tilelang_otel._metrics import Instruments, Metrics


@pytest.fixture(autouse=True)
def fresh_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which names other tests have used up."""
    for names in _metrics._limits.values():
        monkeypatch.setattr(names, "_known", {})


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


def _frame(
    name: str, ms: float = 1, phase: str | None = None, failure: Failure | None = None
) -> Frame:
    frame = Frame()
    frame.name = name
    frame.phase = phase
    frame.start_ns, frame.end_ns = 1_000, 1_000 + int(ms * 1e6)
    frame.failure = failure
    return frame


def _compile(ms: float = 1, failure: Failure | None = None, **attributes: str) -> Record:
    record = Record()
    record.name = "compile k"
    record.scope_kind = semconv.SPAN_COMPILE
    record.start_ns, record.end_ns = 1_000, 1_000 + int(ms * 1e6)
    record.failure = failure
    record.attributes = {f"{name.replace('_', '.')}": value for name, value in attributes.items()}
    return record


def _nowhere(record: Record) -> Context | None:
    return None


# -- what counts ------------------------------------------------------------------------


def test_passes_are_timed_by_name_phase_and_error(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """In seconds; each run of a pass counts, failed ones by their exception."""
    instruments.finished(
        [
            _frame("A", 2, "tirx"),
            _frame("A", 3, "tirx"),
            _frame("A", 1),
            _frame("B", 5, failure=Failure("ValueError", "shapes (3, 4) do not match")),
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
    record = _compile(1500)
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
    instruments.finished([_frame("A"), _compile()], _nowhere)
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
            _frame("A", failure=failure),
            _compile(failure=failure, tilelang_kernel_name="k", tvm_target_kind="cuda"),
            _compile(failure=failure, tilelang_kernel_name="k", tvm_target_kind="llvm"),
            _compile(failure=failure),
            _compile(tilelang_kernel_name="k"),
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
    records = [_compile(tilelang_cache_result=result) for result in results]
    instruments.finished([*records, _compile()], _nowhere)
    counted = {
        p.attributes["tilelang.cache.result"]: p.value
        for p in memory.points("tilelang.cache.lookups")
    }
    assert counted == {"memory": 1, "disk": 2, "miss": 1}


def test_other_records_are_no_metric(memory: MetricMemory, instruments: Instruments) -> None:
    """Containers, compilers and runs of many compiles: their spans tell."""
    work, many = Record(), _compile()
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
    instruments.stalled(_frame("Slow"))
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
    frame, record = _frame("A"), _compile(failure=Failure("ValueError"))
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
    instruments.finished([_compile()], lambda record: set_span_in_context(span))
    [point] = memory.points("tilelang.compile.duration")
    assert (point.count, point.exemplars) == (1, ())


# -- an end to series -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "metric", "limit"),
    [
        ("tvm.pass.name", "tvm.pass.duration", 512),
        ("tvm.pass.phase", "tvm.pass.duration", 64),
        ("tilelang.kernel.name", "tilelang.compile.duration", 100),
        ("error.type", "tilelang.compile.failures", 64),
    ],
)
def test_what_programs_make_up_is_told_apart_up_to_a_limit(
    attribute: str, metric: str, limit: int, memory: MetricMemory, instruments: Instruments
) -> None:
    """The rest is one series, and what was known before the limit stays known."""

    def record(value: str) -> Record:
        if attribute == "tvm.pass.name":
            return _frame(value)
        if attribute == "tvm.pass.phase":
            return _frame("A", phase=value)
        if attribute == "error.type":
            return _compile(failure=Failure(value))
        return _compile(tilelang_kernel_name=value)

    values = [f"v{number:04}" for number in range(limit + 50)]
    instruments.finished([record(value) for value in (*values, "v0000")], _nowhere)
    points = memory.points(metric)
    counts = {p.attributes[attribute]: p.value if p.count is None else p.count for p in points}
    rest = "_OTHER" if attribute == "error.type" else "other"
    assert len(counts) == limit + 1
    assert counts.pop(rest) == 50
    assert counts.pop("v0000") == 2
    assert set(counts.values()) == {1}


def test_threads_that_count_at_once_do_not_exceed_the_limit(instruments: Instruments) -> None:
    """Each thread comes with kernels of its own; the limit is the process's."""
    barrier = threading.Barrier(4)

    def work(thread: int) -> None:
        barrier.wait(10)
        for number in range(200):
            instruments.compiled_at_runtime({"tilelang.kernel.name": f"k{thread}.{number}"})

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(_metrics._limits["tilelang.kernel.name"]._known) == 100


def test_names_that_are_no_text_are_made_fit(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """One bad name would make a backend refuse the whole export."""
    instruments.finished([_frame("a\nb\ud800" + "x" * 1000), _frame("")], _nowhere)
    names = [point.attributes["tvm.pass.name"] for point in memory.points("tvm.pass.duration")]
    assert names[0] == "(unnamed)"
    assert len(names[1]) <= 256
    assert names[1].encode().startswith(b"a b")


# -- for whom ---------------------------------------------------------------------------


@pytest.fixture
def global_provider(monkeypatch: pytest.MonkeyPatch) -> list[MeterProvider]:
    """Let a test decide which provider is the global one: the last of the list."""
    placeholder = metrics.get_meter_provider()
    providers = [placeholder]
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: providers[-1])
    return providers


def test_nobody_who_takes_metrics_gets_none(global_provider: list[MeterProvider]) -> None:
    """The API's placeholders, given or global, and an SDK that is disabled: no work at all."""
    assert type(global_provider[0]).__name__ == "_ProxyMeterProvider"
    assert Metrics().current() is None
    assert Metrics(NoOpMeterProvider()).current() is None
    global_provider.append(NoOpMeterProvider())
    assert Metrics().current() is None


def test_disabled_sdk_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its provider is a real one, whose meters take nothing."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert Metrics(SDKMeterProvider(shutdown_on_exit=False)).current() is None


def test_global_provider_is_looked_up_at_each_compile(
    global_provider: list[MeterProvider], memory: MetricMemory
) -> None:
    """It may be set long after us; the instruments of each are made once."""
    of_global = Metrics()
    assert of_global.current() is None
    global_provider.append(memory.provider)
    found = of_global.current()
    assert found is not None
    assert of_global.current() is found
    assert _metrics.Metrics(memory.provider).current() is not found
    found.compile_began()
    assert [point.value for point in memory.points("tilelang.compile.active")] == [1]


def test_given_provider_is_used_and_not_the_global_one(
    global_provider: list[MeterProvider], memory: MetricMemory
) -> None:
    """Who names one wants that one."""
    other = MetricMemory()
    global_provider.append(other.provider)
    found = Metrics(memory.provider).current()
    assert found is not None
    found.compile_began()
    assert other.points("tilelang.compile.active") == []
    assert [point.value for point in memory.points("tilelang.compile.active")] == [1]


# -- what goes wrong --------------------------------------------------------------------


class _Broken:
    """An instrument, or the whole meter, that raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_"):
            return lambda *args, **kwargs: _Broken()
        return self._fail

    def _fail(self, *args: Any) -> None:
        raise RuntimeError("broken instrument")


@pytest.mark.usefixtures("swallowing")
def test_broken_instruments_fail_no_compile(caplog: pytest.LogCaptureFixture) -> None:
    """They are logged, once for each place, and the rest of the records is still tried."""
    broken: Any = _Broken()
    instruments = Instruments(broken)
    tried: list[str] = []

    def context_of(record: Record) -> None:
        tried.append(record.name)

    with caplog.at_level(logging.WARNING):
        instruments.compile_began()
        instruments.compile_ended()
        instruments.finished([_frame("A"), _frame("B"), _compile()], context_of)
        instruments.stalled(_frame("A"))
        instruments.compiled_at_runtime({})
        instruments.telemetry(1)
    assert tried == ["A", "B", "compile k"]
    assert caplog.records
    assert {record.name for record in caplog.records} == {"tilelang_otel._guard"}


@pytest.mark.usefixtures("swallowing")
def test_provider_that_raises_is_no_provider(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is counted, and the compile goes on."""
    provider: Any = type("Provider", (), {"get_meter": _Broken()._fail})()
    assert Metrics(provider).current() is None
    assert [record.name for record in caplog.records] == ["tilelang_otel._guard"]


# -- fork -------------------------------------------------------------------------------


class _Locked:
    """A histogram with a lock around its sum, as the SDK's; stays in it when told to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_in = threading.Event()
        self.may_leave = threading.Event()
        self.stays = False

    def record(self, *args: Any) -> None:
        with self.lock:
            if self.stays:
                self.is_in.set()
                self.may_leave.wait(10)


class _LockedMeter:
    def __init__(self) -> None:
        self.histogram = _Locked()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.histogram


_before_fork: list[threading.Event] = []
if hasattr(os, "register_at_fork"):
    # Called before ours, which was registered earlier.
    os.register_at_fork(before=lambda: [event.set() for event in _before_fork])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_child_forked_while_another_thread_counts_can_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would inherit the locks of the SDK as they are, and wait for ever in a compile."""
    meter: Any = _LockedMeter()
    histogram = meter.histogram
    instruments = Instruments(meter)
    histogram.stays = True
    counting = threading.Thread(target=instruments.telemetry, args=(1,))
    counting.start()
    assert histogram.is_in.wait(10)
    forking = threading.Event()
    monkeypatch.setattr(__import__(__name__, fromlist=["_"]), "_before_fork", [forking])
    child = -1

    def fork() -> None:
        nonlocal child
        child = os.fork()
        if child == 0:
            histogram.stays = False
            is_free = histogram.lock.acquire(timeout=2)
            os._exit(0 if is_free else 1)

    thread = threading.Thread(target=fork)
    thread.start()
    assert forking.wait(10)
    histogram.may_leave.set()
    thread.join(10)
    counting.join(10)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
