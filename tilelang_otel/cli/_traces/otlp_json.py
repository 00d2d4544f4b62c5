"""OTLP's JSON made into plain spans.

Owns the mapping from one JSON object to one :class:`Span`, and what is wrong
with an object that is none. It takes what OpenTelemetry's exporters and its
Collector write, and the usual deviations: names of enums, numbers as text or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

__all__ = [
    "STATUS_ERROR",
    "Event",
    "Span",
    "attributes_of",
    "is_object",
    "make_span",
    "objects_in",
    "text_in",
]

STATUS_ERROR: Final = 2
"""``Span.status`` of a failed span."""

_HEX = re.compile(r"[0-9a-fA-F]+")
_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUSES = ("UNSET", "OK", "ERROR")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a span."""

    name: str
    time_ns: int
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """One span as the file has it. Times are nanoseconds since the epoch."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a span that has no parent."""
    name: str
    kind: int
    start_ns: int
    end_ns: int
    """Never before ``start_ns``."""
    attributes: Mapping[str, Any]
    events: tuple[Event, ...]
    status: int
    status_message: str
    resource: Mapping[str, Any]
    scope: str

    @property
    def duration_ns(self) -> int:
        """Nanoseconds from start to end."""
        return self.end_ns - self.start_ns

    @property
    def is_error(self) -> bool:
        """Whether it failed."""
        return self.status == STATUS_ERROR


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tell whether ``value`` is a JSON object."""
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def objects_in(parent: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the list of objects under ``key``; raise ValueError if it is none."""
    value: Any = parent.get(key)
    if value is None:
        return []
    if not _is_list(value):
        raise ValueError(f"{key} is not a list")
    if not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{key} holds something that is no object")
    return value


def make_span(fields: Mapping[str, Any], resource: Mapping[str, Any], scope: str) -> Span:
    """Make a span of one JSON object.

    Args:
        fields: The object.
        resource: Attributes of the resource that it came under.
        scope: Name of the instrumentation scope that it came under.

    Raises:
        ValueError: It is no span; the text says why.
    """
    start_ns = _time(fields, "startTimeUnixNano")
    status: Any = fields.get("status")
    events: list[Event] = []
    if "events" in fields:
        for event in objects_in(fields, "events"):
            time_ns = _time(event, "timeUnixNano")
            events.append(Event(text_in(event, "name"), time_ns, attributes_of(event)))
    return Span(
        trace_id=_id(fields, "traceId", required=True),
        span_id=_id(fields, "spanId", required=True),
        parent_id=_id(fields, "parentSpanId", required=False),
        name=text_in(fields, "name") or "(unnamed)",
        kind=_enum(fields, "kind", "SPAN_KIND_", _KINDS),
        start_ns=start_ns,
        end_ns=max(start_ns, _time(fields, "endTimeUnixNano")),
        attributes=attributes_of(fields),
        events=tuple(events),
        status=_enum(status, "code", "STATUS_CODE_", _STATUSES) if is_object(status) else 0,
        status_message=text_in(status, "message") if is_object(status) else "",
        resource=resource,
        scope=scope,
    )


def _id(fields: Mapping[str, Any], key: str, *, required: bool) -> str:
    value: Any = fields.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} is not text")
    # Some writers fill in zeros where there is no parent.
    if not value.strip("0"):
        if required:
            raise ValueError(f"it has no {key}")
        return ""
    # Identifiers in base64, from writers that took protobuf's JSON for OTLP's,
    # are as good for our purpose as long as their case is left alone.
    return value.lower() if _HEX.fullmatch(value) else value


def text_in(fields: Mapping[str, Any], key: str) -> str:
    """Return the text under ``key``, empty if there is none; raise ValueError if it is no text."""
    value: Any = fields.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} is not text")
    return value


def _integer(fields: Mapping[str, Any], key: str) -> int:
    value: Any = fields.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{key} is not a number")
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{key} is not a whole number") from None


def _time(fields: Mapping[str, Any], key: str) -> int:
    value = _integer(fields, key)
    if not 0 <= value < 2**64:
        raise ValueError(f"{key} is out of range")
    return value


def _enum(fields: Mapping[str, Any], key: str, prefix: str, names: tuple[str, ...]) -> int:
    value: Any = fields.get(key, 0)
    if isinstance(value, str) and value.startswith(prefix):
        name = value.removeprefix(prefix)
        return names.index(name) if name in names else 0
    return _integer(fields, key)


def attributes_of(owner: Any) -> dict[str, Any]:
    """Return the attributes of a span, an event or a resource as plain values."""
    if not is_object(owner) or "attributes" not in owner:
        return {}
    return _key_values(owner, "attributes")


def _key_values(owner: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {text_in(item, "key"): _value(item.get("value")) for item in objects_in(owner, key)}


def _value(value: Any) -> Any:
    """Turn OTLP's ``AnyValue`` into a plain one."""
    if not is_object(value):
        return None
    for kind, content in value.items():
        if kind == "intValue":
            return _integer(value, kind)
        if kind == "arrayValue":
            return [_value(item) for item in objects_in(content, "values")]
        if kind == "kvlistValue":
            return _key_values(content, "values")
        return content
    return None
