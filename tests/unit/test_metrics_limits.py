"""Metrics within bounds: of series, of who asks for them, of what goes wrong, of forks."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SDKMeterProvider

from tests.support.metrics import MetricMemory
from tests.support.records import finished_compile, finished_pass
from tilelang_otel import _metrics, semconv
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
            return finished_pass(value)
        if attribute == "tvm.pass.phase":
            return finished_pass("A", phase=value)
        if attribute == "error.type":
            return finished_compile(failure=Failure(value))
        return finished_compile(tilelang_kernel_name=value)

    values = [f"v{number:04}" for number in range(limit + 50)]
    instruments.finished([record(value) for value in (*values, "v0000")], _nowhere)
    points = memory.points(metric)
    counts = {p.attributes[attribute]: p.value if p.count is None else p.count for p in points}
    rest = "_OTHER" if attribute == "error.type" else "other"
    assert len(counts) == limit + 1
    assert counts.pop(rest) == 50
    assert counts.pop("v0000") == 2
    assert set(counts.values()) == {1}


class _Meeting(dict[str, str]):
    """Lets whoever asks for its size wait for a second one to ask, if there can be one."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2)

    def __len__(self) -> int:
        size = super().__len__()
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(0.2)
        return size


def test_threads_that_come_at_once_do_not_exceed_the_limit(
    monkeypatch: pytest.MonkeyPatch, instruments: Instruments
) -> None:
    """Room for one more is not room for one more of each thread."""
    names = _metrics._limits[semconv.TILELANG_KERNEL_NAME]
    monkeypatch.setattr(names, "_limit", 1)
    monkeypatch.setattr(names, "_known", _Meeting())
    threads = [
        threading.Thread(
            target=instruments.compiled_at_runtime, args=({"tilelang.kernel.name": name},)
        )
        for name in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(list(names._known)) == 1


def test_names_that_are_no_text_are_made_fit(
    memory: MetricMemory, instruments: Instruments
) -> None:
    """One bad name would make a backend refuse the whole export."""
    instruments.finished([finished_pass("a\nb\ud800" + "x" * 1000), finished_pass("")], _nowhere)
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
        instruments.finished(
            [finished_pass("A"), finished_pass("B"), finished_compile()], context_of
        )
        instruments.stalled(finished_pass("A"))
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
    monkeypatch.setattr(sys.modules[__name__], "_before_fork", [forking])
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
