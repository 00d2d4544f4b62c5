"""Reads trace files: OTLP JSON Lines, from this package or from an OpenTelemetry Collector.

Owns the way from bytes to spans, and what is said about a line that is damaged:
its place and why, while everything else is read. How spans hang together is up
to ``_trace_tree``. Standard library only, so that a file can be read without an SDK.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from tilelang_otel.cli._salvage import salvage

__all__ = ["STATUS_ERROR", "Event", "Problem", "Span", "SpanReader"]

STATUS_ERROR: Final = 2
"""``Span.status`` of a failed span."""

_HEX = re.compile(r"[0-9a-fA-F]+")
_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUSES = ("UNSET", "OK", "ERROR")
_OTHER_SIGNALS = ("resourceMetrics", "resourceLogs", "resourceProfiles")


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


@dataclass(frozen=True, slots=True)
class Problem:
    """A place in a file that could not be read."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass
class SpanReader:
    """Collects spans from any number of files.

    Attributes:
        spans: What was read, each span once, in the order of the files.
        problems: What could not be read.
        duplicates: How many spans were there again: exporters that retry, or
            a file that was given twice.
    """

    spans: list[Span] = field(default_factory=list[Span])
    problems: list[Problem] = field(default_factory=list[Problem])
    duplicates: int = 0
    _seen: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def read_file(self, path: str) -> None:
        """Read one file.

        Args:
            path: Where it is; ``-`` is standard input.

        Raises:
            OSError: It cannot be opened or read. What was read before stays.
        """
        if path == "-":
            self.read_lines(sys.stdin.buffer, "<stdin>")
            return
        with open(path, "rb") as file:
            self.read_lines(file, path)

    def read_lines(self, lines: Iterable[bytes], file: str) -> None:
        """Read lines of OTLP JSON. Raises only what iterating over ``lines`` raises.

        Args:
            lines: Each a JSON value, with its line end.
            file: What problems call the file.
        """
        for number, line in enumerate(lines, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                for message in self._read_line(line):
                    self.problems.append(Problem(file, number, message))

    def _read_line(self, line: bytes) -> list[str]:
        text = line.decode("utf-8", "replace")
        try:
            data: Any = json.loads(text)
        except json.JSONDecodeError as error:
            # A line that was cut off has no line end, or makes no sense where it ends.
            if not line.endswith(b"\n") or error.pos >= len(text.rstrip()):
                return self._read_damaged(text, f"cut off after {len(line.rstrip())} bytes")
            return self._read_damaged(text, f"not JSON: {error.msg} (column {error.colno})")
        except (RecursionError, ValueError) as error:
            return [f"not JSON: {error}"]
        if not _is_object(data) or "resourceSpans" not in data:
            if _is_object(data) and any(signal in data for signal in _OTHER_SIGNALS):
                return []
            return ["not a TracesData object: it has no resourceSpans"]
        problems = ["not UTF-8 text"] if "\ufffd" in text and not _is_utf8(line) else []
        self._read_traces(data, problems)
        return problems

    def _read_damaged(self, text: str, why: str) -> list[str]:
        data, count = salvage(text)
        if count:
            why += f"; {count} span{'' if count == 1 else 's'} of it could be read"
        problems = [why]
        self._read_traces(data, problems)
        return problems

    def _read_traces(self, data: Mapping[str, Any], problems: list[str]) -> None:
        try:
            for resource_spans in _objects(data, "resourceSpans"):
                resource = _attributes(resource_spans.get("resource"))
                for scope_spans in _objects(resource_spans, "scopeSpans"):
                    scope = scope_spans.get("scope")
                    scope_name = _text(scope, "name") if _is_object(scope) else ""
                    for index, fields in enumerate(_objects(scope_spans, "spans"), 1):
                        try:
                            self._add(_span(fields, resource, scope_name))
                        except (ValueError, RecursionError) as error:
                            problems.append(f"span {index} ({_label(fields)}) is left out: {error}")
        except (ValueError, RecursionError) as error:
            problems.append(f"not a TracesData object: {error}")

    def _add(self, span: Span) -> None:
        key = (span.trace_id, span.span_id)
        if key in self._seen:
            self.duplicates += 1
        else:
            self._seen.add(key)
            self.spans.append(span)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _objects(parent: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value: Any = parent.get(key)
    if value is None:
        return []
    if not _is_list(value):
        raise ValueError(f"{key} is not a list")
    if not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{key} holds something that is no object")
    return value


def _span(fields: Mapping[str, Any], resource: Mapping[str, Any], scope: str) -> Span:
    start_ns = _integer(fields, "startTimeUnixNano")
    status: Any = fields.get("status")
    events: list[Event] = []
    if "events" in fields:
        for event in _objects(fields, "events"):
            time_ns = _integer(event, "timeUnixNano")
            events.append(Event(_text(event, "name"), time_ns, _attributes(event)))
    return Span(
        trace_id=_id(fields, "traceId", required=True),
        span_id=_id(fields, "spanId", required=True),
        parent_id=_id(fields, "parentSpanId", required=False),
        name=_text(fields, "name") or "(unnamed)",
        kind=_enum(fields, "kind", "SPAN_KIND_", _KINDS),
        start_ns=start_ns,
        end_ns=max(start_ns, _integer(fields, "endTimeUnixNano")),
        attributes=_attributes(fields),
        events=tuple(events),
        status=_enum(status, "code", "STATUS_CODE_", _STATUSES) if _is_object(status) else 0,
        status_message=_text(status, "message") if _is_object(status) else "",
        resource=resource,
        scope=scope,
    )


def _label(fields: Mapping[str, Any]) -> str:
    name: Any = fields.get("name")
    return repr(name[:60]) if isinstance(name, str) else "without a name"


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


def _text(fields: Mapping[str, Any], key: str) -> str:
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


def _enum(fields: Mapping[str, Any], key: str, prefix: str, names: tuple[str, ...]) -> int:
    value: Any = fields.get(key, 0)
    if isinstance(value, str) and value.startswith(prefix):
        name = value.removeprefix(prefix)
        return names.index(name) if name in names else 0
    return _integer(fields, key)


def _attributes(owner: Any) -> dict[str, Any]:
    if not _is_object(owner) or "attributes" not in owner:
        return {}
    return _key_values(owner, "attributes")


def _key_values(owner: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {_text(item, "key"): _value(item.get("value")) for item in _objects(owner, key)}


def _value(value: Any) -> Any:
    """Turn OTLP's ``AnyValue`` into a plain one."""
    if not _is_object(value):
        return None
    for kind, content in value.items():
        if kind == "intValue":
            return _integer(value, kind)
        if kind == "arrayValue":
            return [_value(item) for item in _objects(content, "values")]
        if kind == "kvlistValue":
            return _key_values(content, "values")
        return content
    return None
