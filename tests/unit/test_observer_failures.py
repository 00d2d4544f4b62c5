"""What the observer makes of failing passes. No compiler."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.support.fake_tvm import Info, pass_context, run, sequence
from tests.support.observers import MODES, WALL_NS, observed
from tests.support.spans import SpanMemory, SpanTree, assert_sound, outline, trees

_FAILURE = (
    "error.type",
    "tvm.pass.incomplete",
    "tvm.pass.end_estimated",
    "tvm.pass.self_duration",
)

pytestmark = pytest.mark.parametrize("mode", MODES)


class KernelError(Exception):
    """An exception of the user's."""


def _fail(error: BaseException) -> Any:
    def body() -> None:
        raise error

    return body


def _catching(callbacks: Any, error: BaseException, then: Any = None, name: str = "Boom") -> Any:
    """Return the body of a pass that catches a nested pass's failure."""

    def body() -> None:
        with pytest.raises(type(error)):
            run(callbacks, name, _fail(error))
        if then is not None:
            then()

    return body


def test_exception_that_leaves_is_on_the_deepest_pass_and_marks_its_ancestors(
    mode: str, memory: SpanMemory
) -> None:
    """One exception event; every open frame ends as an error, when the failure was seen."""
    callbacks = observed(memory.provider, mode)
    error = KernelError("no such layout")
    with pytest.raises(KernelError) as caught, pass_context(callbacks):
        sequence(callbacks, "Seq", [("A", None), ("Boom", _fail(error))])
    assert caught.value is error
    kind = f"{__name__}.KernelError"
    incomplete = {"error.type": kind, "tvm.pass.incomplete": True}
    at = [WALL_NS + tick for tick in range(6)]
    [root] = trees(memory.spans, *_FAILURE, with_times=True)
    assert root == SpanTree(
        "PassContext",
        {"error.type": kind},
        status="ERROR",
        message="failed in Boom",
        times=(at[0], root.times[1] if root.times else 0),
        children=(
            SpanTree(
                "Seq",
                incomplete,
                status="ERROR",
                message="failed in Boom",
                times=(at[1], at[5]),
                children=(
                    SpanTree("A", {"tvm.pass.self_duration": 1e-9}, times=(at[2], at[3])),
                    SpanTree(
                        "Boom",
                        incomplete,
                        status="ERROR",
                        message="no such layout",
                        events=("exception",),
                        times=(at[4], at[5]),
                    ),
                ),
            ),
        ),
    )
    assert_sound(memory.spans)


def test_exception_event_says_type_message_and_where_without_source_text(
    mode: str, memory: SpanMemory
) -> None:
    """Files, lines and functions: the text of a line may be the kernel's."""
    callbacks = observed(memory.provider, mode)
    with pytest.raises(KernelError), pass_context(callbacks):
        run(callbacks, "Boom", _fail(KernelError("no such layout")))
    span = memory.named("Boom")
    [event] = span.events
    attributes = dict(event.attributes or {})
    stacktrace = str(attributes.pop("exception.stacktrace"))
    assert event.timestamp == span.end_time
    assert attributes == {
        "exception.type": f"{__name__}.KernelError",
        "exception.message": "no such layout",
    }
    assert __file__ in stacktrace
    assert "in body" in stacktrace
    assert "raise error" not in stacktrace


def test_caught_failure_marks_the_failed_pass_only(mode: str, memory: SpanMemory) -> None:
    """The tolerant parent succeeded, and so did what ran after."""
    callbacks = observed(memory.provider, mode)
    then = lambda: run(callbacks, "Id")  # noqa: E731
    with pass_context(callbacks):
        run(callbacks, "Tol", _catching(callbacks, ValueError("boom"), then))
        run(callbacks, "Id")
    assert outline(memory.spans, *_FAILURE[:3]) == [
        "PassContext",
        "  Tol",
        "    Boom! _OTHER True True",
        "    Id",
        "  Id",
    ]
    assert_sound(memory.spans)


def test_caught_failure_that_nobody_saw_ends_with_the_last_thing_known(
    mode: str, memory: SpanMemory
) -> None:
    """Not when the next pass happened to start: the pass took nobody knows how long."""
    callbacks = observed(memory.provider, mode)

    def partly() -> None:
        run(callbacks, "Inner")
        raise ValueError("boom")

    with pass_context(callbacks):
        with pytest.raises(ValueError, match="boom"):
            run(callbacks, "Boom", partly)
        run(callbacks, "Id")
    boom, inner = memory.named("Boom"), memory.named("Inner")
    assert boom.end_time == inner.end_time
    assert dict(boom.attributes or {})["tvm.pass.end_estimated"] is True
    assert boom.status.description == "did not finish; its exception was not seen"


def test_failure_seen_in_its_except_block_is_named(mode: str, memory: SpanMemory) -> None:
    """A fallback pass that runs while the failure is being handled tells what it was."""
    callbacks = observed(memory.provider, mode)
    with pass_context(callbacks):
        try:
            run(callbacks, "Boom", _fail(KernelError("no such layout")))
        except KernelError:
            run(callbacks, "Fallback")
    assert outline(memory.spans, "error.type") == [
        "PassContext",
        f"  Boom!* {__name__}.KernelError",
        "  Fallback",
    ]
    assert memory.named("Boom").status.description == "no such layout"


def test_failures_one_after_the_other_stay_apart(mode: str, memory: SpanMemory) -> None:
    """A tuner tries one lowering after the other in one context."""
    callbacks = observed(memory.provider, mode)
    with pass_context(callbacks):
        for name in ("First", "Second", "Third"):
            with pytest.raises(ValueError, match=name):
                run(callbacks, name, _fail(ValueError(name)))
        run(callbacks, "Id")
    assert outline(memory.spans) == ["PassContext", "  First!", "  Second!", "  Third!", "  Id"]
    assert_sound(memory.spans)


def test_pass_that_calls_itself_and_catches_the_failure_has_no_error(
    mode: str, memory: SpanMemory
) -> None:
    """The outer call succeeded, and its own time is not below zero."""
    callbacks = observed(memory.provider, mode)
    with pass_context(callbacks):
        run(callbacks, "R", _catching(callbacks, ValueError("inner"), name="R"))
    [root] = trees(memory.spans, "tvm.pass.sequence", *_FAILURE)
    [outer] = root.children
    assert outer.status == "UNSET"
    assert outer.attributes["tvm.pass.self_duration"] >= 0
    assert [(inner.name, inner.status) for inner in outer.children] == [("R", "ERROR")]
    assert_sound(memory.spans)


@pytest.mark.parametrize("message", ["the second", "the first"])
def test_second_failure_after_a_caught_one_names_its_own_pass(
    mode: str, memory: SpanMemory, message: str
) -> None:
    """A tolerant pass that later fails itself is where its own failure comes from."""
    callbacks = observed(memory.provider, mode)

    def tolerant() -> None:
        try:
            run(callbacks, "Boom", _fail(ValueError("the first")))
        except ValueError:
            run(callbacks, "Id")
        raise KernelError(message)

    with pytest.raises(KernelError), pass_context(callbacks):
        run(callbacks, "Tol", tolerant)
    assert outline(memory.spans) == ["PassContext!", "  Tol!*", "    Boom!*", "    Id"]
    assert memory.named("Boom").status.description == "the first"
    assert memory.named("Tol").status.description == message


def test_exception_outside_of_every_pass_is_on_the_context(mode: str, memory: SpanMemory) -> None:
    """The program fails between two passes: the passes are fine."""
    callbacks = observed(memory.provider, mode)

    def compile_() -> None:
        with pass_context(callbacks):
            run(callbacks, "A")
            raise KernelError("between passes")

    with pytest.raises(KernelError):
        compile_()
    assert outline(memory.spans) == ["PassContext!*", "  A"]
    assert memory.named("PassContext").status.description == "between passes"


def test_context_in_an_except_block_is_no_failure(mode: str, memory: SpanMemory) -> None:
    """A retry that succeeds, while the first failure is still being handled."""
    callbacks = observed(memory.provider, mode)
    try:
        raise KernelError("first try")
    except KernelError:
        with pass_context(callbacks):
            run(callbacks, "A")
    assert outline(memory.spans) == ["PassContext", "  A"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_exceptions_that_are_no_errors_pass_through_and_are_named(
    mode: str, memory: SpanMemory, error: BaseException
) -> None:
    """Ctrl-C or an exit in a pass is the program's: the span says what it was."""
    callbacks = observed(memory.provider, mode)
    with pytest.raises(type(error)) as caught, pass_context(callbacks):
        run(callbacks, "A", _fail(error))
    assert caught.value is error
    assert outline(memory.spans, "error.type") == [
        f"PassContext! {type(error).__name__}",
        f"  A!* {type(error).__name__}",
    ]


def test_generator_that_holds_a_context_and_is_closed_is_no_failure(
    mode: str, memory: SpanMemory
) -> None:
    """Closing it is how one says that it is done."""
    callbacks = observed(memory.provider, mode)

    def held() -> Generator[None, None, None]:
        with pass_context(callbacks):
            run(callbacks, "A")
            yield

    generator = held()
    next(generator)
    run(callbacks, "B")
    generator.close()
    assert outline(memory.spans) == ["PassContext", "  A", "  B"]


def test_context_left_with_open_frames_but_no_exception_marks_them(
    mode: str, memory: SpanMemory
) -> None:
    """Nobody knows why they did not finish: not even when."""
    callbacks = observed(memory.provider, mode)
    with pass_context(callbacks):
        callbacks.started(None, Info("A"))
    assert outline(memory.spans, *_FAILURE[:3]) == ["PassContext", "  A! _OTHER True True"]
    assert memory.named("A").events == ()


def test_unmatched_callback_ends_what_is_open_as_incomplete(mode: str, memory: SpanMemory) -> None:
    """The error names both sides, and later passes are recorded as usual."""
    callbacks = observed(memory.provider, mode)
    with pass_context(callbacks):
        callbacks.started(None, Info("A"))
        callbacks.finished(None, Info("Ghost"))
        run(callbacks, "B")
    assert outline(memory.spans, "error.type") == [
        "PassContext",
        "  A!* RuntimeError",
        "  B",
    ]
    assert "'Ghost'" in str(memory.named("A").status.description)
