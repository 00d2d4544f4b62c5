"""Finished records, made into spans: names, attributes, status, times.

Emission is a plain function from records to spans. When it happens, and in
which thread, is up to ``_recording``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from tilelang_otel import semconv
from tilelang_otel._frames import Failure, Frame, Record
from tilelang_otel._guard import guard
from tilelang_otel._scrub import clean_name

__all__ = ["SpanLog", "context_below", "emit"]

_INTERNAL = SpanKind.INTERNAL
_CLIENT = SpanKind.CLIENT

_NO_EXCEPTIONS = (semconv.ERROR_TYPE_OTHER, semconv.ERROR_TYPE_PROCESS_DIED)


class SpanLog(Protocol):
    """Wants to know which span a record has become."""

    def started(self, record: Record, span_id: int) -> None:
        """Take note of the id of a record's span."""

    def sent(self, record: Record) -> None:
        """Take note that a record's span has ended, and is the provider's."""


def emit(
    records: Iterable[Record],
    tracer: Tracer,
    context: Context | None,
    wall_offset_ns: int,
    log: SpanLog | None = None,
) -> list[Record]:
    """Make spans of records; what has been sent before is left out.

    Args:
        records: In start order, so that parents come before their children.
        tracer: What starts the spans.
        context: Where the spans of records without a parent start.
        wall_offset_ns: What to add to a record's times to get wall clock times.
        log: Who is to be told.

    Returns:
        The records that are still open: their spans are started, so that
        children have a parent, and wait for their end.
    """
    start_span = tracer.start_span
    still_open: list[Record] = []
    rest = iter(records)
    while True:
        # Gone on with after a span that a provider fails on: it must not cost the others.
        with guard:
            for record in rest:
                # Read once: the record may be another thread's, and end just now.
                end_ns = record.end_ns
                if not end_ns:
                    still_open.append(record)
                if not record.is_sent:
                    _emit_one(record, end_ns, start_span, context, wall_offset_ns, log)
            return still_open


def _emit_one(
    record: Record,
    end_ns: int,
    start_span: Callable[..., Span],
    context: Context | None,
    wall_offset_ns: int,
    log: SpanLog | None,
) -> None:
    span = record.span
    if span is None:
        parent = record.parent
        # Reading a name takes a call: once is enough.
        name = clean_name(record.name)
        span = start_span(
            name,
            context if parent is None else context_below(parent, context),
            _CLIENT if record.is_client else _INTERNAL,
            _attributes(record, name),
            None,
            record.start_ns + wall_offset_ns,
            False,
        )
        record.span = span
        if log is not None:
            log.started(record, span.get_span_context().span_id)
    elif end_ns:
        _complete(record, span)
    if not end_ns:
        return
    record.is_sent = True
    if record.failure is not None:
        _end_failed(span, record.failure, end_ns + wall_offset_ns)
    else:
        span.end(end_ns + wall_offset_ns)
    if log is not None:
        log.sent(record)


def _end_failed(span: Span, failure: Failure, end_time_ns: int) -> None:
    """End a span as an error; the first span to fail also carries the exception.

    Args:
        span: A started span.
        failure: Why.
        end_time_ns: Wall clock time of the end.
    """
    try:
        if failure.origin:
            description = f"failed in {clean_name(failure.origin)}"
            span.set_status(Status(StatusCode.ERROR, description))
        else:
            span.set_status(Status(StatusCode.ERROR, failure.message or _unseen(failure)))
        if failure.is_carrier and failure.type not in _NO_EXCEPTIONS:
            event = {
                semconv.EXCEPTION_TYPE: failure.type,
                semconv.EXCEPTION_MESSAGE: failure.message,
            }
            if failure.stacktrace:
                event[semconv.EXCEPTION_STACKTRACE] = failure.stacktrace
            span.add_event(semconv.EXCEPTION_EVENT, event, end_time_ns)
        span.set_attribute(semconv.ERROR_TYPE, failure.type)
    finally:
        span.end(end_time_ns)


def _unseen(failure: Failure) -> str:
    if failure.type == semconv.ERROR_TYPE_OTHER:
        return "did not finish; its exception was not seen"
    return failure.type


def context_below(parent: Record, fallback: Context | None) -> Context | None:
    """Return the context in which the spans of a record's children start.

    Args:
        parent: The record.
        fallback: The context to use, and to build on, where it has none.
    """
    context = parent.span_context
    if context is None:
        if parent.span is None:
            return fallback if parent.parent is None else context_below(parent.parent, fallback)
        context = parent.span_context = set_span_in_context(parent.span, fallback)
    return context


def _attributes(record: Record, name: str) -> dict[str, Any] | None:
    if not isinstance(record, Frame):
        return record.attributes
    attributes: dict[str, Any] = {
        semconv.TVM_PASS_NAME: name,
        semconv.TVM_PASS_SEQUENCE: record.sequence,
        semconv.TVM_PASS_DEPTH: record.depth,
    }
    if record.parent_sequence is not None:
        attributes[semconv.TVM_PASS_PARENT_SEQUENCE] = record.parent_sequence
    if record.phase is not None:
        attributes[semconv.TVM_PASS_PHASE] = clean_name(str(record.phase))
    if record.attributes is not None:
        attributes.update(record.attributes)
    if record.end_ns:
        _add_end(record, attributes)
    return attributes


def _add_end(frame: Frame, attributes: dict[str, Any]) -> None:
    """Add what only the end of a pass could tell."""
    if frame.failure is None:
        own_ns = frame.end_ns - frame.start_ns - frame.children_ns
        attributes[semconv.TVM_PASS_SELF_DURATION] = own_ns / 1e9 if own_ns > 0 else 0.0
        return
    attributes[semconv.TVM_PASS_INCOMPLETE] = True
    if frame.end_estimated:
        attributes[semconv.TVM_PASS_END_ESTIMATED] = True


def _complete(record: Record, span: Span) -> None:
    """Add what was not known when an open record's span was started."""
    if isinstance(record, Frame):
        attributes: dict[str, Any] = {}
        _add_end(record, attributes)
        span.set_attributes(attributes)
    elif record.attributes:
        span.set_attributes(record.attributes)
