"""Pairing of callbacks: which frame an after-callback closes, and which frames are dead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tilelang_otel._frames import ExceptionMark, Frame, FrameStack


def _frame(name: str, caller: FrameType | None = None) -> Frame:
    frame = Frame()
    frame.name = name
    frame.caller = caller
    return frame


def _stack(*frames: Frame) -> FrameStack:
    stack = FrameStack()
    stack.open.extend(frames)
    return stack


def _names(frames: list[Frame]) -> list[str]:
    return [frame.name for frame in frames]


def _returned() -> FrameType:
    """Return a Python frame that is no longer running."""
    return sys._getframe()


def _deeper(function: Callable[[FrameType], Any]) -> Any:
    """Call ``function`` with a Python frame of its own, below that of the test."""
    return function(sys._getframe())


# -- match ----------------------------------------------------------------------


def test_match_on_top_closes_that_frame_alone() -> None:
    """The usual case: the innermost pass finishes."""
    stack = _stack(_frame("A"), _frame("B"))
    frame, above = stack.match("B", None)
    assert frame is not None
    assert (frame.name, above, _names(stack.open)) == ("B", [], ["A"])


def test_match_below_top_gives_the_frames_above_outermost_first() -> None:
    """A pass that finishes takes with it what was still open inside it."""
    stack = _stack(_frame("A"), _frame("B"), _frame("C"), _frame("D"))
    frame, above = stack.match("B", None)
    assert frame is not None
    assert (frame.name, _names(above), _names(stack.open)) == ("B", ["C", "D"], ["A"])


def test_match_of_unknown_name_removes_nothing() -> None:
    """What to do about a callback that fits nothing is up to the caller."""
    stack = _stack(_frame("A"))
    assert stack.match("B", None) == (None, [])
    assert _names(stack.open) == ["A"]
    assert FrameStack().match("B", None) == (None, [])


def test_match_by_hand_with_equal_names_closes_the_innermost() -> None:
    """Where no caller is known, a pass that calls itself ends from the inside."""
    outer, inner = _frame("R"), _frame("R")
    assert _stack(outer, inner).match("R", None) == (inner, [])


def test_match_with_equal_names_closes_the_frame_of_the_same_caller() -> None:
    """A pass that called itself, and caught the failure of that, finishes: not the inner call."""
    here = sys._getframe()
    outer, inner = _frame("R", here), _frame("R", _returned())
    assert _stack(outer, inner).match("R", here) == (outer, [inner])


def test_match_with_no_frame_of_the_caller_falls_back_to_the_innermost_name() -> None:
    """A wrapper between the two callbacks changes the caller; the name still fits."""
    outer, inner = _frame("R", _returned()), _frame("R", _returned())
    assert _stack(outer, inner).match("R", sys._getframe()) == (inner, [])


def test_match_among_frames_of_one_caller_closes_the_innermost() -> None:
    """All passes of a sequence have one caller: then the nesting decides."""
    here = sys._getframe()
    outer, inner = _frame("R", here), _frame("R", here)
    assert _stack(outer, inner).match("R", here) == (inner, [])


def test_removed_frames_let_go_of_their_callers() -> None:
    """A Python frame holds the modules in its locals: nothing keeps it after the pass."""
    here = sys._getframe()
    frames = [_frame("A", here), _frame("B", here), _frame("C", here)]
    stack = _stack(*frames)
    stack.match("B", here)
    stack.drain()
    assert [frame.caller for frame in frames] == [None, None, None]


def test_drain_gives_outermost_first() -> None:
    """The deepest, nearest to the failure, is the last."""
    stack = _stack(_frame("A"), _frame("B"))
    assert _names(stack.drain()) == ["A", "B"]
    assert stack.open == []


# -- dead -----------------------------------------------------------------------


def test_dead_while_the_caller_runs_is_empty() -> None:
    """A pass inside a pass: the outer one's caller is further up, and running."""
    stack = _stack(_frame("A", sys._getframe()))
    assert _deeper(stack.dead) == ([], None)
    assert _names(stack.open) == ["A"]


def test_dead_removes_frames_whose_caller_has_returned() -> None:
    """A pass whose caller is gone is over, whether or not somebody said so."""
    here = sys._getframe()
    stack = _stack(_frame("A", here), _frame("B", _returned()), _frame("C", _returned()))
    dead, error = _deeper(stack.dead)
    assert (_names(dead), error, _names(stack.open)) == (["B", "C"], None, ["A"])


def test_dead_of_all_frames_leaves_none() -> None:
    """A failure that was caught outside of every pass."""
    stack = _stack(_frame("A", _returned()), _frame("B", _returned()))
    assert _names(_deeper(stack.dead)[0]) == ["A", "B"]
    assert stack.open == []


def test_dead_frame_below_a_living_one_stays() -> None:
    """The innermost living frame decides: what is around it must be running too."""
    here = sys._getframe()
    stack = _stack(_frame("A", _returned()), _frame("B", here), _frame("C", _returned()))
    assert _names(_deeper(stack.dead)[0]) == ["C"]


def test_dead_is_unknown_for_frames_by_hand() -> None:
    """Without a caller nothing is known, so nothing is dropped."""
    stack = _stack(_frame("A", _returned()), _frame("B"))
    assert _deeper(stack.dead) == ([], None)
    assert _stack().dead(sys._getframe()) == ([], None)


def test_dead_names_the_exception_being_handled_that_ended_them() -> None:
    """A pass in an except block after a failed one tells what the failure was."""
    frames: list[Frame] = []

    def fail() -> None:
        frames.append(_frame("Boom", sys._getframe()))
        raise ValueError("boom")

    error: BaseException
    try:
        fail()
    except ValueError as caught:
        error = caught
        stack = _stack(*frames)
        assert _deeper(stack.dead) == (frames, error)


def test_dead_does_not_blame_another_exception_being_handled() -> None:
    """An error handled further out, before these passes ran, did not end them."""
    try:
        raise KeyError("unrelated")
    except KeyError:
        dead, error = _deeper(_stack(_frame("A", _returned())).dead)
    assert (_names(dead), error) == (["A"], None)


def test_dead_spares_a_frame_by_hand_below_dead_ones() -> None:
    """Nothing is known of it, so it is taken to be running."""
    stack = _stack(_frame("A", _returned()), _frame("Hand"), _frame("C", _returned()))
    assert _names(_deeper(stack.dead)[0]) == ["C"]
    assert _names(stack.open) == ["A", "Hand"]


# -- names ----------------------------------------------------------------------


class _Info:
    """What TVM says about a pass, counting how often it is asked."""

    def __init__(self, name: str | Exception) -> None:
        self._name = name
        self.asked = 0

    @property
    def name(self) -> str:
        self.asked += 1
        if isinstance(self._name, Exception):
            raise self._name
        return self._name


def test_name_is_read_once_and_only_when_asked_for() -> None:
    """Reading the name costs more than the rest of a callback."""
    info = _Info("A")
    frame = Frame()
    frame.info = info
    assert info.asked == 0
    assert (frame.name, frame.name, info.asked) == ("A", "A", 1)


def test_name_that_cannot_be_decoded_is_empty() -> None:
    """Bytes that are no text are still a pass."""
    frame = Frame()
    frame.info = _Info(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    assert frame.name == ""


# -- exceptions that leave --------------------------------------------------------


def test_exception_mark_without_exception_says_none() -> None:
    """Leaving normally."""
    assert ExceptionMark().leaving() is None


def test_exception_mark_sees_the_exception_that_leaves() -> None:
    """What ``with`` is being left by shows while its exit runs."""
    mark = ExceptionMark()
    error = ValueError("boom")
    seen: list[BaseException | None] = []

    def leave() -> None:
        try:
            raise error
        finally:
            seen.append(mark.leaving())

    with pytest.raises(ValueError, match="boom"):
        leave()
    assert seen == [error]


def test_exception_mark_in_a_handler_ignores_what_is_being_handled() -> None:
    """A retry in an except block succeeds: the first error is not leaving the second try."""
    try:
        raise ValueError("first try")
    except ValueError:
        assert ExceptionMark().leaving() is None


def test_exception_mark_in_a_handler_sees_a_new_exception() -> None:
    """A retry in an except block that fails too."""
    seen: list[BaseException | None] = []
    try:
        raise ValueError("first try")
    except ValueError:
        mark = ExceptionMark()
        try:
            raise KeyError("second try")
        except KeyError:
            seen.append(mark.leaving())
    assert isinstance(seen[0], KeyError)


def test_exception_mark_sees_a_handled_exception_that_is_raised_again() -> None:
    """A retry that gives up with the first error: that one is leaving after all."""
    seen: list[BaseException | None] = []

    def retry(error: BaseException) -> None:
        mark = ExceptionMark()
        try:
            raise error
        finally:
            seen.append(mark.leaving())

    first = ValueError("first try")
    try:
        raise first
    except ValueError as error:
        with pytest.raises(ValueError, match="first"):
            retry(error)
    assert seen == [first]


def test_exception_mark_keeps_no_exception_alive() -> None:
    """Ids, not references: a mark may outlive what it saw."""
    import weakref

    class CustomError(Exception):
        pass

    def handled() -> tuple[ExceptionMark, weakref.ref[CustomError]]:
        try:
            raise CustomError
        except CustomError as error:
            return ExceptionMark(), weakref.ref(error)

    mark, error = handled()
    assert error() is None
    assert mark.leaving() is None
