"""Spans on their way out of the process: batched, counted, within deadlines.

Owns what stands around one span exporter: the SDK's batch processor, counting
what arrived, one warning instead of many, flushing that comes back in time, and
forked children. Which exporters there are is up to ``provider``, and when the
process waits for them up to ``_sdk.exit``.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from tilelang_otel import _background, _crash
from tilelang_otel._activity import running, wait_until_quiet
from tilelang_otel._config import warn_once
from tilelang_otel._courier import Courier, Errand
from tilelang_otel._sdk.exit import finish
from tilelang_otel._sdk.export_errors import explain, listening

__all__ = ["CountingExporter", "Delivery"]

_FLUSH_TIMEOUT_S = 30.0

_DEFER_S = 1.0
"""How long an export waits for compiles to be busy with themselves."""

_PORTION = 64
"""How many spans are exported at once while something compiles: 4 ms of encoding."""


class CountingExporter(SpanExporter):
    """Knows what became of the spans that another exporter was given.

    Args:
        make: Makes the other exporter. Called again in a forked child, where
            connections of the parent cannot be used.
        target: Where spans go, for messages.
        mask: Blacks out what is secret in a message.
    """

    def __init__(
        self, make: Callable[[], SpanExporter], target: str, mask: Callable[[str], str]
    ) -> None:
        self.target = target
        self.delivered = 0
        self.failed = 0
        self.is_quiet = False
        """Whether failures are counted and not warned about."""

        self.in_flight = 0
        """How many spans are being exported."""
        self.is_urgent = False
        """Whether somebody waits for what is exported."""

        self._said: list[str] = []
        self._make = make
        self._mask = mask
        self._exporter = make()
        self._pid = os.getpid()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand ``spans`` on and count them. Never raises.

        Encoding takes Python's lock for as long as the batch is large, so unless
        somebody waits for it, it waits for compiles that need Python.
        """
        start = 0
        self.in_flight = len(spans)
        while True:
            wait_until_quiet(_DEFER_S, lambda: self.is_urgent)
            is_alone = self.is_urgent or not running()
            portion = spans[start:] if is_alone else spans[start : start + _PORTION]
            result = self._export(portion)
            start += len(portion)
            self.in_flight = len(spans) - start
            if start >= len(spans) or result is not SpanExportResult.SUCCESS:
                # After one failure, the rest of a batch would fail as slowly.
                self.failed += len(spans) - start
                self.in_flight = 0
                return result

    def _export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with listening(self._said):
            try:
                result = self._own_exporter().export(spans)
            except Exception as error:  # noqa: BLE001 - an exporter may raise anything
                self._said.append(f"{type(error).__name__}: {error}")
                result = SpanExportResult.FAILURE
        # Delivered or lost: a crash changes nothing about either any more.
        _crash.exported([span.context.span_id for span in spans if span.context is not None])
        if result is SpanExportResult.SUCCESS:
            self.delivered += len(spans)
            self._said.clear()
            return result
        self.failed += len(spans)
        if reason := getattr(self._exporter, "failure_reason", ""):
            # One of our own, which has warned by itself.
            self._said.append(reason)
        elif not self.is_quiet:
            warn_once(
                f"export {self.target}",
                f"traces cannot be delivered to {self.target}: {self.reason}. The program goes "
                "on without; `tilelang-otel doctor` says more",
            )
        return result

    @property
    def reason(self) -> str:
        """Why spans do not arrive, as far as it is known; also while an export goes on."""
        said = [self._mask(message) for message in list(self._said)]
        return explain(said).what if said else "no answer in time"

    def shutdown(self) -> None:
        """Shut the other exporter down."""
        with listening([]):
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Flush the other exporter."""
        return self._exporter.force_flush(timeout_millis)

    def _own_exporter(self) -> SpanExporter:
        if self._pid != os.getpid():
            self._exporter = self._make()
            self._pid = os.getpid()
        return self._exporter


class Delivery(SpanProcessor):
    """The SDK's batch processor, with deadlines that hold.

    The SDK's own flush waits for its exporter as long as that takes, and its
    shutdown for 30 s. In a forked child, whatever ends there is flushed as soon
    as nothing is open any more: such a child usually leaves without notice.

    Attributes:
        exporter: See below.
        overflowed: How many spans came when the queue was full, each of which cost one.

    Args:
        exporter: Where batches go. Batch sizes are taken from the environment.
        timeout_s: How many seconds without progress a shutdown waits, and a
            forked child for a flush.
        queue_spans: How many spans wait at most, as the environment says.
    """

    def __init__(
        self, exporter: CountingExporter, timeout_s: float, queue_spans: int = 2048
    ) -> None:
        self.exporter = exporter
        self._queue_spans = queue_spans
        self._batches = BatchSpanProcessor(exporter)
        self._courier = Courier("tilelang-otel-delivery")
        self._timeout_s = timeout_s
        self._is_closed = False
        self._is_child = False
        self._reset()
        if hasattr(os, "register_at_fork"):
            forked = weakref.WeakMethod(self._forked)
            os.register_at_fork(after_in_child=lambda: (method := forked()) and method())

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._ended = 0
        self._open = 0
        self.overflowed = 0
        self._closing: Errand | None = None

    def _forked(self) -> None:
        self._reset()
        self.exporter.delivered = self.exporter.failed = self.exporter.in_flight = 0
        self._is_child = True

    @property
    def progress(self) -> int:
        """How many spans arrived."""
        return self.exporter.delivered

    def loss(self) -> str | None:
        """Return what did not arrive, in words; None if everything did."""
        lost = self._ended - self.exporter.delivered
        if lost <= 0:
            return None
        spans = "1 span" if lost == 1 else f"{lost} spans"
        is_done = self._closing is not None and self._closing.wait(0)
        if is_done and not self.exporter.failed:
            return f"{spans} did not fit into the queue: raise OTEL_BSP_MAX_QUEUE_SIZE"
        return f"{spans} could not be delivered to {self.exporter.target}: {self.exporter.reason}"

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Count open spans, in a forked child."""
        if self._is_child:
            with self._lock:
                self._open += 1

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span; in a forked child flush when it was the last one open."""
        if self._is_closed:
            return
        is_last = False
        with self._lock:
            if span.context is not None and span.context.trace_flags.sampled:
                self.overflowed += self._waiting() >= self._queue_spans
                self._ended += 1
            if self._is_child:
                self._open -= 1
                is_last = self._open <= 0
        self._batches.on_end(span)
        if is_last and not self.force_flush(int(self._timeout_s * 1000)):
            # Once is enough: from now on the child does not wait any more.
            self._is_child = False

    def _waiting(self) -> int:
        """Return how many spans are in the queue, which the SDK does not tell."""
        exporter = self.exporter
        gone = exporter.delivered + exporter.failed + exporter.in_flight + self.overflowed
        return self._ended - gone

    def start_flush(self) -> Errand:
        """Begin to export what has ended, and return at once."""
        return self._courier.send(self._flush)

    def start_close(self) -> Errand:
        """Take no more spans, begin to export what is there, and return at once.

        Where the program has shut its provider down, the exit finds that begun already.
        """
        if self._closing is None:
            self._is_closed = True
            self.exporter.is_quiet = True
            self._closing = self._courier.send(self._close)
            self._courier.close()
        return self._closing

    def _flush(self) -> None:
        self.exporter.is_urgent = True
        try:
            self._batches.force_flush()
        finally:
            self.exporter.is_urgent = False

    def _close(self) -> None:
        self.exporter.is_urgent = True
        self._batches.force_flush()
        self._batches.shutdown()

    def force_flush(self, timeout_millis: int | None = None) -> bool:
        """Export what has ended, spans of finished compiles among it.

        Args:
            timeout_millis: How many milliseconds to wait; None means 30 s.

        Returns:
            Whether all of it arrived in time.
        """
        if self._is_closed:
            return False
        failed = self.exporter.failed
        timeout_s = _FLUSH_TIMEOUT_S if timeout_millis is None else timeout_millis / 1000
        deadline_s = time.monotonic() + timeout_s
        if not _background.drain(timeout_s):
            return False
        is_in_time = self.start_flush().wait(deadline_s - time.monotonic())
        return is_in_time and self.exporter.failed == failed

    def shutdown(self) -> None:
        """Export what has ended, wait for it as long as process exit would, take nothing more."""
        if not self._is_closed:
            finish([self], self._timeout_s)
