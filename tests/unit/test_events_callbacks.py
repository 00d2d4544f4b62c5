"""Callbacks become events: pairing, numbering, filters, failures. No compiler."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.support.fake_tvm import Info, Journal, callbacks_for, pass_context, run, sequence
from tilelang_otel.events import PassEvent, PassEventObserver, pass_phase


def _fail(error: BaseException) -> Any:
    def body() -> None:
        raise error

    return body


def _tolerant(callbacks: Any, error: BaseException, then: Any = None) -> Any:
    """Return the body of a pass that catches a nested pass's failure."""

    def body() -> None:
        try:
            run(callbacks, "Boom", _fail(error))
        except type(error):
            pass
        if then is not None:
            then()

    return body


# -- order, numbers -------------------------------------------------------------


def test_passes_in_a_context_are_numbered_in_start_order_with_depth_and_parent() -> None:
    """Enter, started, finished, exit; sequences from zero; depth of what is open."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks):
        sequence(callbacks, "Seq", [("A", None), ("B", lambda: run(callbacks, "C"))])
        run(callbacks, "D")
    assert journal.entries == [
        ("enter",),
        ("start", "Seq", 0, 0, None),
        ("start", "A", 1, 1, 0),
        ("finish", "A", 1),
        ("start", "B", 2, 1, 0),
        ("start", "C", 3, 2, 2),
        ("finish", "C", 3),
        ("finish", "B", 2),
        ("finish", "Seq", 0),
        ("start", "D", 4, 0, None),
        ("finish", "D", 4),
        ("exit",),
    ]


def test_numbering_restarts_at_each_enter() -> None:
    """Without an allocator a sequence number is a position within its context."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    for _ in range(2):
        with pass_context(callbacks):
            run(callbacks, "A")
            run(callbacks, "B")
    starts = [entry[1:3] for entry in journal.entries if entry[0] == "start"]
    assert starts == [("A", 0), ("B", 1), ("A", 0), ("B", 1)]


def test_sequence_allocator_numbers_across_contexts() -> None:
    """An allocator is asked once for each emitted event, never for others."""
    journal = Journal()
    numbers = itertools.count(10)
    callbacks = callbacks_for(
        journal,
        sequence_allocator=lambda: next(numbers),
        capture_predicate=lambda name, depth: name != "Hidden",
    )
    for _ in range(2):
        with pass_context(callbacks):
            run(callbacks, "Hidden", lambda: run(callbacks, "A"))
    starts = [entry[1:3] for entry in journal.entries if entry[0] == "start"]
    assert starts == [("A", 10), ("A", 11)]


# -- filters ----------------------------------------------------------------------


def test_hidden_passes_count_for_depth_but_not_for_numbers_or_parents() -> None:
    """Depth counts every open frame; the parent is the nearest emitted ancestor."""
    journal = Journal()
    callbacks = callbacks_for(journal, capture_predicate=lambda name, depth: depth != 1)
    with pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "Hidden", lambda: run(callbacks, "B")))
    assert [entry for entry in journal.entries if entry[0] == "start"] == [
        ("start", "A", 0, 0, None),
        ("start", "B", 1, 2, 0),
    ]


def test_capture_nested_false_emits_depth_zero_only_and_asks_no_predicate_below() -> None:
    """Nested callbacks are still paired; the predicate comes after this filter."""
    asked: list[tuple[str, int]] = []

    def predicate(name: str, depth: int) -> bool:
        asked.append((name, depth))
        return True

    journal = Journal()
    callbacks = callbacks_for(journal, capture_nested=False, capture_predicate=predicate)
    with pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B"))
    assert journal.words() == ["enter", "+A", "-A", "exit"]
    assert asked == [("A", 0)]


def test_hidden_frame_that_never_finishes_is_reported_without_event() -> None:
    """Who aborts wants to know every open frame, emitted or not."""
    got: list[Any] = []

    class Keep(PassEventObserver):
        def passes_incomplete(self, passes: Any, error: BaseException | None) -> None:
            got.extend(passes)

    callbacks = callbacks_for(Keep(), capture_nested=False)
    with pytest.raises(ValueError, match="boom"), pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B", _fail(ValueError("boom"))))
    assert [(p.name, p.depth, p.event, p.state) for p in got] == [
        ("A", 0, PassEvent("A", 0, 0, None, None), None),
        ("B", 1, None, None),
    ]


def test_phase_is_asked_when_a_pass_starts_and_kept() -> None:
    """A pass belongs to the phase in which it started."""
    phases: list[Any] = []

    class Phases(PassEventObserver):
        def pass_started(self, mod: Any, event: PassEvent) -> Any:
            phases.append(event.phase)

        def pass_finished(self, mod: Any, event: PassEvent, state: Any) -> None:
            phases.append(event.phase)

    callbacks = callbacks_for(Phases())
    with pass_context(callbacks):
        with pass_phase("outer"):
            with pass_phase("inner"):
                callbacks.started(None, Info("A"))
            callbacks.finished(None, Info("A"))
        run(callbacks, "B")
    assert phases == ["inner", "inner", None, None]


# -- failures -----------------------------------------------------------------------


def test_exception_leaving_the_context_reaches_the_observer_with_all_open_passes() -> None:
    """Outermost first, with the very exception, and then the context exits."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    error = ValueError("boom")
    with pytest.raises(ValueError, match="boom"), pass_context(callbacks):
        run(callbacks, "A", lambda: run(callbacks, "B", _fail(error)))
    assert journal.entries[-2:] == [("incomplete", ["A", "B"], error), ("exit",)]


def test_caught_failure_inside_a_pass_ends_that_pass_only() -> None:
    """A tolerant pass goes on, and what runs next in it is its child, not the dead pass's."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks):
        run(
            callbacks,
            "Tol",
            _tolerant(callbacks, ValueError("boom"), lambda: run(callbacks, "Id")),
        )
        run(callbacks, "Id")
    assert journal.words() == [
        "enter", "+Tol", "+Boom", "!Boom", "+Id", "-Id", "-Tol", "+Id", "-Id", "exit"
    ]  # fmt: skip
    starts = [entry for entry in journal.entries if entry[:2] == ("start", "Id")]
    assert [entry[3:] for entry in starts] == [(1, 0), (0, None)]


def test_after_callback_over_a_dead_pass_reports_the_mismatch_and_closes_the_right_one() -> None:
    """Nothing ran after the caught failure: the tolerant pass's end brings it to light."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks):
        run(callbacks, "Tol", _tolerant(callbacks, ValueError("boom")))
    assert journal.words() == ["enter", "+Tol", "+Boom", "?Tol/Boom", "!Boom", "-Tol", "exit"]


def test_failure_caught_outside_every_pass_does_not_hide_later_passes() -> None:
    """Callers try a lowering, catch its failure, and continue in the same context."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks):
        for name in ("Boom", "Bang"):
            with pytest.raises(ValueError, match=name):
                run(callbacks, name, _fail(ValueError(name)))
        run(callbacks, "Id")
        run(callbacks, "Id")
    assert journal.words() == [
        "enter", "+Boom", "!Boom", "+Bang", "!Bang", "+Id", "-Id", "+Id", "-Id", "exit"
    ]  # fmt: skip


def test_pass_that_calls_itself_and_catches_the_failure_finishes_itself() -> None:
    """Same names all the way: the outer call succeeded, the inner one did not."""
    journal = Journal()
    callbacks = callbacks_for(journal)

    def outer() -> None:
        with pytest.raises(ValueError, match="inner"):
            run(callbacks, "R", _fail(ValueError("inner")))

    with pass_context(callbacks):
        run(callbacks, "R", outer)
    assert journal.entries == [
        ("enter",),
        ("start", "R", 0, 0, None),
        ("start", "R", 1, 1, 0),
        ("mismatch", "R", "R"),
        ("incomplete", ["R"], None),
        ("finish", "R", 0),
        ("exit",),
    ]


def test_unmatched_after_callback_drains_everything_with_an_error_naming_both() -> None:
    """No such pass is open: what is open cannot be trusted any more."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks):
        callbacks.started(None, Info("A"))
        callbacks.started(None, Info("B"))
        callbacks.finished(None, Info("Ghost"))
        run(callbacks, "C")
    assert journal.words() == ["enter", "+A", "+B", "?Ghost/B", "!A B", "+C", "-C", "exit"]
    error = journal.entries[4][2]
    assert isinstance(error, RuntimeError)
    assert "'Ghost'" in str(error)
    assert "'B'" in str(error)


def test_unmatched_after_callback_with_nothing_open_only_reports_it() -> None:
    """There is nothing to drain."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks):
        callbacks.finished(None, Info("Ghost"))
    assert journal.words() == ["enter", "?Ghost/None", "exit"]


def test_abort_drains_outermost_first_and_tells_the_observer() -> None:
    """What it returns is what the observer got; a second one has nothing left."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    error = ValueError("given up")
    with pass_context(callbacks):
        callbacks.started(None, Info("A"))
        callbacks.started(None, Info("B"))
        assert [event.name for event in callbacks.pending_events()] == ["A", "B"]
        aborted = callbacks.abort(error)
        assert [(p.name, p.depth, p.state) for p in aborted] == [
            ("A", 0, "state of A"),
            ("B", 1, "state of B"),
        ]
        assert callbacks.pending_events() == ()
        assert callbacks.abort() == ()
    assert journal.entries[-2:] == [("incomplete", ["A", "B"], error), ("exit",)]


@pytest.mark.parametrize("method", ["pass_started", "pass_finished", "exit_pass_context"])
def test_exception_of_an_observer_propagates_and_leaves_no_frame(method: str) -> None:
    """Observers are responsible for their own errors; the pairing survives them."""
    journal = Journal()
    broken = [True]
    original = getattr(journal, method)

    def fail_once(*arguments: Any) -> Any:
        if broken.pop() if broken else False:
            raise LookupError(method)
        return original(*arguments)

    setattr(journal, method, fail_once)
    callbacks = callbacks_for(journal)
    with pytest.raises(LookupError, match=method), pass_context(callbacks):
        run(callbacks, "A")
    with pass_context(callbacks):
        run(callbacks, "A")
        assert callbacks.pending_events() == ()
    assert journal.words()[-4:] == ["enter", "+A", "-A", "exit"]
