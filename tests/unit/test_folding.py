"""How much of a compile gets spans, decided when it is known how it went. No compiler."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from tests.support.fake_tvm import pass_context, run
from tests.support.observers import WALL_NS, observed
from tests.support.spans import SpanMemory, Ticks, assert_sound, outline
from tilelang_otel import semconv
from tilelang_otel._config import read_settings
from tilelang_otel._folding import TraceBudget
from tilelang_otel._host import Clock
from tilelang_otel._recorder import Recorder
from tilelang_otel._scopes import Describe

_MS = 1_000_000
_FOLDED = (
    semconv.TILELANG_FOLDED_PASSES,
    semconv.TILELANG_FOLDED_NAMES,
    semconv.TILELANG_FOLDED_DURATIONS,
)


class _Compiler:
    """Compiles under a clock that only the test moves.

    Args:
        memory: Where spans go.
        **options: Options of the recorder and of the observer.
    """

    def __init__(self, memory: SpanMemory, **options: Any) -> None:
        # An end at 0 would be none.
        self.now_ns = 1
        clock = Clock(lambda: WALL_NS, lambda: self.now_ns)
        self.recorder = Recorder(memory.provider, read_settings(**options), clock)
        self.callbacks = observed(memory.provider, "frames", clock.monotonic_ns, **options)

    def compile(
        self, *passes: tuple[str, int], work: Callable[[], None] = lambda: None, name: str = "main"
    ) -> None:
        """Compile, with passes that take as many milliseconds as is said."""
        with self.recorder.compile_scope(_named(f"compile {name}")), pass_context(self.callbacks):
            for title, duration_ms in passes:
                run(self.callbacks, title, lambda ms=duration_ms: self.take(ms))
            work()

    def take(self, duration_ms: int) -> None:
        """Let time pass."""
        self.now_ns += duration_ms * _MS


def _named(name: str) -> Describe:
    return lambda: (name, {})


def _folded(span: ReadableSpan) -> tuple[Any, ...]:
    return tuple((span.attributes or {}).get(key) for key in _FOLDED)


def test_compile_is_emitted_whole_by_default(memory: SpanMemory) -> None:
    """Nothing is folded unless somebody asks for it."""
    _Compiler(memory).compile(("A", 1), ("B", 2))
    assert outline(memory.spans, *_FOLDED) == ["compile main", "  A", "  B"]


def test_fast_compile_of_a_slow_policy_is_one_span_that_sums_up_its_passes(
    memory: SpanMemory,
) -> None:
    """How many there were, and what took longest, the costliest first, all runs together."""
    compiler = _Compiler(memory, emit="slow", slow_s=1)
    compiler.compile(("A", 1), ("B", 20), *((name, 5) for name in "CDEFG"), ("A", 30))
    [span] = memory.spans
    assert span.name == "compile main"
    assert _folded(span) == (
        8,
        ("A", "B", "C", "D", "E"),
        (0.031, 0.02, 0.005, 0.005, 0.005),
    )


def test_time_inside_a_nested_pass_counts_once(memory: SpanMemory) -> None:
    """The sums are of self time, so that they add up to the compile's own."""
    compiler = _Compiler(memory, emit="compile")

    def outer() -> None:
        compiler.take(2)
        run(compiler.callbacks, "Inner", lambda: compiler.take(7))

    compiler.compile(work=lambda: run(compiler.callbacks, "Outer", outer))
    assert _folded(memory.named("compile main")) == (2, ("Inner", "Outer"), (0.007, 0.002))


def test_slow_compile_of_a_slow_policy_is_emitted_whole(memory: SpanMemory) -> None:
    """Whoever waited for it wants to know why; just as slow as the limit is slow."""
    compiler = _Compiler(memory, emit="slow", slow_s=1)
    compiler.compile(("A", 400), ("B", 600))
    assert outline(memory.spans, *_FOLDED) == ["compile main", "  A", "  B"]
    compiler.compile(("A", 400), ("B", 599))
    assert len(memory.take()) == 4


def test_failed_compile_of_a_slow_policy_is_emitted_whole(memory: SpanMemory) -> None:
    """However fast it failed; a failure that was caught on the way is none."""
    compiler = _Compiler(memory, emit="slow", slow_s=1)

    def fail() -> None:
        raise ValueError("no such layout")

    with pytest.raises(ValueError, match="no such layout"):
        compiler.compile(("A", 1), work=lambda: run(compiler.callbacks, "B", fail))
    assert outline(memory.take()) == ["compile main!", "  A", "  B!*"]

    def caught() -> None:
        with pytest.raises(ValueError, match="no such layout"):
            run(compiler.callbacks, "B", fail)

    compiler.compile(("A", 1), work=caught)
    assert outline(memory.spans, _FOLDED[0]) == ["compile main 2"]


def test_failed_compile_without_passes_tells_the_exception_itself(memory: SpanMemory) -> None:
    """The span that would have carried it is not there; where it happened is still said."""
    compiler = _Compiler(memory, emit="compile")

    def fail() -> None:
        raise ValueError("no such layout")

    with pytest.raises(ValueError, match="no such layout"):
        compiler.compile(("A", 1), work=lambda: run(compiler.callbacks, "B", fail))
    [span] = memory.spans
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        "failed in B",
    )
    [event] = span.events
    attributes = dict(event.attributes or {})
    assert attributes["exception.type"] == "ValueError"
    assert attributes["exception.message"] == "no such layout"
    assert "in fail" in str(attributes["exception.stacktrace"])
    assert (span.attributes or {})["error.type"] == "ValueError"


def test_compiles_of_one_run_are_decided_about_one_by_one(memory: SpanMemory) -> None:
    """A tuning run is slow in all; of its kernels only the slow one has its passes."""
    compiler = _Compiler(memory, emit="slow", slow_s=1)
    with compiler.recorder.compile_scope(_named("autotune main"), kind=semconv.SPAN_AUTOTUNE):
        compiler.compile(("A", 1), name="fast")
        compiler.compile(("A", 1500), name="slow")
    assert outline(memory.spans, _FOLDED[0]) == [
        "autotune main",
        "  compile fast 1",
        "  compile slow",
        "    A",
    ]
    assert_sound(memory.spans)


def test_compile_policy_leaves_the_spans_of_whole_compiles(memory: SpanMemory) -> None:
    """A run's root and each of its kernels, and nothing else."""
    compiler = _Compiler(memory, emit="compile")
    with compiler.recorder.compile_scope(_named("par_compile"), kind=semconv.SPAN_PAR_COMPILE):
        compiler.compile(("A", 9000), name="one")
        with compiler.recorder.work(_named("load")):
            compiler.take(1)
    assert outline(memory.spans, _FOLDED[0], _FOLDED[1]) == [
        "par_compile 0 ('load',)",
        "  compile one 1 ('A',)",
    ]


def test_pass_context_by_hand_is_folded_into_its_own_span(memory: SpanMemory) -> None:
    """Where no compile is seen, the context stands for it; without one, its passes do."""
    callbacks = observed(memory.provider, emit="compile")
    with pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B"))
    assert outline(memory.take(), _FOLDED[0]) == ["PassContext 2"]
    callbacks = observed(memory.provider, emit="compile", context_span=False)
    with pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B"))
    assert outline(memory.spans, _FOLDED[0]) == ["A 1"]


def test_long_compile_of_a_slow_policy_is_handed_on_once_it_is_slow(memory: SpanMemory) -> None:
    """What was kept until then comes too, and nothing is folded."""
    compiler = _Compiler(memory, emit="slow", slow_s=1, part_age_s=0.25)
    seen: list[int] = []

    def work() -> None:
        for name in "ABCDEFG":
            run(compiler.callbacks, name, lambda: compiler.take(250))
            seen.append(len(memory.spans))

    compiler.compile(work=work)
    assert seen == [0, 0, 0, 4, 5, 6, 7]
    assert outline(memory.spans, _FOLDED[0]) == ["compile main", *(f"  {n}" for n in "ABCDEFG")]
    assert_sound(memory.spans)


def test_endless_fast_compile_of_a_slow_policy_keeps_a_bounded_number_of_passes(
    memory: SpanMemory,
) -> None:
    """What there is no room for is summed up, although the compile may fail yet."""
    compiler = _Compiler(memory, emit="slow", slow_s=1, part_spans=10)
    kept: list[int] = []

    def work() -> None:
        for _ in range(95):
            run(compiler.callbacks, "A", lambda: None)
            recording = compiler.recorder.current()
            assert recording is not None
            kept.append(len(recording._records))
        raise ValueError("after all")

    with pytest.raises(ValueError, match="after all"):
        compiler.compile(work=work)
    assert max(kept) <= 10
    [*passes, root] = memory.spans
    assert _folded(root)[0] == 90
    assert [span.name for span in passes] == ["A"] * 5


def test_trace_that_has_its_spans_gets_folded_compiles_but_whole_failures(
    memory: SpanMemory,
) -> None:
    """A trace of a hundred thousand spans opens in no backend; a failure is always shown."""
    compiler = _Compiler(memory, trace_spans=10)
    with trace.get_tracer("test", tracer_provider=memory.provider).start_as_current_span("request"):
        for number in range(4):
            compiler.compile(("A", 1), ("B", 1), ("C", 1), name=str(number))

        def fail() -> None:
            raise ValueError("late")

        with pytest.raises(ValueError, match="late"):
            compiler.compile(("A", 1), work=fail, name="failed")
    compiler.compile(("A", 1), name="of another trace")
    # The request has the machine's clock, which is ahead of the test's.
    assert outline(memory.spans, _FOLDED[0]) == [
        *("compile of another trace", "  A"),
        "request",
        *("  compile 0", "    A", "    B", "    C"),
        *("  compile 1", "    A", "    B", "    C"),
        "  compile 2 3",
        "  compile 3 3",
        *("  compile failed!*", "    A"),
    ]


def test_long_compile_beyond_the_limit_of_its_trace_is_folded_on(memory: SpanMemory) -> None:
    """One compile alone can be too much for a trace."""
    clock = Ticks(itertools.count(0, _MS))
    callbacks = observed(memory.provider, "frames", clock, part_spans=10, trace_spans=25)
    with pass_context(callbacks):
        for _ in range(95):
            run(callbacks, "A")
    [*passes, root] = memory.spans
    assert len(passes) == 20
    assert _folded(root)[0] == 75


def test_trace_budget_forgets_the_oldest_trace() -> None:
    """A service that runs for a year remembers a bounded number of traces."""
    budget = TraceBudget(max_traces=2)
    assert budget.take(1, 10, limit=10)
    assert not budget.take(1, 1, limit=10)
    assert budget.take(2, 10, limit=10)
    assert budget.take(3, 10, limit=10)
    assert budget.take(1, 10, limit=10)
    assert not budget.take(3, 1, limit=10)


def test_unnumbered_trace_has_no_limit() -> None:
    """A compile that is not sampled is in no trace."""
    budget = TraceBudget()
    assert all(budget.take(0, 1000, limit=1) for _ in range(3))


@pytest.mark.parametrize("extent", ["all", "slow", "compile"])
def test_every_pass_name_apart_is_bounded(extent: str, memory: SpanMemory) -> None:
    """A compile whose passes all have names of their own is summed up in bounded memory."""
    compiler = _Compiler(memory, emit=extent, slow_s=1000, part_spans=100)
    with compiler.recorder.compile_scope(_named("compile")), pass_context(compiler.callbacks):
        for number in range(2000):
            run(compiler.callbacks, f"pass {number}")
        recording = compiler.recorder.current()
        assert recording is not None
        assert recording._emission is not None
        for total in recording._emission._folding._sums.values():
            assert len(total._own_ns) <= 513
    counts = {"all": 2001, "slow": 1, "compile": 1}
    assert len(memory.spans) == counts[extent]
