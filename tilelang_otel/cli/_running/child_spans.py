"""Spans of the processes that a traced program starts: exported as soon as they can be.

A worker of a pool is killed when it is no longer needed, and a forked one
leaves without running exit handlers. So nothing may be held back there for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

__all__ = ["FlushWhenIdle"]


class FlushWhenIdle(SpanProcessor):
    """Flushes whenever no span is open any more. Add it after what is to be flushed.

    Args:
        flush: Exports what has ended; returns whether that worked. When it did
            not, it is not called again: once is long enough to wait.
    """

    def __init__(self, flush: Callable[[], bool]) -> None:
        self._flush = flush
        self._lock = threading.Lock()
        self._open = 0
        self._is_on = True

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Count an open span."""
        with self._lock:
            self._open += 1

    def on_end(self, span: ReadableSpan) -> None:
        """Flush after the last open span."""
        with self._lock:
            self._open -= 1
            is_idle = self._is_on and self._open <= 0
        if is_idle and not self._flush():
            self._is_on = False
