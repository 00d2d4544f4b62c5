"""The one boundary between our own errors and the compile that is observed.

Whatever of ours runs inside somebody's compile runs in here: an ``Exception``
is swallowed and logged once with its traceback, and instrumentation is
suppressed while logging, so that a log handler cannot come back to us.
``KeyboardInterrupt`` and ``SystemExit`` are the user's and pass through, and so does
whatever a signal handler of the program's raises while our code happens to run.
"""

from __future__ import annotations

import logging
from types import TracebackType

from opentelemetry import context as otel_context

from tilelang_otel._interrupt import is_from_signal, swallowed_interrupt

__all__ = ["Guard", "guard"]

_logger = logging.getLogger(__name__)

_MESSAGE = (
    "tilelang-otel failed while recording a compile. The compile itself is not affected; "
    "some of its spans are missing. This is logged once for each place it happens."
)


class Guard:
    """Context manager that swallows and reports our own exceptions.

    Attributes:
        reraise: Let exceptions out, so that a test run does not hide bugs.
    """

    reraise = False

    def __init__(self) -> None:
        self._reported: set[tuple[str, int]] = set()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        interrupt = swallowed_interrupt(error)
        if interrupt is not None:
            raise interrupt from None
        if is_from_signal(error):
            return False
        self.report(error)
        return not self.reraise

    def report(self, error: Exception) -> None:
        """Log ``error`` unless the same place was reported before. Never raises.

        Args:
            error: An exception that was caught in our own code.
        """
        try:
            place = _place(error)
            if place in self._reported:
                return
            self._reported.add(place)
            token = otel_context.attach(otel_context.set_value("suppress_instrumentation", True))
            try:
                _logger.warning(_MESSAGE, exc_info=error)
            finally:
                otel_context.detach(token)
        except Exception:  # noqa: BLE001 - a broken log handler must not fail a compile either
            return


def _place(error: Exception) -> tuple[str, int]:
    trace = error.__traceback__
    if trace is None:
        return (type(error).__qualname__, 0)
    while trace.tb_next is not None:
        trace = trace.tb_next
    return (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


guard = Guard()
"""The boundary that all of the package shares."""
