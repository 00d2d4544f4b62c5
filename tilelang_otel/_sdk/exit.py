"""Leaving the process: what is still to be delivered, and how long that may take.

Owns the one ``atexit`` handler of this package and its deadlines. What is being
delivered, and how, is up to what was added to it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tilelang_otel import _background
from tilelang_otel._activity import latest_first
from tilelang_otel._courier import Courier, Errand
from tilelang_otel._guard import guard
from tilelang_otel._providers import facts_of
from tilelang_otel._sdk.export_errors import mute

__all__ = ["PATIENCE", "ExitHandler", "Leaving", "ShutDown", "finish"]

_logger = logging.getLogger(__name__)

PATIENCE: Final = 6
"""How many exit timeouts a receiver gets that goes on accepting."""

_POLL_S: Final = 0.02

_LAST_S: Final = 0.1
"""How many seconds a receiver gets for a last word when it has made us wait before."""


class Leaving(Protocol):
    """Something that has to be finished before the process ends."""

    @property
    def progress(self) -> int:
        """A number that changes whenever something got through."""
        ...

    def start_close(self) -> Errand:
        """Begin to finish, and return at once."""
        ...

    def loss(self) -> str | None:
        """Return what did not get through, in words; None if nothing is known to be lost."""
        ...


class ShutDown:
    """Something of the SDK that is shut down as a whole.

    Args:
        shutdown: Does it; may take long, and is called in another thread.
        what: What it is, for a message.
        is_ours: Whether what its exporters log is replaced by that message; the
            application's own exporters speak for themselves.
    """

    progress = 0

    def __init__(self, shutdown: Callable[[], object], what: str, *, is_ours: bool = True) -> None:
        self._shutdown = shutdown
        self._what = what
        self._is_ours = is_ours
        self._courier = Courier("tilelang-otel-shutdown")
        self._errand: Errand | None = None

    def start_close(self) -> Errand:
        """Begin to shut it down, and return at once."""
        if self._is_ours:
            # Exporters would say the same for every batch.
            for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
                mute(name)
        self._errand = self._courier.send(self._shutdown)
        self._courier.close()
        return self._errand

    def loss(self) -> str | None:
        """Return a sentence if it did not finish."""
        if self._errand is not None and self._errand.wait(0) and self._errand.error is None:
            return None
        return f"{self._what} could not all be delivered: no answer in time"


class _Wait:
    """One thing that is waited for."""

    def __init__(self, leaving: Leaving, timeout_s: float) -> None:
        self.leaving = leaving
        self._timeout_s = timeout_s
        self._errand = leaving.start_close()
        self._progress = leaving.progress
        self.deadline_s = time.monotonic() + timeout_s
        self._limit_s = time.monotonic() + timeout_s * PATIENCE

    def is_done(self) -> bool:
        """Return whether it is done."""
        return self._errand.wait(0)

    def is_over(self) -> bool:
        """Return whether it is done, or not worth waiting for any longer."""
        if self.is_done():
            return True
        now_s = time.monotonic()
        if self.leaving.progress != self._progress:
            self._progress = self.leaving.progress
            self.deadline_s = min(now_s + self._timeout_s, self._limit_s)
        return now_s >= self.deadline_s

    def wait(self) -> None:
        """Wait a little."""
        self._errand.wait(min(self.deadline_s - time.monotonic(), _POLL_S))


def finish(
    leaving: Sequence[Leaving], timeout_s: float, last: Callable[[], object] | None = None
) -> None:
    """Finish everything at once, and wait within a bound.

    Spans that are yet to be made of finished compiles come before all that takes
    spans.

    Args:
        leaving: What to finish.
        timeout_s: After how many seconds without progress one of them is given
            up. What goes on making progress gets :data:`PATIENCE` times as long.
        last: Hands on what would not be finished otherwise; called after what was finished.
    """
    try:
        making = _Wait(_Making(leaving, last), timeout_s)
        while not making.is_over():
            making.wait()
    except BaseException:
        # Nobody waits any more, but what can be done without is done.
        for item in leaving:
            item.start_close()
        raise
    if not making.is_done():
        # It was them that the making waited for: they have had their time.
        timeout_s = min(timeout_s, _LAST_S)
    waits = [_Wait(item, timeout_s) for item in leaving]
    while waits := [wait for wait in waits if not wait.is_over()]:
        waits[0].wait()


class _Making:
    """The spans that are made in the background, while those who take them work."""

    def __init__(self, receivers: Sequence[Leaving], last: Callable[[], object] | None) -> None:
        self._receivers = receivers
        self._last = last

    @property
    def progress(self) -> int:
        """How many spans were made or arrived."""
        return _background.progress() + sum(item.progress for item in self._receivers)

    def start_close(self) -> Errand:
        """Have everything made that waits."""
        return _background.start_drain(self._last)

    def loss(self) -> str | None:
        """Return nothing: who exits says what was not made."""
        return None


def _hand_on_running() -> None:
    """Hand on what is known of compiles that have not ended, in threads that nobody waits for."""
    for compile_ in latest_first():
        if facts_of(compile_.provider).is_ours:
            with guard:
                compile_.exited()


class ExitHandler:
    """Finishes what was added to it when the process exits; Ctrl-C ends the waiting.

    Args:
        timeout_s: As for :func:`finish`.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._leaving: list[Leaving] = []
        atexit.register(self.run)

    def add(self, leaving: Leaving) -> None:
        """Finish this too."""
        self._leaving.append(leaving)

    def run(self) -> None:
        """Finish everything. Never raises; says in one line what was lost."""
        leaving, self._leaving = self._leaving, []
        # Ctrl-C: the program is over, and its user has no more time for us.
        with contextlib.suppress(KeyboardInterrupt):
            finish(leaving, self._timeout_s, _hand_on_running)
        losses = [loss for item in leaving if (loss := item.loss())]
        if left := _background.close():
            losses.append(f"{left} spans of finished compiles were not made in time")
        if losses:
            _logger.warning("tilelang-otel: %s", "; ".join(losses))
