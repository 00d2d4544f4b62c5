"""SIGTERM: spans are exported first, then it takes the course it would have taken.

Owns the installation, what becomes of it in a forked child, and that it stays in force.
When to install, and when to look, is up to whoever records.

A program may set a handler of its own, or the default, at any time. That is found when
a compile begins or ends on the main thread, and handed on to from then on. Python lets no
other thread set handlers, so where only others compile, and after the last compile, what
the program has set is all that happens: exports can begin, but nobody waits for them.

The process may end a little later than without, never otherwise: all waiting is
bounded, a second signal ends it, and nothing that fails here keeps the signal back.
Code that keeps Python's lock holds the handler up, as it does with any in Python.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Final

from tilelang_otel._config import warn_once
from tilelang_otel._guard import guard
from tilelang_otel._sigterm._flush import involve
from tilelang_otel._sigterm._handler import Handler
from tilelang_otel._sigterm._system import default_setter

__all__ = ["install", "stay", "uninstall"]


_FOREIGN: Final = "its handler is not one of Python's"


class _State:
    """The installation in force, and what is registered once for all."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self._is_registered = False
        self._thread = threading.local()

    def install(self, timeout_s: float, provider: Any = None) -> None:
        """Export on SIGTERM from here on, if that is possible; else warn once.

        Args:
            timeout_s: How many seconds that may take.
            provider: A tracer provider to export the spans of, beside the global one.
        """
        if provider is not None:
            involve(provider)
        if self.handler is not None:
            self.stay()
            return
        set_default = default_setter()
        previous = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is not threading.main_thread():
            problem = "trace compiles from the main thread first"
        elif set_default is None:
            problem = "there is no such thing on this system"
        elif previous is None:
            problem = _FOREIGN
        else:
            handler = Handler(set_default, timeout_s)
            self._register()
            self.handler = handler
            handler.install(previous)
            return
        _warn(problem)

    def stay(self) -> None:
        """Be in force again, if the program has set a handler since.

        Does nothing outside the main thread, where Python lets nobody set one.
        """
        handler = self.handler
        if handler is None:
            return
        found = signal.getsignal(signal.SIGTERM)
        if found is handler.link or threading.current_thread() is not threading.main_thread():
            return
        if found is None:
            _warn(_FOREIGN)
        else:
            handler.install(found)

    def uninstall(self) -> None:
        """Undo :meth:`install`. In the main thread."""
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.uninstall()

    def _register(self) -> None:
        if not self._is_registered:
            self._is_registered = True
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork,
                after_in_child=self._after_fork_in_child,
            )

    def _before_fork(self) -> None:
        # Until it has a pipe of its own, a child's signal would reach its parent.
        self._thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _after_fork(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._thread.mask)

    def _after_fork_in_child(self) -> None:
        try:
            if self.handler is not None:
                with guard:
                    self.handler.forked()
        finally:
            self._after_fork()


def _warn(problem: str) -> None:
    warn_once("SIGTERM", f"SIGTERM does not export spans: {problem}")


_state = _State()

install = _state.install
stay = _state.stay
uninstall = _state.uninstall
