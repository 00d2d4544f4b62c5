"""Reads trace files: OTLP JSON Lines, from this package or from an OpenTelemetry Collector.

Owns the way from files to spans, and what is said about a line that is damaged:
its place and why, while everything else is read. What a span looks like is up
to ``_traces.otlp_json``, how spans hang together to ``_traces.tree``. Standard library
only, so that a file can be read without an SDK.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilelang_otel.cli._traces.otlp_json import (
    Span,
    attributes_of,
    is_object,
    make_span,
    objects_in,
    text_in,
)
from tilelang_otel.cli._traces.salvage import salvage

__all__ = ["Problem", "SpanReader"]

_OTHER_SIGNALS = ("resourceMetrics", "resourceLogs", "resourceProfiles")


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
        if not is_object(data) or "resourceSpans" not in data:
            if is_object(data) and any(signal in data for signal in _OTHER_SIGNALS):
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
            for resource_spans in objects_in(data, "resourceSpans"):
                resource = attributes_of(resource_spans.get("resource"))
                for scope_spans in objects_in(resource_spans, "scopeSpans"):
                    scope = scope_spans.get("scope")
                    scope_name = text_in(scope, "name") if is_object(scope) else ""
                    for index, fields in enumerate(objects_in(scope_spans, "spans"), 1):
                        try:
                            self._add(make_span(fields, resource, scope_name))
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


def _label(fields: Mapping[str, Any]) -> str:
    name: Any = fields.get("name")
    return repr(name[:60]) if isinstance(name, str) else "without a name"
