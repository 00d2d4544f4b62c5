"""Environment variables that this package reads beside OpenTelemetry's own.

The names start with ``OTEL_PYTHON_TILELANG_`` because ``opentelemetry-instrument``
turns registered ``OTEL_*`` names into its own flags. This module is the entry
point for that (group ``opentelemetry_environment_variables``), so every
upper-case name in it is a variable.
"""

from __future__ import annotations

__all__ = [
    "OTEL_PYTHON_TILELANG_BACKGROUND",
    "OTEL_PYTHON_TILELANG_CAPTURE_NESTED",
    "OTEL_PYTHON_TILELANG_CONTEXT_SPAN",
    "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY",
    "OTEL_PYTHON_TILELANG_CRASH_RECORD",
    "OTEL_PYTHON_TILELANG_EMIT",
    "OTEL_PYTHON_TILELANG_EXCLUDE",
    "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT",
    "OTEL_PYTHON_TILELANG_FILE",
    "OTEL_PYTHON_TILELANG_FLUSH_ON_SIGTERM",
    "OTEL_PYTHON_TILELANG_INCLUDE",
    "OTEL_PYTHON_TILELANG_PART_AGE",
    "OTEL_PYTHON_TILELANG_PART_SPANS",
    "OTEL_PYTHON_TILELANG_SLOW",
    "OTEL_PYTHON_TILELANG_STALL_LIMIT",
    "OTEL_PYTHON_TILELANG_TRACE_SPANS",
]

OTEL_PYTHON_TILELANG_CAPTURE_NESTED = "OTEL_PYTHON_TILELANG_CAPTURE_NESTED"
"""``true`` or ``false``: whether passes inside passes get spans. Default true."""

OTEL_PYTHON_TILELANG_INCLUDE = "OTEL_PYTHON_TILELANG_INCLUDE"
"""Comma-separated shell patterns: only matching passes get spans. Default all."""

OTEL_PYTHON_TILELANG_EXCLUDE = "OTEL_PYTHON_TILELANG_EXCLUDE"
"""Comma-separated shell patterns: matching passes get no span. Default none."""

OTEL_PYTHON_TILELANG_CONTEXT_SPAN = "OTEL_PYTHON_TILELANG_CONTEXT_SPAN"
"""``true`` or ``false``: whether a pass context gets a span. Default true."""

OTEL_PYTHON_TILELANG_PART_AGE = "OTEL_PYTHON_TILELANG_PART_AGE"
"""Seconds after which a running compile hands its finished spans on. Default 10."""

OTEL_PYTHON_TILELANG_PART_SPANS = "OTEL_PYTHON_TILELANG_PART_SPANS"
"""How many spans a running compile collects before it hands them on. Default 2048."""

OTEL_PYTHON_TILELANG_FILE = "OTEL_PYTHON_TILELANG_FILE"
"""Path of the ``otlp_jsonl`` exporter's file. Default ``tilelang-otel.jsonl``."""

OTEL_PYTHON_TILELANG_EXIT_TIMEOUT = "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT"
"""Seconds that process exit may wait for the exporter. Default 5."""

OTEL_PYTHON_TILELANG_EMIT = "OTEL_PYTHON_TILELANG_EMIT"
"""``all``, ``slow`` (all of what failed or was slow, else compile spans alone) or
``compile`` (compile spans alone). Default all."""

OTEL_PYTHON_TILELANG_SLOW = "OTEL_PYTHON_TILELANG_SLOW"
"""Seconds from which on a compile is slow. Default 5."""

OTEL_PYTHON_TILELANG_TRACE_SPANS = "OTEL_PYTHON_TILELANG_TRACE_SPANS"
"""How many spans one trace gets before compiles in it are folded. Default 100000."""

OTEL_PYTHON_TILELANG_BACKGROUND = "OTEL_PYTHON_TILELANG_BACKGROUND"
"""``true`` or ``false``: whether a thread of its own makes the spans. Default: true
where ``configure()`` has made the tracer provider."""

OTEL_PYTHON_TILELANG_CRASH_RECORD = "OTEL_PYTHON_TILELANG_CRASH_RECORD"
"""``on`` or ``off``: whether a file says what was running when the process died.
Default off; ``tilelang-otel run`` turns it on."""

OTEL_PYTHON_TILELANG_CRASH_DIRECTORY = "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY"
"""Folder of crash records. Default: ``crash`` in this package's cache directory."""

OTEL_PYTHON_TILELANG_STALL_LIMIT = "OTEL_PYTHON_TILELANG_STALL_LIMIT"
"""Seconds after which a pass that still runs is reported. Default: never."""

OTEL_PYTHON_TILELANG_FLUSH_ON_SIGTERM = "OTEL_PYTHON_TILELANG_FLUSH_ON_SIGTERM"
"""``true`` or ``false``: whether SIGTERM exports what has finished before it takes
its course. Default false."""
