"""Traces as one JSON object, for scripts: what ``show --json`` prints.

Owns its structure, which is documented at :func:`to_json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilelang_otel.cli._drawing.failures import describe_error
from tilelang_otel.cli._drawing.rows import Hidden, find_hidden
from tilelang_otel.cli._traces.file import Problem
from tilelang_otel.cli._traces.slowest import slowest
from tilelang_otel.cli._traces.tree import Node, Trace

__all__ = ["to_json"]

_VERSION: Final = 1


def to_json(
    traces: Sequence[Trace],
    problems: Sequence[Problem],
    *,
    min_duration_ns: int = 0,
    top: int = 10,
) -> dict[str, Any]:
    """Return what ``--json`` prints.

    The structure is stable: names are added, but not changed or removed without
    raising ``version``. Spans are a flat list, parents before their children,
    so that any depth can be read. All numbers of nanoseconds are integers.

    - ``version``: 1
    - ``traces``: a list, in order of their start, of

      - ``trace_id``, ``name`` (of the first root), ``service`` (may be empty)
      - ``start_time_unix_nano``: text, as in OTLP, for readers without 64-bit integers
      - ``duration_ns``, ``span_count``, ``error_count``
      - ``hidden_count``, ``hidden_ns``: what ``--min-duration`` left out
      - ``spans``: a list of ``span_id``, ``parent_span_id`` (null for none),
        ``is_orphan`` (the parent is in no file), ``depth``, ``name``, ``kind``
        (OTLP's number), ``is_container``, ``offset_ns`` (from the trace's start),
        ``duration_ns``, ``self_ns`` (of a container: not traced, or folded),
        ``attributes`` and ``error``: null, or ``type`` and ``message``, both may be empty

    - ``slowest``: a list of ``name``, ``count`` (of spans, and of compiles that it was
      folded into), ``self_ns``, ``share`` (of all self times, 0 to 1), ``max_ns``,
      ``error_count``
    - ``problems``: a list of ``file``, ``line`` (from 1), ``message``
    """
    return {
        "version": _VERSION,
        "traces": [_trace_json(trace, min_duration_ns) for trace in traces],
        "slowest": [
            {
                "name": entry.name,
                "count": entry.count,
                "self_ns": entry.self_ns,
                "share": entry.share,
                "max_ns": entry.max_ns,
                "error_count": entry.errors,
            }
            for entry in slowest(traces)[:top]
        ],
        "problems": [
            {"file": problem.file, "line": problem.line, "message": problem.message}
            for problem in problems
        ],
    }


def _trace_json(trace: Trace, min_duration_ns: int) -> dict[str, Any]:
    hidden: Hidden = find_hidden(trace, min_duration_ns)
    start_ns = trace.start_ns
    return {
        "trace_id": trace.trace_id,
        "name": trace.name,
        "service": trace.service,
        "start_time_unix_nano": str(start_ns),
        "duration_ns": trace.duration_ns,
        "span_count": len(trace.nodes),
        "error_count": len(trace.errors),
        "hidden_count": len(hidden.nodes),
        "hidden_ns": hidden.duration_ns,
        "spans": [_span_json(node, start_ns) for node in trace.nodes if node not in hidden.nodes],
    }


def _span_json(node: Node, trace_start_ns: int) -> dict[str, Any]:
    span = node.span
    error = None
    if span.is_error:
        kind, message = describe_error(span)
        error = {"type": kind, "message": message}
    return {
        "span_id": span.span_id,
        "parent_span_id": span.parent_id or None,
        "is_orphan": node.is_orphan,
        "depth": node.depth,
        "name": span.name,
        "kind": span.kind,
        "is_container": node.is_container,
        "offset_ns": span.start_ns - trace_start_ns,
        "duration_ns": span.duration_ns,
        "self_ns": node.self_ns,
        "attributes": dict(span.attributes),
        "error": error,
    }
