"""How the kernels of one ``par_compile`` or tuning run came out, whichever thread ran them."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context

from tilelang_otel import semconv
from tilelang_otel._guard import guard
from tilelang_otel._scopes import CompileScope

__all__ = ["CONFIGURATION_KEY", "Tally", "configuration", "count", "counted", "tallied"]

_KEY = otel_context.create_key("tilelang-otel-tally")
CONFIGURATION_KEY = otel_context.create_key("tilelang-otel-configuration")
"""Under which a thread's context tells which of many configurations it works on."""


class Tally:
    """Counts kernels.

    Attributes:
        compiled: How many were got.
        failed: How many failed.
        last_error: Why the last one failed; forgotten when the run is over.
        last_name: Name of its span.
    """

    def __init__(self) -> None:
        self.compiled = 0
        self.failed = 0
        self.last_error: BaseException | None = None
        self.last_name = ""
        self._lock = threading.Lock()

    def count(self, name: str, error: BaseException | None) -> None:
        """Count one kernel.

        Args:
            name: Name of its span.
            error: Why it failed, if it did.
        """
        with self._lock:
            if error is None:
                self.compiled += 1
            else:
                self.failed += 1
                self.last_error, self.last_name = error, name


@contextmanager
def tallied() -> Generator[Tally, None, None]:
    """Count the kernels that are compiled in this scope, and in threads that carry it on."""
    tally = Tally()
    token = otel_context.attach(otel_context.set_value(_KEY, tally))
    try:
        yield tally
    finally:
        otel_context.detach(token)
        tally.last_error = None


def count(scope: CompileScope, error: BaseException | None) -> None:
    """Count one kernel for the run that this thread works for, if there is one.

    Args:
        scope: The kernel's compile.
        error: Why it failed, if it did.
    """
    with guard:
        tally = otel_context.get_value(_KEY)
        if isinstance(tally, Tally):
            tally.count(scope.record.name if scope.record is not None else "", error)


@contextmanager
def counted(scope: CompileScope) -> Generator[None, None, None]:
    """Count the kernel of this scope, once, however its entry points call each other.

    Args:
        scope: The kernel's compile, which has just been entered.
    """
    if not scope.is_outermost:
        yield
        return
    try:
        yield
    except Exception as error:
        count(scope, error)
        raise
    count(scope, None)


def configuration() -> dict[str, Any]:
    """Return what a kernel's span says of which configuration this thread works on."""
    index = otel_context.get_value(CONFIGURATION_KEY)
    return {semconv.TILELANG_CONFIG_INDEX: index} if isinstance(index, int) else {}
