"""What is reported while it runs, when, and what is not. No compiler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace

from tests.support.fake_tvm import pass_context, run
from tests.support.metrics import MetricMemory, Point
from tests.support.observers import WALL_NS, observed
from tests.support.services import poll_until
from tests.support.spans import SpanMemory
from tests.support.threads import in_threads
from tilelang_otel import _watchdog
from tilelang_otel._config import read_settings
from tilelang_otel._host import Clock
from tilelang_otel._recorder import Recorder
from tilelang_otel._recording import Recording, active_recordings
from tilelang_otel._scopes import Describe
from tilelang_otel._watchdog import Watchdog

_SECOND_NS = 1_000_000_000


class _Time:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        """Move on."""
        self.now_ns += int(seconds * _SECOND_NS)


@pytest.fixture
def clock() -> _Time:
    """The clock of what is recorded in a test."""
    return _Time()


@pytest.fixture
def watchdog() -> Watchdog:
    """A watchdog with a limit of 10 s that looks when the test says so."""
    watchdog = Watchdog(active_recordings)
    watchdog._limit_ns = 10 * _SECOND_NS
    return watchdog


@pytest.fixture
def reports(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return what was logged since the last call."""
    caplog.set_level(logging.WARNING, "tilelang_otel._watchdog")

    def read() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return read


@pytest.fixture
def recorder(memory: SpanMemory, clock: _Time) -> Recorder:
    """Who records a test's compiles."""
    return Recorder(memory.provider, read_settings(), Clock(lambda: WALL_NS, clock))


def _wait_until(is_so: Callable[[], object], awaited: str) -> None:
    poll_until(is_so, awaited, every_s=0.002)


def _look_elsewhere(watchdog: Watchdog) -> None:
    def body(number: int) -> None:
        watchdog.look()

    in_threads(1, body)


def _named(name: str) -> Describe:
    return lambda: (name, {})


def test_pass_over_the_limit_is_reported_at_once_and_at_each_doubling(
    memory: SpanMemory,
    clock: _Time,
    watchdog: Watchdog,
    recorder: Recorder,
    reports: Callable[[], list[str]],
) -> None:
    """In the log while it runs, and on the compile's span when that ends."""
    callbacks = observed(memory.provider, monotonic_ns=clock)
    looks: list[tuple[float | None, list[str]]] = []

    def body() -> None:
        for seconds in (9.5, 0.5, 5, 25, 1):
            clock.pass_s(seconds)
            looks.append((watchdog.look(), reports()))

    with recorder.compile_scope(_named("compile main")), pass_context(callbacks):
        run(callbacks, "Slow", body)
    report = "Slow has been running for {} s in compile main, thread MainThread"
    assert looks == [
        (0.5, []),
        (10, [report.format(10)]),
        (5, []),
        (10, [report.format(40)]),
        (10, []),
    ]
    [root] = [span for span in memory.spans if span.parent is None]
    assert [(e.name, dict(e.attributes or {}), e.timestamp - WALL_NS) for e in root.events] == [
        (
            "tilelang.stall",
            {
                "tvm.pass.name": "Slow",
                "tilelang.stall.duration": float(seconds),
                "thread.name": "MainThread",
            },
            seconds * _SECOND_NS,
        )
        for seconds in (10, 40)
    ]


def test_report_of_outer_pass_names_what_runs_inside(
    memory: SpanMemory,
    clock: _Time,
    watchdog: Watchdog,
    recorder: Recorder,
    reports: Callable[[], list[str]],
) -> None:
    """A sequence that takes long says where it is, and that is not reported itself."""
    callbacks = observed(memory.provider, monotonic_ns=clock)

    def inner() -> None:
        clock.pass_s(3)
        watchdog.look()

    def outer() -> None:
        clock.pass_s(8)
        run(callbacks, "Inner", inner)

    with recorder.compile_scope(_named("compile main")), pass_context(callbacks):
        run(callbacks, "Outer", outer)
    assert reports() == [
        "Outer has been running for 11 s in compile main, thread MainThread; for 3 s now, in Inner"
    ]


def test_chain_of_stalled_passes_is_one_report(
    memory: SpanMemory,
    clock: _Time,
    watchdog: Watchdog,
    reports: Callable[[], list[str]],
    recorder: Recorder,
) -> None:
    """Of the innermost; what it is in is told of once that goes on without it."""
    callbacks = observed(memory.provider, monotonic_ns=clock)
    looks: list[tuple[float | None, list[str]]] = []

    def look(seconds: float) -> None:
        clock.pass_s(seconds)
        looks.append((watchdog.look(), reports()))

    def outer() -> None:
        run(callbacks, "Inner", lambda: [look(10), look(10)])
        look(1)

    with recorder.compile_scope(_named("compile main")), pass_context(callbacks):
        run(callbacks, "Outer", outer)
    within = "has been running for {} s in compile main, thread MainThread"
    assert looks == [
        (10, ["Inner " + within.format(10)]),
        (10, ["Inner " + within.format(20)]),
        (10, ["Outer " + within.format(21)]),
    ]


@pytest.mark.parametrize(
    ("name", "is_reported"),
    [("codegen cuda", True), ("nvcc", True), ("lower", False), ("adapter", False)],
)
def test_work_is_reported_and_containers_are_not(
    name: str,
    is_reported: bool,
    clock: _Time,
    watchdog: Watchdog,
    recorder: Recorder,
    reports: Callable[[], list[str]],
) -> None:
    """What only holds other work together hangs in none of its own."""
    with recorder.compile_scope(_named("compile main")), recorder.work(_named(name)):
        clock.pass_s(10)
        watchdog.look()
    line = f"{name} has been running for 10 s in compile main, thread MainThread"
    assert reports() == ([line] if is_reported else [])


def test_whole_compiles_and_pass_contexts_are_not_reported(
    memory: SpanMemory,
    clock: _Time,
    watchdog: Watchdog,
    recorder: Recorder,
    reports: Callable[[], list[str]],
) -> None:
    """However long they take, as long as nothing in them does."""
    callbacks = observed(memory.provider, monotonic_ns=clock)
    with (
        recorder.compile_scope(_named("autotune k"), kind="autotune"),
        recorder.compile_scope(_named("compile k")),
        recorder.compile_scope(_named("benchmark k"), kind="benchmark"),
    ):
        clock.pass_s(100)
        watchdog.look()
    with pass_context(callbacks):
        clock.pass_s(100)
        assert watchdog.look() == 10
    assert reports() == []


def test_stall_is_counted_once_for_each_pass(
    memory: SpanMemory,
    clock: _Time,
    watchdog: Watchdog,
) -> None:
    """However often it is reported; the exemplar leads to the compile."""
    metrics = MetricMemory()
    recorder = Recorder(
        memory.provider, read_settings(), Clock(lambda: WALL_NS, clock), metrics.provider
    )
    with recorder.compile_scope(_named("compile main")):
        for _ in range(2):
            with recorder.work(_named("nvcc")):
                for _ in range(3):
                    clock.pass_s(20)
                    _look_elsewhere(watchdog)
    compile_ = memory.named("compile main").context
    assert compile_ is not None
    ids = (f"{compile_.trace_id:032x}", f"{compile_.span_id:016x}")
    assert metrics.points("tilelang.compile.stalls") == [
        Point(
            "tilelang.compile.stalls",
            "{stall}",
            {"tilelang.work.name": "nvcc"},
            2,
            exemplars=(ids,),
        )
    ]


def test_log_line_is_in_the_trace_of_the_compile(
    clock: _Time, watchdog: Watchdog, recorder: Recorder
) -> None:
    """Although another thread writes it; what it is about is there as attributes too."""
    seen: list[tuple[Any, Any]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            context = trace.get_current_span().get_span_context()
            seen.append((context, vars(record)["tilelang.work.name"]))

    handler = Handler()
    logger = logging.getLogger("tilelang_otel._watchdog")
    logger.addHandler(handler)
    try:
        with recorder.compile_scope(_named("compile main")), recorder.work(_named("nvcc")):
            clock.pass_s(10)
            _look_elsewhere(watchdog)
            compile_ = trace.get_current_span().get_span_context()
    finally:
        logger.removeHandler(handler)
    assert seen == [(compile_, "nvcc")]


def test_events_of_one_compile_are_bounded(
    memory: SpanMemory, clock: _Time, watchdog: Watchdog, recorder: Recorder
) -> None:
    """A compile of any length, and any limit, keeps a bounded number of them."""
    with recorder.compile_scope(_named("compile main")):
        for _ in range(100):
            with recorder.work(_named("nvcc")):
                clock.pass_s(10)
                watchdog.look()
    assert len(memory.named("compile main").events) == 32


def test_nothing_is_kept_of_what_has_ended(
    clock: _Time, watchdog: Watchdog, recorder: Recorder
) -> None:
    """Not beyond the next look, after which there is no need for another."""
    with recorder.compile_scope(_named("compile main")), recorder.work(_named("nvcc")):
        clock.pass_s(10)
        watchdog.look()
        assert (len(watchdog._due_ns), len(watchdog._events)) == (1, 1)
    assert watchdog.look() is None
    assert (watchdog._due_ns, watchdog._events) == ({}, {})


# -- the thread --------------------------------------------------------------------------


class _Looks:
    """Gives a watchdog its list, and tells when it asked."""

    def __init__(self) -> None:
        self.count = 0
        self.recordings: list[Recording] = []

    def __call__(self) -> list[Recording]:
        self.count += 1
        return self.recordings


@pytest.fixture
def looks() -> _Looks:
    """What the watchdog of a test sees."""
    return _Looks()


@pytest.fixture
def threaded(looks: _Looks) -> Iterator[Watchdog]:
    """A watchdog with a thread, once it is called."""
    watchdog = Watchdog(looks)
    yield watchdog
    watchdog.stop()


def test_thread_sleeps_while_nothing_is_recorded_and_wakes_for_the_next(
    threaded: Watchdog, looks: _Looks
) -> None:
    """Without a deadline, so it costs nothing; one thread for all."""
    threaded.watch(0.02)
    thread = threaded._thread
    _wait_until(lambda: threaded._is_idle, "the watchdog sleeps")
    count = looks.count
    threaded.watch(0.02)
    _wait_until(lambda: looks.count > count, "it looks again")
    assert threaded._thread is thread


def test_recording_listed_only_after_the_call_is_seen(
    threaded: Watchdog,
    looks: _Looks,
    memory: SpanMemory,
    reports: Callable[[], list[str]],
) -> None:
    """The call comes while a recording begins: the thread doesn't go to sleep before."""
    recorder = Recorder(memory.provider, read_settings())
    threaded.watch(0.02)
    _wait_until(lambda: looks.count > 0, "the watchdog looked for the first time")
    with recorder.compile_scope(_named("compile")), recorder.work(_named("nvcc")):
        looks.recordings = active_recordings()
        found: list[str] = []
        _wait_until(lambda: bool(found.extend(reports()) or found), "nvcc is reported")
        looks.recordings = []
    assert found[0].startswith("nvcc has been running for 0.0")


def test_lower_limit_wakes_a_thread_that_sleeps_for_a_higher_one(
    threaded: Watchdog,
    looks: _Looks,
    memory: SpanMemory,
    reports: Callable[[], list[str]],
) -> None:
    """The lowest limit holds, from now on; a higher one that comes later changes nothing."""
    recorder = Recorder(memory.provider, read_settings())
    with recorder.compile_scope(_named("compile")), recorder.work(_named("nvcc")):
        looks.recordings = active_recordings()
        threaded.watch(1000)
        _wait_until(lambda: looks.count and not threaded._was_called, "the watchdog sleeps")
        threaded.watch(0.02)
        threaded.watch(1000)
        found: list[str] = []
        _wait_until(lambda: bool(found.extend(reports()) or found), "nvcc is reported")
        looks.recordings = []


def test_error_in_a_look_does_not_end_the_thread(
    threaded: Watchdog, looks: _Looks, swallowing: None
) -> None:
    """It is reported once, like any of ours, and the thread looks again."""

    class Broken:
        thread_name = "t"
        root = instruments = None

        @property
        def current(self) -> Any:
            raise LookupError("broken")

    looks.recordings = [Broken()]  # pyright: ignore[reportAttributeAccessIssue]
    threaded.watch(0.01)
    _wait_until(lambda: looks.count > 2, "it looks for the third time")
    looks.recordings = []


def test_option_starts_the_watchdog_that_all_share(
    memory: SpanMemory, reports: Callable[[], list[str]]
) -> None:
    """A recorder with a limit has its compiles watched."""
    recorder = Recorder(memory.provider, read_settings(stall_limit_s=0.02))
    found: list[str] = []
    try:
        with recorder.compile_scope(_named("compile")), recorder.work(_named("nvcc")):
            _wait_until(lambda: bool(found.extend(reports()) or found), "nvcc is reported")
    finally:
        _watchdog.stop()
    assert found[0].startswith("nvcc has been running for 0.0")
