"""What the observer makes of a compile: whole trees, with exact times. No compiler."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry import trace

from tests.support.fake_tvm import Info, Module, pass_context, run, sequence
from tests.support.observers import MODES, WALL_NS, observed
from tests.support.spans import SpanMemory, SpanTree, assert_sound, outline, trees
from tests.support.threads import in_threads
from tilelang_otel import __version__
from tilelang_otel.events import pass_phase

_PASS = (
    "tvm.pass.name",
    "tvm.pass.sequence",
    "tvm.pass.depth",
    "tvm.pass.parent_sequence",
    "tvm.pass.phase",
    "tvm.pass.self_duration",
    "tvm.pass.incomplete",
    "tilelang.kernel.name",
)

pytestmark = pytest.mark.parametrize("mode", MODES)


def _at(start: int, end: int) -> tuple[int, int]:
    return WALL_NS + start, WALL_NS + end


def test_passes_of_a_context_become_one_tree_with_exact_times(
    mode: str, memory: SpanMemory
) -> None:
    """Times are those of the callbacks, self time is what the children leave."""
    callbacks = observed(memory.provider, mode)
    with pass_context(callbacks):
        sequence(callbacks, "Seq", [("A", None), ("B", None)])
    assert trees(memory.spans, *_PASS, with_times=True) == [
        SpanTree(
            "PassContext",
            times=_at(0, 7),
            children=(
                SpanTree(
                    "Seq",
                    {
                        "tvm.pass.name": "Seq",
                        "tvm.pass.sequence": 0,
                        "tvm.pass.depth": 0,
                        "tvm.pass.self_duration": 3e-9,
                    },
                    times=_at(1, 6),
                    children=tuple(
                        SpanTree(
                            name,
                            {
                                "tvm.pass.name": name,
                                "tvm.pass.sequence": sequence_,
                                "tvm.pass.depth": 1,
                                "tvm.pass.parent_sequence": 0,
                                "tvm.pass.self_duration": 1e-9,
                            },
                            times=_at(2 * sequence_, 2 * sequence_ + 1),
                        )
                        for name, sequence_ in (("A", 1), ("B", 2))
                    ),
                ),
            ),
        )
    ]
    assert_sound(memory.spans)


def test_spans_name_their_scope_version_and_conventions(mode: str, memory: SpanMemory) -> None:
    """A backend can tell who made them."""
    with pass_context(observed(memory.provider, mode)):
        pass
    scope = memory.named("PassContext").instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.version) == ("tilelang_otel", __version__)
    assert scope.schema_url is not None
    assert scope.schema_url.startswith("https://opentelemetry.io/schemas/")


def test_context_inside_a_span_becomes_its_child(mode: str, memory: SpanMemory) -> None:
    """A request or a training step that compiles shows it; the program's span stays current."""
    callbacks = observed(memory.provider, mode)
    tracer = memory.provider.get_tracer("program")
    with tracer.start_as_current_span("request") as request, pass_context(callbacks):
        run(callbacks, "A")
        assert trace.get_current_span() is request
    assert outline(memory.spans) == ["request", "  PassContext", "    A"]


def test_without_context_span_the_passes_are_children_of_what_is_current(
    mode: str, memory: SpanMemory
) -> None:
    """The option takes the context's span away, nothing else."""
    callbacks = observed(memory.provider, mode, context_span=False)
    tracer = memory.provider.get_tracer("program")
    with tracer.start_as_current_span("request"), pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B"))
    with pass_context(callbacks):
        run(callbacks, "C")
    assert outline(memory.spans) == ["C", "request", "  A", "    B"]


def test_filters_leave_out_passes_and_hang_their_children_higher(
    mode: str, memory: SpanMemory
) -> None:
    """Patterns are shell patterns; exclude wins; depth still counts what is left out."""
    callbacks = observed(
        memory.provider, mode, include=["tir.*", "Id"], exclude="tir.Bad*", context_span=False
    )
    with pass_context(callbacks):
        run(
            callbacks,
            "tir.Outer",
            lambda: run(callbacks, "tir.BadOne", lambda: run(callbacks, "Id")),
        )
        run(callbacks, "Other")
    assert outline(memory.spans, "tvm.pass.depth") == ["tir.Outer 0", "  Id 2"]


def test_capture_nested_false_gives_spans_at_depth_zero_only(mode: str, memory: SpanMemory) -> None:
    """What runs inside a pass is part of it."""
    callbacks = observed(memory.provider, mode, capture_nested=False)
    with pass_context(callbacks):
        sequence(callbacks, "Seq", [("A", None)])
    assert outline(memory.spans) == ["PassContext", "  Seq"]
    attributes = memory.named("Seq").attributes
    assert attributes is not None
    assert attributes["tvm.pass.self_duration"] == 1e-9


def test_phase_and_kernel_name_are_on_the_passes(mode: str, memory: SpanMemory) -> None:
    """The phase where there is one; the function's name where the module has just one."""
    callbacks = observed(memory.provider, mode, context_span=False)
    with pass_context(callbacks), pass_phase("pipeline_cuda"):
        run(callbacks, "One", lambda: run(callbacks, "Inside", mod=Module()), Module("matmul"))
        run(callbacks, "Two", mod=Module("matmul", "other"))
        run(callbacks, "None", mod=object())
    assert outline(memory.spans, "tvm.pass.phase", "tilelang.kernel.name") == [
        "One pipeline_cuda matmul",
        "  Inside pipeline_cuda matmul",
        "Two pipeline_cuda",
        "None pipeline_cuda",
    ]


def test_instrument_used_again_inside_a_pass_gives_one_tree(mode: str, memory: SpanMemory) -> None:
    """A pass opens its own context: what runs there is inside the pass, and nothing is lost."""
    callbacks = observed(memory.provider, mode)

    def outer() -> None:
        with pass_context(callbacks):
            run(callbacks, "Inner")

    with pass_context(callbacks):
        run(callbacks, "Outer", outer)
        run(callbacks, "Next")
    assert outline(memory.spans, "tvm.pass.sequence") == [
        "PassContext",
        "  Outer 0",
        "    Inner 0",
        "  Next 1",
    ]
    assert_sound(memory.spans)


def test_two_observers_of_one_provider_in_nested_contexts_share_the_tree(
    mode: str, memory: SpanMemory
) -> None:
    """Who opens a context inside a pass need not know who opened the outer one."""
    first, second = observed(memory.provider, mode), observed(memory.provider, mode)

    def outer() -> None:
        with pass_context(second):
            run(second, "Inner")

    with pass_context(first):
        run(first, "Outer", outer)
    assert outline(memory.spans) == ["PassContext", "  Outer", "    Inner"]


def test_observer_of_the_global_provider_shares_the_tree_with_one_that_names_it(
    mode: str, memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None means the global provider: whoever passes that very one means the same."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", memory.provider)
    first, second = observed(None, mode), observed(memory.provider, mode)

    def outer() -> None:
        with pass_context(second):
            run(second, "Inner")

    with pass_context(first):
        run(first, "Outer", outer)
    assert outline(memory.spans) == ["PassContext", "  Outer", "    Inner"]


def test_two_providers_get_a_tree_each(mode: str) -> None:
    """An application may send its compiles to two places."""
    memories = SpanMemory(), SpanMemory()
    first, second = (observed(memory.provider, mode) for memory in memories)
    with pass_context(first, second):
        for callbacks in (first, second):
            run(callbacks, "A")
    for memory in memories:
        assert outline(memory.spans) == ["PassContext", "  A"]


def test_hooks_called_by_hand_give_a_tree_for_each_outermost_pass(
    mode: str, memory: SpanMemory
) -> None:
    """Without a context there is no span for one; nothing waits for an exit that won't come."""
    callbacks = observed(memory.provider, mode)
    for name in ("A", "B"):
        callbacks.started(None, Info(name))
        callbacks.started(None, Info("Inner"))
        callbacks.finished(None, Info("Inner"))
        callbacks.finished(None, Info(name))
        assert outline(memory.take()) == [name, "  Inner"]


def test_one_observer_in_two_threads_gives_a_tree_for_each(mode: str, memory: SpanMemory) -> None:
    """No span has a parent in another thread, however the two interleave."""
    callbacks = observed(memory.provider, mode)
    together = threading.Barrier(2, timeout=10)

    def compile_(number: int) -> None:
        with pass_context(callbacks):
            together.wait()
            run(callbacks, f"outer {number}", lambda: run(callbacks, "inner", together.wait))
            together.wait()

    in_threads(2, compile_)
    roots = trees(memory.spans)
    assert {root.name for root in roots} == {"PassContext"}
    assert sorted(child.name for root in roots for child in root.children) == ["outer 0", "outer 1"]
    assert len({span.context.trace_id for span in memory.spans if span.context}) == 2
    for root in roots:
        assert [[leaf.name for leaf in child.children] for child in root.children] == [["inner"]]
    assert_sound(memory.spans)


def test_frames_and_events_hold_nothing_after_the_context(mode: str, memory: SpanMemory) -> None:
    """No module is kept alive after its compile."""
    import gc
    import weakref

    callbacks = observed(memory.provider, mode)
    module: Any = Module("matmul")
    alive = weakref.ref(module)
    with pass_context(callbacks):
        run(callbacks, "A", mod=module)
    del module
    gc.collect()
    assert alive() is None
