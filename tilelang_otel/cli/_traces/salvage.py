"""What can still be read of a damaged line of OTLP JSON.

A line holds a whole batch, often a whole compile. When its end is missing, or
something else was written into it, the spans that are whole are worth having.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["salvage"]

# Inside a JSON string the quotes would be escaped, so this finds keys only.
_KEY = re.compile(r'"(resource|scope|spans)"\s*:\s*')
_SEPARATOR = re.compile(r"[\s,]*")
_decode = json.JSONDecoder().raw_decode


def salvage(text: str) -> tuple[dict[str, Any], int]:
    """Collect the spans of ``text`` that are whole.

    Args:
        text: A line that is not JSON as a whole.

    Returns:
        A ``TracesData`` object, and how many spans are in it.
    """
    batches: list[dict[str, Any]] = []
    resource: Any = None
    scope: Any = None
    count = 0
    key = _KEY.search(text)
    while key is not None:
        end = key.end()
        if key[1] == "spans":
            spans, end = _spans(text, end)
            count += len(spans)
            batches.append({"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]})
        else:
            value, end = _object(text, end)
            if key[1] == "resource":
                resource, scope = value, None
            else:
                scope = value
        key = _KEY.search(text, end)
    return {"resourceSpans": batches}, count


def _spans(text: str, start: int) -> tuple[list[dict[str, Any]], int]:
    spans: list[dict[str, Any]] = []
    if not text.startswith("[", start):
        return spans, start
    position = start + 1
    while True:
        separator = _SEPARATOR.match(text, position)
        position = separator.end() if separator is not None else position
        span, end = _object(text, position)
        if span is None:
            return spans, position
        spans.append(span)
        position = end


def _object(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    if text.startswith("{", start):
        try:
            return _decode(text, start)
        except (ValueError, RecursionError):
            pass
    return None, start
