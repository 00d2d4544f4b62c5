"""Long compiles are handed on in parts, and clocks may do what they like. No compiler."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from tests.support.fake_tvm import pass_context, run
from tests.support.observers import MODES, WALL_NS, observed
from tests.support.spans import SpanMemory, Ticks, assert_sound, outline

pytestmark = pytest.mark.parametrize("mode", MODES)

_SECOND_NS = 10**9


def test_compile_of_many_passes_is_handed_on_by_count(mode: str, memory: SpanMemory) -> None:
    """What has finished is out before the compile is; in the end it is one sound tree."""
    callbacks = observed(memory.provider, mode, part_spans=4)
    seen: list[list[str]] = []

    def outer() -> None:
        for name in "ABCDEF":
            run(callbacks, name, lambda: run(callbacks, "in"))
            seen.append([span.name for span in memory.spans])

    with pass_context(callbacks):
        run(callbacks, "Outer", outer)
    names = [span.name for span in memory.spans]
    assert seen[0] == []
    assert seen[1][:2] in (["A", "in"], ["in", "A"])
    assert len(seen[-1]) >= 8, "too much waited until the end"
    assert sorted(names) == sorted(["PassContext", "Outer", *"ABCDEF", *["in"] * 6])
    assert outline(memory.spans) == [
        "PassContext",
        "  Outer",
        *itertools.chain.from_iterable((f"    {name}", "      in") for name in "ABCDEF"),
    ]
    assert_sound(memory.spans)


def test_open_passes_started_early_still_get_everything_that_their_end_tells(
    mode: str, memory: SpanMemory
) -> None:
    """Self time and depth are right although the span was started before the pass ended."""
    callbacks = observed(memory.provider, mode, part_spans=1)
    with pass_context(callbacks):
        run(callbacks, "Outer", lambda: run(callbacks, "A"))
    attributes = dict(memory.named("Outer").attributes or {})
    assert attributes == {
        "tvm.pass.name": "Outer",
        "tvm.pass.sequence": 0,
        "tvm.pass.depth": 0,
        "tvm.pass.self_duration": 2e-9,
    }
    assert [span.name for span in memory.spans] == ["A", "Outer", "PassContext"]


def test_failure_after_a_part_is_on_the_spans_that_were_started_early(
    mode: str, memory: SpanMemory
) -> None:
    """The deepest has the exception, its ancestors say where it was."""
    callbacks = observed(memory.provider, mode, part_spans=1)

    def outer() -> None:
        run(callbacks, "A")
        run(callbacks, "Boom", boom)

    def boom() -> None:
        run(callbacks, "B")
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"), pass_context(callbacks):
        run(callbacks, "Outer", outer)
    assert outline(memory.spans, "tvm.pass.incomplete") == [
        "PassContext!",
        "  Outer! True",
        "    A",
        "    Boom!* True",
        "      B",
    ]
    assert_sound(memory.spans)


def test_compile_that_takes_long_is_handed_on_by_age(mode: str, memory: SpanMemory) -> None:
    """Few passes, but minutes: nothing that has finished waits for the rest."""
    clock = Ticks(itertools.count(0, _SECOND_NS))
    callbacks = observed(memory.provider, mode, clock, part_age_s=3.5)
    seen: list[int] = []

    def outer() -> None:
        for name in "ABCD":
            run(callbacks, name)
            seen.append(len(memory.spans))

    with pass_context(callbacks):
        run(callbacks, "Outer", outer)
    assert seen == [0, 2, 2, 4]
    assert outline(memory.spans)[:2] == ["PassContext", "  Outer"]
    assert_sound(memory.spans)


def test_compile_below_age_and_count_is_handed_on_once(mode: str, memory: SpanMemory) -> None:
    """The usual compile emits nothing while it runs: that would be part of its time."""
    callbacks = observed(memory.provider, mode)

    def outer() -> None:
        for _ in range(100):
            run(callbacks, "A")
            assert memory.spans == ()

    with pass_context(callbacks):
        run(callbacks, "Outer", outer)
        assert memory.spans == ()
    assert len(memory.spans) == 102


def test_caught_failure_across_parts_ends_once(mode: str, memory: SpanMemory) -> None:
    """A dead pass whose span was started early is ended when its death is noticed."""
    callbacks = observed(memory.provider, mode, part_spans=1)

    def boom() -> None:
        run(callbacks, "In")
        raise ValueError("boom")

    def tolerant() -> None:
        with pytest.raises(ValueError, match="boom"):
            run(callbacks, "Boom", boom)
        run(callbacks, "Id")

    with pass_context(callbacks):
        run(callbacks, "Tol", tolerant)
    assert outline(memory.spans) == ["PassContext", "  Tol", "    Boom!", "      In", "    Id"]
    assert_sound(memory.spans)


# -- clocks ------------------------------------------------------------------------------


def test_wall_clock_that_steps_back_leaves_durations_alone(mode: str, memory: SpanMemory) -> None:
    """The wall clock is read once; all else is a monotonic clock's."""
    wall = Ticks([WALL_NS, WALL_NS - 3600 * _SECOND_NS])
    callbacks = observed(memory.provider, mode, wall_ns=wall)
    with pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B"))
    assert wall.readings == 1
    assert_sound(memory.spans)
    span = memory.named("A")
    assert (span.start_time, span.end_time) == (WALL_NS + 1, WALL_NS + 4)


def test_wall_clock_is_read_before_the_other(mode: str, memory: SpanMemory) -> None:
    """So that no span ends after a parent that is timed by the wall clock alone."""
    order: list[str] = []

    def clock(name: str, value: int) -> Any:
        def read() -> int:
            order.append(name)
            return value

        return read

    with pass_context(observed(memory.provider, mode, clock("mono", 5), clock("wall", WALL_NS))):
        pass
    assert order[:2] == ["wall", "mono"]


def test_clock_that_stands_still_gives_empty_durations(mode: str, memory: SpanMemory) -> None:
    """Coarse clocks exist: zero is fine, below zero is not."""
    callbacks = observed(memory.provider, mode, lambda: 7)
    with pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B"))
    assert {(span.start_time, span.end_time) for span in memory.spans} == {(WALL_NS, WALL_NS)}


def test_real_clocks_keep_children_inside_a_parent_of_the_programs(
    mode: str, memory: SpanMemory
) -> None:
    """A request's span is timed by the SDK, ours by our clock: they still nest."""
    import time

    callbacks = observed(memory.provider, mode, time.perf_counter_ns, time.time_ns)
    tracer = memory.provider.get_tracer("program")
    for _ in range(50):
        with tracer.start_as_current_span("request"), pass_context(callbacks):
            run(callbacks, "A", lambda: run(callbacks, "B"))
        assert_sound(memory.take())


# -- fork ----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_emits_its_own_compiles_only(mode: str, memory: SpanMemory) -> None:
    """What was open when the process forked is the parent's, and comes once."""
    callbacks = observed(memory.provider, mode)
    exit_codes: list[int] = []

    def in_child() -> bool:
        with pass_context(callbacks):
            run(callbacks, "Child")
        own = outline(memory.take()) == ["PassContext", "  Child"]
        callbacks.exit()
        with pass_context(callbacks):
            run(callbacks, "Later")
        return own and outline(memory.spans) == ["PassContext", "  Later"]

    def fork() -> None:
        child = os.fork()
        if child == 0:
            code = 2
            try:
                code = 0 if in_child() else 1
            finally:
                os._exit(code)
        exit_codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with pass_context(callbacks):
        run(callbacks, "A", fork)
    assert exit_codes == [0]
    assert outline(memory.spans) == ["PassContext", "  A"]
