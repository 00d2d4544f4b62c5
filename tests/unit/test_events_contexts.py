"""One instrument in many contexts: threads, re-entrance, exits in any order. No compiler."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import pytest

from tests.support.fake_tvm import Info, Journal, callbacks_for, pass_context, run
from tests.support.threads import in_threads
from tilelang_otel.events import PassEvent, PassEventObserver, _entered


class _PerThread(PassEventObserver):
    """Writes down what each thread was told."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Any]] = {}

    def pass_started(self, mod: Any, event: PassEvent) -> Any:
        self._add(event)

    def pass_finished(self, mod: Any, event: PassEvent, state: Any) -> None:
        self._add(event.name)

    def callback_mismatch(self, actual: str, expected: str | None) -> None:
        self._add(("mismatch", actual, expected))

    def passes_incomplete(self, passes: Any, error: BaseException | None) -> None:
        self._add(("incomplete", passes))

    def _add(self, entry: Any) -> None:
        self.entries.setdefault(threading.current_thread().name, []).append(entry)


def test_one_instrument_in_two_threads_keeps_them_apart() -> None:
    """Each thread has its own frames, depth and numbering, however they interleave."""
    observer = _PerThread()
    callbacks = callbacks_for(observer)
    together = threading.Barrier(2, timeout=10)

    def compile_(number: int) -> None:
        def inner() -> None:
            together.wait()
            run(callbacks, f"inner {number}", together.wait)
            together.wait()

        with pass_context(callbacks):
            together.wait()
            run(callbacks, f"outer {number}", inner)

    in_threads(2, compile_)
    assert observer.entries == {
        f"t{n}": [
            PassEvent(f"outer {n}", 0, 0, None, None),
            PassEvent(f"inner {n}", 1, 1, 0, None),
            f"inner {n}",
            f"outer {n}",
        ]
        for n in range(2)
    }


def test_pending_events_and_abort_see_their_own_thread_only() -> None:
    """A watchdog of one thread cannot end another's passes."""
    callbacks = callbacks_for(Journal())
    with pass_context(callbacks):
        callbacks.started(None, Info("A"))

        def other(_: int) -> None:
            assert callbacks.pending_events() == ()
            assert callbacks.abort() == ()

        in_threads(1, other)
        assert [event.name for event in callbacks.pending_events()] == ["A"]
        callbacks.finished(None, Info("A"))


def test_instrument_entered_again_while_active_keeps_what_is_open() -> None:
    """A pass opens a context with the same instrument: the outer pass still finishes."""
    journal = Journal()
    callbacks = callbacks_for(journal)

    def outer() -> None:
        with pass_context(callbacks):
            run(callbacks, "Inner", lambda: pending.extend(callbacks.pending_events()))
        run(callbacks, "Next")

    pending: list[PassEvent] = []
    with pass_context(callbacks):
        run(callbacks, "Outer", outer)
    assert journal.entries == [
        ("enter",),
        ("start", "Outer", 0, 0, None),
        ("enter",),
        ("start", "Inner", 0, 0, None),
        ("finish", "Inner", 0),
        ("exit",),
        ("start", "Next", 1, 1, 0),
        ("finish", "Next", 1),
        ("finish", "Outer", 0),
        ("exit",),
    ]
    assert [event.name for event in pending] == ["Outer", "Inner"]


def test_failure_in_the_inner_context_leaves_the_outer_passes_open() -> None:
    """Each context aborts its own frames, when the exception leaves it."""
    journal = Journal()
    callbacks = callbacks_for(journal)

    def boom() -> None:
        raise ValueError("boom")

    def outer() -> None:
        with pytest.raises(ValueError, match="boom"), pass_context(callbacks):
            run(callbacks, "Boom", boom)

    with pass_context(callbacks):
        run(callbacks, "Outer", outer)
    assert journal.words() == [
        "enter", "+Outer", "enter", "+Boom", "!Boom", "exit", "-Outer", "exit"
    ]  # fmt: skip


@pytest.mark.parametrize("order", ["first in, first out", "last in, first out"])
def test_active_callbacks_are_right_whichever_way_round_contexts_exit(order: str) -> None:
    """TVM exits in registration order; other users unwind like a stack."""
    first, second = callbacks_for(Journal()), callbacks_for(Journal())
    first.enter()
    second.enter()
    assert _entered.active_callbacks() == (first, second)
    if order == "first in, first out":
        first.exit()
        assert _entered.active_callbacks() == (second,)
        second.exit()
    else:
        second.exit()
        assert _entered.active_callbacks() == (first,)
        first.exit()
    assert _entered.active_callbacks() == ()


def test_one_instrument_listed_twice_in_a_context_sees_each_pass_twice() -> None:
    """TVM calls it twice; both times it stays balanced."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks, callbacks):
        info = Info("A")
        for hook in (callbacks.before, callbacks.before, callbacks.after, callbacks.after):
            hook(None, info)
    assert journal.words() == ["enter", "enter", "+A", "+A", "-A", "-A", "exit", "exit"]
    assert _entered.active_callbacks() == ()


def test_observer_that_refuses_a_context_hears_of_its_exit_only() -> None:
    """False at entry means that nothing in there matters, not even names."""

    class Refusing(Journal):
        def enter_pass_context(self) -> Any:
            super().enter_pass_context()
            return False

    class Unreadable:
        @property
        def name(self) -> str:
            raise AssertionError("the name was read")

    journal = Refusing()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks):
        for hook in (callbacks.before, callbacks.after, callbacks.started, callbacks.finished):
            hook(None, Unreadable())
        assert callbacks.pending_events() == ()
    assert journal.words() == ["enter", "exit"]


def test_observer_that_raises_at_entry_is_not_entered() -> None:
    """TVM then forgets all instruments of the context and calls no exit."""

    class Broken(PassEventObserver):
        def enter_pass_context(self) -> Any:
            raise LookupError("no")

    callbacks = callbacks_for(Broken())
    with pytest.raises(LookupError):
        callbacks.enter()
    assert _entered.active_callbacks() == ()


def test_muted_observer_hears_nothing_in_the_scope_and_the_rest_afterwards() -> None:
    """What runs inside the scope is as if it had not happened."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    with pass_context(callbacks):
        with _entered.muted(journal):
            run(callbacks, "A")
        run(callbacks, "B")
    assert journal.words() == ["enter", "+B", "-B", "exit"]


# -- called by hand -------------------------------------------------------------------


def test_callbacks_by_hand_without_context_are_paired_and_numbered() -> None:
    """Any object with a name will do, and no context is needed."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    callbacks.started(None, Info("A"))
    callbacks.started(None, Info("B"))
    assert [event.name for event in callbacks.pending_events()] == ["A", "B"]
    callbacks.finished(None, Info("B"))
    callbacks.finished(None, Info("A"))
    callbacks.started(None, Info("C"))
    callbacks.finished(None, Info("C"))
    assert [entry for entry in journal.entries if entry[0] == "start"] == [
        ("start", "A", 0, 0, None),
        ("start", "B", 1, 1, 0),
        ("start", "C", 2, 0, None),
    ]
    assert _entered.active_callbacks() == ()


def test_callbacks_by_hand_around_a_context_survive_it() -> None:
    """A context entered meanwhile is numbered for itself."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    callbacks.started(None, Info("Hand"))
    with pass_context(callbacks):
        run(callbacks, "A")
    callbacks.finished(None, Info("Hand"))
    assert journal.words() == ["+Hand", "enter", "+A", "-A", "exit", "-Hand"]


def test_callbacks_by_hand_leave_nothing_alive() -> None:
    """Who calls hooks by hand and forgets the instrument gets its memory back."""
    observer = Journal()
    callbacks = callbacks_for(observer)
    callbacks.started(None, Info("A"))
    callbacks.finished(None, Info("A"))
    alive = [weakref.ref(observer), weakref.ref(callbacks)]
    del observer, callbacks
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_reports_none_of_the_passes_it_was_forked_in() -> None:
    """They are the parent's; new contexts in the child are the child's."""
    journal = Journal()
    callbacks = callbacks_for(journal)
    exit_codes: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            try:
                before = len(journal.entries)
                callbacks.finished(None, Info("A"))
                callbacks.exit()
                silent = journal.words()[before:] == ["exit"]
                with pass_context(callbacks):
                    run(callbacks, "B")
                own = journal.words()[-4:] == ["enter", "+B", "-B", "exit"]
                os._exit(0 if silent and own else 1)
            finally:
                os._exit(2)
        exit_codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with pass_context(callbacks):
        run(callbacks, "A", fork)
    assert exit_codes == [0]
    assert journal.words() == ["enter", "+A", "-A", "exit"]
