"""Plain data out of OTLP protobuf messages, for tests to compare with.

Owns the decoding only; where messages come from is up to ``receiver``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

__all__ = ["ReceivedEvent", "ReceivedSpan", "spans_of", "value_of"]


@dataclass(frozen=True)
class ReceivedEvent:
    """One event of a span."""

    name: str
    time_ns: int
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ReceivedSpan:
    """One span as it came over the wire; ids are lower-case hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    """Empty for a root."""

    kind: str
    """``INTERNAL``, ``CLIENT``, …"""

    start_ns: int
    end_ns: int
    status: str
    """``UNSET``, ``OK`` or ``ERROR``."""

    status_message: str
    attributes: dict[str, Any]
    events: tuple[ReceivedEvent, ...]
    links: tuple[tuple[str, str], ...]
    """(trace id, span id) of each."""

    resource: dict[str, Any]
    scope_name: str
    scope_version: str
    schema_url: str


def value_of(value: AnyValue) -> Any:
    """Return what an OTLP value holds, as Python has it."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return None if kind is None else getattr(value, kind)


def spans_of(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    """Yield every span of a request, in its order."""
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _span(resource_spans, scope_spans, span)


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in pairs}


def _span(of_resource: ResourceSpans, of_scope: ScopeSpans, span: Span) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        status=("UNSET", "OK", "ERROR")[span.status.code],
        status_message=span.status.message,
        attributes=_attributes(span.attributes),
        events=tuple(
            ReceivedEvent(event.name, event.time_unix_nano, _attributes(event.attributes))
            for event in span.events
        ),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        resource=_attributes(of_resource.resource.attributes),
        scope_name=of_scope.scope.name,
        scope_version=of_scope.scope.version,
        schema_url=of_scope.schema_url,
    )
