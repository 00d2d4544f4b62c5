"""Environment variables that this package reads beside OpenTelemetry's own.

The names start with ``OTEL_PYTHON_TILELANG_`` because ``opentelemetry-instrument``
turns registered ``OTEL_*`` names into its own flags. This module is the entry
point for that (group ``opentelemetry_environment_variables``), so every
upper-case name in it is a variable.
"""

from __future__ import annotations

__all__ = [
    "OTEL_PYTHON_TILELANG_CAPTURE_NESTED",
    "OTEL_PYTHON_TILELANG_CONTEXT_SPAN",
    "OTEL_PYTHON_TILELANG_EXCLUDE",
    "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT",
    "OTEL_PYTHON_TILELANG_FILE",
    "OTEL_PYTHON_TILELANG_INCLUDE",
    "OTEL_PYTHON_TILELANG_PART_AGE",
    "OTEL_PYTHON_TILELANG_PART_SPANS",
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
