"""Failed spans in words: what went wrong, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilelang_otel import semconv
from tilelang_otel._death import Death
from tilelang_otel.cli._traces.otlp_json import Span

__all__ = ["describe_error", "tell_error", "where_failed"]

_PASSED_ON: Final = "failed in "


def describe_error(span: Span) -> tuple[str, str]:
    """Return the type and the message of a failure; either may be empty."""
    attributes: Mapping[str, Any] = {}
    for event in span.events:
        if event.name == semconv.EXCEPTION_EVENT:
            attributes = event.attributes
    kind = span.attributes.get(semconv.ERROR_TYPE) or attributes.get(semconv.EXCEPTION_TYPE)
    message = attributes.get(semconv.EXCEPTION_MESSAGE) or span.status_message
    kind, message = str(kind or ""), str(message or "")
    # The SDK puts the class in front of the message; once is enough.
    short_kind = kind.rpartition(".")[2]
    for repeated in (kind, short_kind):
        if repeated and message.startswith(f"{repeated}: "):
            message = message[len(repeated) + 2 :]
    if message in (kind, short_kind):
        message = ""
    return ("" if kind == semconv.ERROR_TYPE_OTHER else kind), message


def tell_error(span: Span) -> str:
    """Return what went wrong; empty if that is not known."""
    kind, message = describe_error(span)
    if kind != semconv.ERROR_TYPE_PROCESS_DIED:
        return ": ".join(filter(None, (kind, message)))
    if message and not message.startswith(_PASSED_ON):
        return message
    return Death(
        span.attributes.get(semconv.TILELANG_PROCESS_SIGNAL),
        span.attributes.get(semconv.PROCESS_EXIT_CODE),
    ).message


def where_failed(span: Span) -> str:
    """Return in what it failed: a span that has none of its own is in the status."""
    if span.status_message.startswith(_PASSED_ON):
        return span.status_message
    return f"{_PASSED_ON}{span.name}"
