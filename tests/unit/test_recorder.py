"""What adapters record with: whole compiles and named pieces of work. No compiler."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import sampling
from opentelemetry.trace import SpanKind

from tests.support.broken import BROKEN_CALLS, BrokenProvider
from tests.support.fake_tvm import pass_context, run
from tests.support.observers import WALL_NS, observed
from tests.support.spans import SpanMemory, Ticks, assert_sound, outline, trees
from tests.support.threads import in_threads
from tilelang_otel._host import Clock
from tilelang_otel._recorder import Recorder
from tilelang_otel._scopes import Describe


def _recorder(memory: SpanMemory, **settings: Any) -> Recorder:
    from tilelang_otel._config import read_settings

    clock = Clock(lambda: WALL_NS, Ticks())
    return Recorder(memory.provider, read_settings(**settings), clock)


def _named(name: str, **attributes: Any) -> Describe:
    return lambda: (name, {key.replace("_", "."): value for key, value in attributes.items()})


def _unasked() -> tuple[str, dict[str, Any]]:
    raise AssertionError("nobody records, so nobody should ask")


def test_compile_with_work_and_passes_becomes_one_tree(memory: SpanMemory) -> None:
    """The compile is current while it lasts; passes and work are below it, in order."""
    recorder = _recorder(memory)
    callbacks = observed(memory.provider)
    with recorder.compile_scope(_named("compile main", tvm_target_kind="llvm")) as scope:
        assert scope.is_outermost
        current = trace.get_current_span()
        with pass_context(callbacks):
            run(callbacks, "A")
        with recorder.work(_named("codegen llvm")) as work:
            work.set_attribute("late", 1)
            with recorder.work(_named("g++"), is_client=True):
                pass
        scope.set_attribute("size", 7)
    assert outline(memory.spans, "tvm.target.kind", "late", "size") == [
        "compile main llvm 7",
        "  A",
        "  codegen llvm 1",
        "    g++",
    ]
    assert memory.named("g++").kind is SpanKind.CLIENT
    assert memory.named("compile main").context == current.get_span_context()
    assert not trace.get_current_span().get_span_context().is_valid
    assert_sound(memory.spans)


def test_times_are_those_of_entry_and_exit(memory: SpanMemory) -> None:
    """Each scope reads the clock once at each end."""
    recorder = _recorder(memory)
    with recorder.compile_scope(_named("compile")), recorder.work(_named("link")):
        pass
    [root] = trees(memory.spans, with_times=True)
    assert root.times == (WALL_NS, WALL_NS + 3)
    assert root.children[0].times == (WALL_NS + 1, WALL_NS + 2)


def test_work_outside_of_a_compile_is_not_recorded(memory: SpanMemory) -> None:
    """Not even described."""
    recorder = _recorder(memory)
    with recorder.work(_unasked) as work:
        work.set_attribute("a", 1)
        work.fail(ValueError("x"))
    recorder.annotate("b", 2)
    assert work.record is None
    assert memory.spans == ()


def test_entry_points_that_call_each_other_share_one_span(memory: SpanMemory) -> None:
    """The inner one adds what it knows; what a pass or other work compiles is its own."""
    recorder = _recorder(memory)
    with recorder.compile_scope(_named("compile")):
        with recorder.compile_scope(_named("compile main", tilelang_kernel_name="main")) as inner:
            assert not inner.is_outermost
        with recorder.work(_named("tune")), recorder.compile_scope(_named("compile part")):
            pass
    assert outline(memory.spans) == ["compile main", "  tune", "    compile part"]


@pytest.mark.parametrize("where", ["compile", "work"])
def test_exception_leaves_unchanged_and_marks_what_it_left(where: str, memory: SpanMemory) -> None:
    """Once, on the innermost; an exception that is false in a boolean context too."""

    class EmptyError(Exception):
        def __bool__(self) -> bool:
            return False

    recorder = _recorder(memory)
    error = EmptyError("nothing in it")

    def compile_() -> None:
        with recorder.compile_scope(_named("compile")):
            if where == "compile":
                raise error
            with recorder.work(_named("link")):
                raise error

    with pytest.raises(EmptyError) as caught:
        compile_()
    assert caught.value is error
    expected = {"compile": ["compile!*"], "work": ["compile!", "  link!*"]}
    assert outline(memory.spans) == expected[where]


def test_failure_that_no_exception_shows_can_be_told(memory: SpanMemory) -> None:
    """And a scope may decide that what leaves it is no failure."""
    recorder = _recorder(memory)
    with recorder.compile_scope(_named("compile")) as scope:
        with recorder.work(_named("g++")) as work:
            work.fail(RuntimeError("exit code 1"))
        scope.set_outcome(None)
    assert outline(memory.spans) == ["compile", "  g++!*"]


def test_unsampled_compile_is_muted_but_current() -> None:
    """What it starts belongs to its trace, and is not sampled either."""
    memory = SpanMemory(sampling.ALWAYS_OFF)
    recorder = _recorder(memory)
    with recorder.compile_scope(_named("compile")) as scope:
        assert scope.is_muted
        context = trace.get_current_span().get_span_context()
        assert context.is_valid
        assert not context.trace_flags.sampled
        with recorder.work(_unasked):
            pass
        with recorder.compile_scope(_unasked) as inner:
            assert inner.is_muted
    assert memory.spans == ()


def test_each_thread_has_its_own_compile(memory: SpanMemory) -> None:
    """Work in another thread, without its context, is not below this compile."""
    recorder = _recorder(memory)
    together = threading.Barrier(2, timeout=10)

    def compile_(number: int) -> None:
        with recorder.compile_scope(_named(f"compile {number}")):
            together.wait()
            with recorder.work(_named(f"link {number}")):
                together.wait()

    in_threads(2, compile_)
    lines = outline(memory.spans)
    expected = [[f"compile {n}", f"  link {n}"] for n in range(2)]
    assert lines in (expected[0] + expected[1], expected[1] + expected[0])


def test_work_started_early_for_a_part_keeps_its_late_attributes(memory: SpanMemory) -> None:
    """A pass inside of it makes a part due, and the work goes on."""
    recorder = _recorder(memory, part_spans=1)
    callbacks = observed(memory.provider)
    compile_, lower = recorder.compile_scope(_named("compile")), _named("lower", early=1)
    with compile_, recorder.work(lower) as work, pass_context(callbacks):
        run(callbacks, "A")
        run(callbacks, "B")
        assert [span.name for span in memory.spans] == ["A", "B"]
        work.set_attribute("late", 2)
    assert outline(memory.spans, "early", "late") == ["compile", "  lower 1 2", "    A", "    B"]


@pytest.mark.usefixtures("swallowing")
def test_description_that_fails_costs_its_span_only(memory: SpanMemory) -> None:
    """Reading a name off a strange object may raise: the compile goes on."""

    def strange() -> tuple[str, dict[str, Any]]:
        raise LookupError("no name")

    recorder = _recorder(memory)
    with recorder.compile_scope(strange), recorder.work(_unasked):
        pass
    with recorder.compile_scope(_named("compile")), recorder.work(strange) as work:
        work.set_attribute("a", 1)
    assert outline(memory.spans) == ["compile"]


@pytest.mark.usefixtures("swallowing")
@pytest.mark.parametrize("call", BROKEN_CALLS)
def test_broken_provider_raises_into_no_scope(call: str, memory: SpanMemory) -> None:
    """The user's exception comes out, and nothing stays current."""
    recorder = Recorder(BrokenProvider(memory.provider, call))

    def compile_() -> None:
        with recorder.compile_scope(_named("compile")) as scope:
            scope.set_attribute("a", 1)
            with recorder.work(_named("link")) as work:
                work.set_attribute("b", 2)
                raise ValueError("the user's")

    for _ in range(2):
        with pytest.raises(ValueError, match="the user's") as caught:
            compile_()
        assert caught.value.__context__ is None
