"""Trace files with known contents: OTLP JSON Lines written out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["EPOCH_NS", "error", "line", "span"]

EPOCH_NS = 1_700_000_000_000_000_000
"""When every trace starts: 2023-11-14 22:13:20 UTC."""


def span(
    number: int,
    name: str,
    start_ms: float,
    end_ms: float,
    *,
    parent: int = 0,
    trace: int = 1,
    attributes: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return one span as OTLP JSON.

    Args:
        number: Its id.
        name: Its name.
        start_ms: Milliseconds from :data:`EPOCH_NS`.
        end_ms: The same.
        parent: The id of its parent; 0 for none.
        trace: The id of its trace.
        attributes: Plain values.
        **fields: More fields, as in OTLP JSON.
    """
    made: dict[str, Any] = {
        "traceId": f"{trace:032x}",
        "spanId": f"{number:016x}",
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(EPOCH_NS + round(start_ms * 1e6)),
        "endTimeUnixNano": str(EPOCH_NS + round(end_ms * 1e6)),
        "attributes": _attributes(attributes or {}),
        "status": {},
        "flags": 256,
        **fields,
    }
    if parent:
        made["parentSpanId"] = f"{parent:016x}"
    return made


def error(kind: str, message: str, *, is_origin: bool = True) -> dict[str, Any]:
    """Return the fields of a failed span, for :func:`span`.

    Args:
        kind: The exception's type.
        message: Its message, or the status of an ancestor.
        is_origin: Whether the span carries the exception.
    """
    fields: dict[str, Any] = {"status": {"code": 2, "message": message}}
    if is_origin:
        values = {"exception.type": kind, "exception.message": message}
        fields["events"] = [{"name": "exception", "attributes": _attributes(values)}]
    return fields


def line(*spans: Mapping[str, Any], service: str = "demo") -> bytes:
    """Return ``spans`` as one line of a trace file."""
    resource = {"attributes": _attributes({"service.name": service})}
    scope_spans = [{"scope": {"name": "tilelang_otel"}, "spans": spans}]
    data = {"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}
    return json.dumps(data).encode() + b"\n"


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}  # pyright: ignore[reportUnknownVariableType]
    return {"stringValue": value}
