"""The handler of SIGTERM, and the thread that acts for it while it cannot run.

Owns when a flush begins, how long anybody waits for it, what becomes of the process
then, and that a handler which the program sets later is handed on to. What is flushed is
up to ``_flush``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from tilelang_otel._courier import Courier
from tilelang_otel._guard import guard
from tilelang_otel._sigterm._flush import Flush
from tilelang_otel._sigterm._system import restarts_calls

__all__ = ["Handler"]

_SAME_S: Final = 1.0
"""Signals closer together are one: ``timeout`` and process managers send it to a process
and to its group."""

_LONGEST_POLL_S: Final = 3600.0

_INIT_PID: Final = 1
"""The kernel ignores signals to this process that it has no handler for."""


class _Link:
    """What the system calls: exports, then hands on to the handler that it has replaced.

    Each handler of the program that is found in its place gets one of its own. A handler
    may in turn call the link that it has replaced, so that only the last one exports.

    Args:
        handler: What it belongs to.
        previous: What to hand on to.
        restarts: Whether system calls go on after the signal.
    """

    def __init__(self, handler: Handler, previous: Any, restarts: bool) -> None:
        self.handler = handler
        self.previous = previous
        self._restarts = restarts

    def install(self) -> None:
        """Take its place."""
        self._set(self)

    def uninstall(self) -> None:
        """Give it back."""
        self._set(self.previous)

    def _set(self, new: Any) -> None:
        signal.signal(signal.SIGTERM, new)
        if self._restarts and callable(new):
            # Setting a handler has put an end to that.
            signal.siginterrupt(signal.SIGTERM, False)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Run in the main thread, when that runs Python again."""
        handler = self.handler
        try:
            if self in (handler.link, handler.link_in_force()):
                handler.flush()
        except Exception as error:  # noqa: BLE001 - the program must get its signal
            guard.report(error)
        finally:
            if callable(self.previous):
                # One that is in force again has been called, and has called us.
                if self.previous != signal.getsignal(signal.SIGTERM):
                    self.previous(number, frame)
            elif handler.is_fatal():
                handler.die()


class Handler:
    """One installation. Not more than one at a time listens; others only hand on.

    Args:
        set_default: Gives a signal its default action, from any thread.
        timeout_s: How many seconds exporting may take.

    Attributes:
        link: The last that has become the handler; None before, and when that is over.
    """

    def __init__(self, set_default: Callable[[int], object], timeout_s: float) -> None:
        self.link: _Link | None = None
        self.timeout_s = timeout_s
        self._set_default = set_default
        self._start()

    def _start(self) -> None:
        # Reentrant: a second signal may come while the handler runs.
        self._lock = threading.RLock()
        self._flush: Flush | None = None
        self._courier: Courier | None = Courier("tilelang-otel-sigterm-flush", restarts=False)
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        threading.Thread(
            target=self._listen, args=(self._read_fd,), name="tilelang-otel-sigterm", daemon=True
        ).start()

    def install(self, found: Any) -> None:
        """Become the handler. In the main thread.

        Args:
            found: The one that is in force, and is to be handed on to.
        """
        # The program may have put back what it had replaced.
        self.link = self.link_in_force()
        if self.link is None:
            # An ignored signal interrupts nothing.
            restarts = found is signal.SIG_IGN or restarts_calls(signal.SIGTERM)
            self.link = _Link(self, found, restarts)
            self.link.install()
        _swap_wakeup_fd(-1, self._write_fd)

    def uninstall(self) -> None:
        """Undo that, as far as nobody else has come in between."""
        link, self.link = self.link, None
        if link is not None and signal.getsignal(signal.SIGTERM) is link:
            link.uninstall()
        _swap_wakeup_fd(self._write_fd, -1)
        courier, self._courier = self._courier, None
        if courier is not None:
            courier.close()
        os.close(self._write_fd)  # which ends the thread

    def forked(self) -> None:
        """Have threads and a pipe of one's own, in a forked child."""
        _swap_wakeup_fd(self._write_fd, -1)
        os.close(self._read_fd)
        os.close(self._write_fd)
        self._start()
        _swap_wakeup_fd(-1, self._write_fd)

    def flush(self) -> None:
        """Export what there is, or wait for whoever does already."""
        flush = self._begin_flush()
        flush.over.wait(flush.left_s())

    def _begin_flush(self) -> Flush:
        """Begin a flush unless one is going on."""
        with self._lock:
            flush = self._flush
            if flush is None or flush.over.is_set():
                flush = self._flush = Flush(self.timeout_s, self.is_fatal())
                if self._courier is not None:
                    self._courier.send(lambda flush=flush: self._run(flush))
                else:
                    flush.over.set()
            return flush

    def _run(self, flush: Flush) -> None:
        try:
            flush.run()
        finally:
            if flush.is_last:
                self.die()

    def _listen(self, fd: int) -> None:
        """Run in a thread: the system writes the number of each signal to a pipe."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while True:
            flush = self._flush
            dying = flush if flush is not None and flush.is_last else None
            wait_s = None if dying is None else min(dying.left_s(), _LONGEST_POLL_S)
            ready = poll.poll(None if wait_s is None else wait_s * 1000)
            numbers = os.read(fd, 4096) if ready else b""
            if ready and not numbers:
                os.close(fd)
                return
            if dying is not None and not dying.left_s():
                self.die()
            if signal.SIGTERM in numbers:
                try:
                    self._signalled()
                except Exception as error:  # noqa: BLE001 - the signal must not be lost
                    guard.report(error)
                    if self.is_fatal():
                        self.die()

    def _signalled(self) -> None:
        flush = self._flush
        if flush is None or flush.over.is_set() or flush.age_s() < _SAME_S:
            self._begin_flush()
            return
        # Somebody is in a hurry.
        flush.over.set()
        if flush.is_last:
            self.die()

    def is_fatal(self) -> bool:
        """Tell whether SIGTERM would have ended the process."""
        link = self.link_in_force()
        # Another handler that calls ours would not have called the default.
        return link is not None and link.previous is signal.SIG_DFL and os.getpid() != _INIT_PID

    def link_in_force(self) -> _Link | None:
        """Return what the system calls; None if it isn't one of ours."""
        found = signal.getsignal(signal.SIGTERM)
        return found if isinstance(found, _Link) and found.handler is self else None

    def die(self) -> None:
        """End the process, as SIGTERM does by default."""
        self._set_default(signal.SIGTERM)
        # Whoever got the signal may have blocked it since.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.kill(os.getpid(), signal.SIGTERM)


def _swap_wakeup_fd(expected: int, new: int) -> None:
    """Set what signal numbers are written to, unless somebody else has set it."""
    # Which it is can only be found out by setting another, which must lose no signal.
    read_fd, write_fd = os.pipe()
    try:
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        found = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        right = new if found in (expected, new) else found
        signal.set_wakeup_fd(right, warn_on_full_buffer=False)
        with contextlib.suppress(BlockingIOError):
            numbers = os.read(read_fd, 4096)
            if right != -1:
                os.write(right, numbers)
    finally:
        os.close(read_fd)
        os.close(write_fd)
