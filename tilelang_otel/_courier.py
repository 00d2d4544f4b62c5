"""Work that may hang, done in a thread that nobody has to wait for.

Owns one daemon thread for each :class:`Courier`. It is started with the courier
and not when there is work, because some Python versions start no thread any
more once the process exits, which is when couriers matter most.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable

__all__ = ["Courier", "Errand"]


class Errand:
    """One piece of work and what became of it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._is_done = threading.Event()
        self.result: object = None
        """What the work returned; None when it raised."""

        self.error: BaseException | None = None
        """What the work raised."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for the work for up to ``timeout_s`` seconds; return whether it is done."""
        return self._is_done.wait(max(timeout_s, 0.0))

    def run(self) -> None:
        """Do the work; what it raises is kept."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - there is nobody above to take it
            self.error = error
        finally:
            self._is_done.set()


class Courier:
    """Does errands one after the other.

    Args:
        name: The thread's name.
        restarts: Whether it does so again in a forked child. The process never
            forgets one that does, so not for those that are made time and again.
    """

    def __init__(self, name: str, *, restarts: bool = True) -> None:
        self._name = name
        self._start()
        if restarts and hasattr(os, "register_at_fork"):
            restart = weakref.WeakMethod(self._start)
            os.register_at_fork(after_in_child=lambda: (method := restart()) and method())

    def send(self, work: Callable[[], object]) -> Errand:
        """Put ``work`` at the end of the queue and return at once."""
        errand = Errand(work)
        self._errands.put(errand)
        return errand

    def close(self) -> None:
        """Let the thread end once everything that was sent is done."""
        self._errands.put(None)

    def _start(self) -> None:
        # What was queued before a fork is the parent's to do.
        self._errands: queue.SimpleQueue[Errand | None] = queue.SimpleQueue()
        thread = threading.Thread(target=_run, args=(self._errands,), name=self._name, daemon=True)
        thread.start()


def _run(errands: queue.SimpleQueue[Errand | None]) -> None:
    while errand := errands.get():
        errand.run()
