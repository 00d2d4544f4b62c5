"""Spans that are ended for somebody who does not know of it.

Owns that what is added later goes nowhere. Who ends whose spans is up to ``_recording``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry.trace import NonRecordingSpan, Span, Status, StatusCode

if TYPE_CHECKING:
    from opentelemetry.util.types import Attributes, AttributeValue

__all__ = ["UntilEnd"]


class UntilEnd(NonRecordingSpan):
    """A span that takes what it is told until it has ended; the SDK's complains from then on.

    Args:
        span: The span that it stands for.
    """

    def __init__(self, span: Span) -> None:
        super().__init__(span.get_span_context())
        self._span: Span | None = span

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """Add an attribute."""
        if (span := self._span) is not None:
            span.set_attribute(key, value)

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Add attributes."""
        if (span := self._span) is not None:
            span.set_attributes(attributes)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status."""
        if (span := self._span) is not None:
            span.set_status(status, description)

    def add_event(
        self, name: str, attributes: Attributes = None, timestamp: int | None = None
    ) -> None:
        """Add an event."""
        if (span := self._span) is not None:
            span.add_event(name, attributes, timestamp)

    def update_name(self, name: str) -> None:
        """Change the name."""
        if (span := self._span) is not None:
            span.update_name(name)

    def end(self, end_time: int | None = None) -> None:
        """End the span, once."""
        span, self._span = self._span, None
        if span is not None:
            span.end(end_time)
