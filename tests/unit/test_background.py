"""Spans of finished compiles are made by one thread: once each, in order, in its own time."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_tvm import callbacks_for, pass_context, run
from tests.support.metrics import MetricMemory
from tests.support.observers import observed
from tests.support.spans import SpanMemory, assert_sound, outline
from tests.support.threads import in_threads
from tilelang_otel import OTelPassObserver, _activity, _background, _providers, _routes
from tilelang_otel._background import Pace
from tilelang_otel._providers import Facts

_DEADLINE_S = 20.0
_NO_THREAD = -1


class _Provider:
    """Counts how often it is flushed."""

    def __init__(self, flush: Callable[[], None] = lambda: None) -> None:
        self.flushes: list[int] = []
        self.made = 0
        self._flush = flush

    def force_flush(self, timeout_millis: int) -> bool:
        """Take note of how much was made by then."""
        self.flushes.append(self.made)
        self._flush()
        return True


class _Job:
    """Spans that are to be made, and who made them.

    Args:
        provider: Whose spans.
        size: How many.
        work: What is done first.
    """

    def __init__(
        self, provider: Any = None, size: int = 1, work: Callable[[], None] = lambda: None
    ) -> None:
        self.provider = provider
        self.size = size
        self.was_given_up = False
        self.thread = ""
        self._work = work

    def run(self, pace: Pace) -> None:
        """Make them one chunk after the other."""
        self.thread = threading.current_thread().name
        self._work()
        for start in range(0, self.size, pace.chunk):
            made = min(pace.chunk, self.size - start)
            if isinstance(self.provider, _Provider):
                self.provider.made += made
            pace.made(made)

    def give_up(self) -> None:
        """Take note of that."""
        self.was_given_up = True


@pytest.fixture
def worker() -> Iterator[_background._Worker]:
    """Yield a worker of the test's own."""
    worker = _background._Worker()
    yield worker
    if worker._courier is not None:
        worker._courier.close()


@pytest.fixture
def background(worker: _background._Worker, monkeypatch: pytest.MonkeyPatch) -> _background._Worker:
    """Have recordings use the worker of the test's own."""
    monkeypatch.setattr(_background, "send", worker.send)
    return worker


class _Busy:
    """A compile that has just called back, and will again: its clock stands still."""

    def __init__(self) -> None:
        self.current: Any = SimpleNamespace(start_ns=0, last_ns=0)
        self.is_muted = False
        self.now_ns: Callable[[], int] = lambda: 0

    def __enter__(self) -> _Busy:
        _activity._State.stacks[_NO_THREAD] = [self]
        return self

    def __exit__(self, *error: object) -> None:
        del _activity._State.stacks[_NO_THREAD]


def test_jobs_are_done_in_order_by_one_thread(worker: _background._Worker) -> None:
    """Whoever sends them goes on at once; all of it is done once somebody waits for it."""
    done: list[int] = []
    jobs = [_Job(work=lambda n=number: done.append(n)) for number in range(50)]
    for job in jobs:
        worker.send(job)
    assert worker.drain(_DEADLINE_S)
    assert done == list(range(50))
    assert {job.thread for job in jobs} == {"tilelang-otel-spans"}


def test_what_is_sent_last_of_all_is_waited_for_as_well(worker: _background._Worker) -> None:
    """It comes after all that was sent before, and may send more."""
    done: list[str] = []
    worker.send(_Job(work=lambda: done.append("first")))

    def last() -> None:
        done.append("last")
        worker.send(_Job(work=lambda: done.append("of the last")))

    assert worker.start_drain(last).wait(_DEADLINE_S)
    assert done == ["first", "last", "of the last"]


def test_last_of_all_is_done_at_once_where_there_is_no_thread(
    worker: _background._Worker,
) -> None:
    """As everything else is."""
    done: list[str] = []
    assert worker.start_drain(lambda: done.append(threading.current_thread().name)).wait(0)
    assert done == [threading.current_thread().name]


def test_job_that_raises_costs_no_other(worker: _background._Worker, swallowing: None) -> None:
    """The thread lives on, and nothing counts as waiting."""

    def fail() -> None:
        raise RuntimeError("broken provider")

    after = _Job()
    worker.send(_Job(work=fail))
    worker.send(after)
    assert worker.drain(_DEADLINE_S)
    assert after.thread == "tilelang-otel-spans"
    assert worker.close() == 0


def test_queue_of_the_exporter_is_emptied_before_it_overflows(
    worker: _background._Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many spans there are, no more than half of the queue is made in between."""
    monkeypatch.setattr(_providers, "_known", [])
    provider = _Provider()
    _providers.remember(provider, Facts(is_ours=True, queue_spans=100))
    for size in (30, 500, 7):
        worker.send(_Job(provider, size))
    assert worker.drain(_DEADLINE_S)
    counts = [0, *provider.flushes, provider.made]
    assert provider.made == 537
    assert max(b - a for a, b in itertools.pairwise(counts)) < 50 + _background._CHUNK


def test_spans_wait_while_a_compile_needs_python(worker: _background._Worker) -> None:
    """Nothing is made meanwhile, unless somebody waits for it."""
    started = threading.Event()
    job = _Job(work=started.set)
    with _Busy():
        worker.send(job)
        assert not started.wait(0.1)
        assert worker.drain(_DEADLINE_S)
        assert started.is_set()


def test_spans_wait_for_compiles_no_longer_than_a_bound(
    worker: _background._Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that compiles all the time still gets its spans out."""
    monkeypatch.setattr(_background, "_DEFER_S", 0.05)
    started = threading.Event()
    with _Busy():
        worker.send(_Job(work=started.set))
        assert started.wait(_DEADLINE_S), "not made although the bound is over"


def test_quiet_is_when_no_compile_has_called_back_for_a_while() -> None:
    """Then it is in C++, and needs no Python; one that has just ended is not quiet."""
    _activity._State.last_end_s = 0.0
    assert _activity.is_quiet()
    with _Busy() as busy:
        assert not _activity.is_quiet()
        busy.now_ns = lambda: 5_000_000
        assert _activity.is_quiet()
        busy.current.last_ns = 4_000_000
        assert not _activity.is_quiet()
    _activity.ended()
    assert not _activity.is_quiet()
    _activity._State.last_end_s = 0.0


def test_more_than_may_wait_is_dropped_and_said(
    worker: _background._Worker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Memory is bounded; what is started is ended, and the first drop is warned about."""
    monkeypatch.setattr(_background, "_MAX_WAITING", 10)
    may_go = threading.Event()
    jobs = [_Job(size=6, work=lambda: _wait_for(may_go)) for _ in range(3)]
    for job in jobs:
        worker.send(job)
    may_go.set()
    assert worker.drain(_DEADLINE_S)
    assert [job.was_given_up for job in jobs] == [False, True, True]
    assert worker.lost == 12
    assert len(caplog.messages) == 1
    assert worker.close() == 12


def test_closed_worker_leaves_the_work_to_whoever_has_it(worker: _background._Worker) -> None:
    """When the process ends, nobody would do it later."""
    worker.prepare()
    worker.close()
    job = _Job()
    worker.send(job)
    assert job.thread == threading.current_thread().name


def test_thread_of_the_worker_does_not_wait_for_itself(worker: _background._Worker) -> None:
    """A provider that is flushed by it would come back here."""
    answers: list[bool] = []
    worker.send(_Job(work=lambda: answers.append(worker.drain(_DEADLINE_S))))
    assert worker.drain(_DEADLINE_S)
    assert answers == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_child_makes_its_own_spans_at_once_and_none_of_the_parents(
    memory: SpanMemory, background: _background._Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is the parent's; the child has no thread, and may leave at any moment."""
    callbacks = observed(memory.provider, background=True)
    with _Busy():
        with pass_context(callbacks):
            run(callbacks, "Parent")
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                background.forked()
                with pass_context(callbacks):
                    run(callbacks, "Child")
                os.write(writing, repr(outline(memory.spans)).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(reading, 1000).decode() == repr(["PassContext", "  Child"])
        os.close(reading)
        os.close(writing)
        assert background.drain(_DEADLINE_S)
    assert outline(memory.spans) == ["PassContext", "  Parent"]


def test_compiles_recorded_for_the_background_come_whole_and_once(
    memory: SpanMemory, background: _background._Worker
) -> None:
    """From several threads, in parts and not, with failures: the same trees as inline."""
    callbacks = observed(memory.provider, background=True, part_spans=7)

    def compile_() -> None:
        with pass_context(callbacks):
            for _ in range(20):
                run(callbacks, "A", lambda: run(callbacks, "B"))
            run(callbacks, "Bad", _boom)

    def compile_in_vain(_: int) -> None:
        with pytest.raises(ValueError, match="boom"):
            compile_()

    in_threads(3, compile_in_vain)
    assert background.drain(_DEADLINE_S)
    assert sorted(outline(memory.spans)) == sorted(
        ["PassContext!", *["  A", "    B"] * 20, "  Bad!*"] * 3
    )
    assert_sound(memory.spans)


def test_root_that_is_sent_to_the_background_is_over_when_the_compile_is(
    memory: SpanMemory, background: _background._Worker
) -> None:
    """Its end is when the compile ended, not when somebody came to make its spans."""
    callbacks = observed(memory.provider, background=True)
    with _Busy():
        with pass_context(callbacks):
            run(callbacks, "A")
        assert memory.spans == ()
        assert background.drain(_DEADLINE_S)
    [child, root] = memory.spans
    assert root.end_time is not None
    assert child.end_time is not None
    assert root.end_time == child.end_time + 1


def test_process_that_was_not_forked_flushes_nothing_by_itself() -> None:
    """A parent flushes nothing by itself."""
    assert not _routes._Child.flushes


def _boom() -> None:
    raise ValueError("boom")


def _wait_for(event: threading.Event) -> None:
    assert event.wait(_DEADLINE_S)


def test_compile_that_finds_no_room_still_ends_its_root(
    memory: SpanMemory, background: _background._Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans of its passes are lost, and counted; metrics, and what others have joined, are not."""
    monkeypatch.setattr(_background, "_MAX_WAITING", 3)
    metrics = MetricMemory()
    callbacks = callbacks_for(
        OTelPassObserver(memory.provider, meter_provider=metrics.provider, background=True)
    )
    with pass_context(callbacks):
        for _ in range(5):
            run(callbacks, "A")
    assert outline(memory.spans) == ["PassContext"]
    assert background.lost == 6
    [point] = metrics.points("tvm.pass.duration")
    assert point.count == 5
