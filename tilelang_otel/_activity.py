"""Which compiles are recorded now, on which thread, and whether one is about to need Python.

A thread of ours that makes or encodes spans holds Python's lock for milliseconds at a
time, and a compile that comes back from C++ meanwhile has to wait, at each of its
callbacks anew. So what can wait is done while compilers are busy with themselves:
while a pass or code generation runs that has been running for a while.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

__all__ = [
    "Running",
    "ended",
    "is_quiet",
    "latest_first",
    "running",
    "thread",
    "wait_until_quiet",
]

_QUIET_NS: Final = 3_000_000
"""After how long without a callback more of the same is likely."""

_REST_S: Final = 0.01
"""How long whoever has compiled is left alone, to return and to begin the next one."""

_POLL_S: Final = 0.002


class Running(Protocol):
    """A compile that runs."""

    now_ns: Callable[[], int]
    """The clock of its records."""

    start_ns: int
    """When it began, on that clock."""

    provider: Any
    """The tracer provider of its spans, if any."""

    current: Any
    """The innermost open record; None if there is none."""

    is_muted: bool
    """Whether it is not recorded after all."""

    def exited(self) -> None:
        """Hand everything on: the process exits."""


class _State:
    stacks: ClassVar[dict[int, list[Any]]] = {}
    last_end_s = 0.0


class Thread(threading.local):
    """This thread's part of what runs.

    Attributes:
        recordings: What is recorded on this thread, outermost first; each is a
            ``Running``. Whoever changes the list has told everybody.
    """

    def __init__(self) -> None:
        # Of a thread that has ended, the list stays, empty, until its id is used again.
        self.recordings: list[Any] = []
        _State.stacks[threading.get_ident()] = self.recordings


thread = Thread()


def running() -> list[Any]:
    """Return what is recorded now, on all threads; each is a ``Running``."""
    stacks = list(_State.stacks.values())
    return [one for stack in stacks for one in list(stack) if not one.is_muted]


def latest_first() -> list[Any]:
    """Return the same as :func:`running`: none comes after one that it may be a part of."""
    return sorted(running(), key=lambda one: one.start_ns, reverse=True)


def ended() -> None:
    """Take note that a compile has ended."""
    _State.last_end_s = time.monotonic()


def is_quiet() -> bool:
    """Return whether no compile has called back for a while, or ended."""
    if time.monotonic() - _State.last_end_s < _REST_S:
        return False
    return all(_is_quiet(compile_) for compile_ in running())


def wait_until_quiet(timeout_s: float, is_urgent: Callable[[], bool]) -> None:
    """Wait until it is quiet.

    Args:
        timeout_s: How many seconds to wait at most.
        is_urgent: Tells that somebody waits in turn, which ends the waiting.
    """
    deadline_s = time.monotonic() + timeout_s
    while not is_quiet() and not is_urgent() and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def _is_quiet(compile_: Running) -> bool:
    record = compile_.current
    if record is None:
        return False
    return compile_.now_ns() - max(record.start_ns, record.last_ns) >= _QUIET_NS


def _forked() -> None:
    # A forked child compiles none of what its parent does, on whichever thread.
    thread.recordings.clear()
    _State.stacks.clear()
    _State.stacks[threading.get_ident()] = thread.recordings


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
