"""Work on finished compiles that one thread does, off the compile's path.

Owns that thread, how much may wait for it, how it keeps out of the way of compiles,
and what becomes of what waits when the process forks or ends. What the work is, is up
to ``_emission``; it is done at once, by whoever has it, where no thread may do it.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from tilelang_otel._activity import wait_until_quiet
from tilelang_otel._config import warn_once
from tilelang_otel._courier import Courier, Errand
from tilelang_otel._guard import guard
from tilelang_otel._providers import facts_of

__all__ = [
    "Job",
    "Pace",
    "close",
    "drain",
    "inline",
    "lost_spans",
    "prepare",
    "progress",
    "send",
    "start_drain",
]

_MAX_WAITING: Final = 262_144
"""How many spans may wait; what comes then is lost, and said to be."""

_CHUNK: Final = 8
"""How many spans are made before another look at whether a compile needs Python."""

_DEFER_S: Final = 1.0
"""How long spans wait for compiles to be busy with themselves."""

_FLUSH_TIMEOUT_MS: Final = 30_000

_DRAIN_TIMEOUT_S: Final = 5.0


class Pace(Protocol):
    """Slows whoever makes spans down to what others can stand."""

    chunk: int
    """How many spans are to be made at once."""

    def made(self, spans: int) -> None:
        """Wait, if others need to go on before more are made."""


class Job(Protocol):
    """Finished records that are to become spans."""

    provider: Any
    """The tracer provider of the spans."""

    size: int
    """How many spans that may be."""

    def run(self, pace: Pace) -> None:
        """Make the spans."""

    def give_up(self) -> None:
        """End what is started already, as nothing else will be made of it."""


class _Unhurried:
    """The pace of who makes spans while the compile waits: all at once."""

    chunk = 1 << 30

    def made(self, spans: int) -> None:
        """Do not wait."""


_UNHURRIED: Final = _Unhurried()


class _Worker:
    """The thread, while there is one, and what waits for it."""

    def __init__(self) -> None:
        self.chunk = _CHUNK
        self.made_in_all = 0
        self.lost = 0
        self.is_child = False
        self.is_closed = False
        self._provider: Any = None
        self._since_flush = 0
        self._waited_for = 0
        self._deferred_since_s = 0.0
        self._drains_at_exit = False
        self._courier: Courier | None = None
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0
        self._thread_id = 0

    def forked(self) -> None:
        """Forget what waits: it is the parent's. A child does its work itself, at once."""
        self._reset()
        self.is_child = True

    def prepare(self) -> None:
        """Be there before work comes: some Pythons start no thread while the process exits."""
        self._start()

    def _start(self) -> Courier:
        with self._lock:
            if self._courier is None:
                self._courier = Courier("tilelang-otel-spans")
                self._courier.send(self._remember_thread)
            return self._courier

    def _remember_thread(self) -> None:
        self._thread_id = threading.get_ident()

    def send(self, job: Job) -> None:
        """Have a job done; at once if no thread is there to do it."""
        if self.is_child or self.is_closed:
            job.run(_UNHURRIED)
            return
        try:
            courier = self._start()
            if not self._drains_at_exit and not facts_of(job.provider).is_ours:
                # Exit handlers run last to first, so before that of a provider that
                # was there by now.
                self._drains_at_exit = True
                atexit.register(_drain_at_exit)
        except RuntimeError:  # the process exits, and this Python starts no thread any more
            job.run(_UNHURRIED)
            return
        with self._lock:
            has_room = self._waiting + job.size <= _MAX_WAITING
            self._waiting += job.size if has_room else 0
            self.lost += 0 if has_room else job.size
        if has_room:
            courier.send(lambda: self._do(job))
            return
        warn_once(
            "background",
            f"spans of compiles are dropped: {_MAX_WAITING} wait for the exporter already; "
            "`tilelang-otel doctor` says whether it works",
        )
        job.give_up()

    def _do(self, job: Job) -> None:
        self._provider = job.provider
        self._deferred_since_s = time.monotonic()
        try:
            with guard:
                self._let_compiles_run()
                job.run(self)
        finally:
            with self._lock:
                self._waiting -= job.size

    def made(self, spans: int) -> None:
        """Let other threads run, and the exporter catch up."""
        self.made_in_all += spans
        self._let_compiles_run()
        self._since_flush += spans
        # Half of it: others put spans into that queue as well.
        if self._since_flush >= max(facts_of(self._provider).queue_spans // 2, 1):
            self._since_flush = 0
            force_flush = getattr(self._provider, "force_flush", None)
            if force_flush is not None:
                force_flush(_FLUSH_TIMEOUT_MS)

    def _let_compiles_run(self) -> None:
        left_s = self._deferred_since_s + _DEFER_S - time.monotonic()
        if left_s > 0:
            wait_until_quiet(left_s, lambda: self._waited_for > 0)

    def start_drain(self, last: Callable[[], object] | None = None) -> Errand:
        """Return what is done once all that has been sent so far is.

        Args:
            last: Called after that; what it sends is waited for as well.
        """
        errand = Errand(lambda: None)
        courier = self._courier
        if courier is None or self.is_child or threading.get_ident() == self._thread_id:
            try:
                if last is not None:
                    last()
            finally:
                errand.run()
        elif last is None:
            courier.send(errand.run)
        else:
            courier.send(last)
            courier.send(lambda: courier.send(errand.run))
        return errand

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that has been sent so far is done.

        Args:
            timeout_s: How many seconds to wait.

        Returns:
            Whether it is done.
        """
        self._waited_for += 1
        try:
            return self.start_drain().wait(timeout_s)
        finally:
            self._waited_for -= 1

    def close(self) -> int:
        """Leave what comes from now on to who sends it; return how many spans still wait."""
        self.is_closed = True
        with self._lock:
            return self._waiting + self.lost


_worker = _Worker()

close = _worker.close
drain = _worker.drain
prepare = _worker.prepare
send = _worker.send
start_drain = _worker.start_drain


def inline(job: Job) -> None:
    """Do a job here and now."""
    job.run(_UNHURRIED)


def lost_spans() -> int:
    """Return how many spans were dropped because too many waited."""
    return _worker.lost


def progress() -> int:
    """Return a number that changes whenever spans are made."""
    return _worker.made_in_all


def _drain_at_exit() -> None:
    with guard:
        _worker.drain(_DRAIN_TIMEOUT_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_worker.forked)
