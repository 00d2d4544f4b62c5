"""How the kernels of one ``par_compile`` or tuning run came out, whichever thread ran them."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import context as otel_context

from tilelang_otel._guard import guard
from tilelang_otel._recorder import CompileScope

__all__ = ["Tally", "count", "tallied"]

_KEY = otel_context.create_key("tilelang-otel-tally")


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
