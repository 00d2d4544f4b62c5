"""The test span of ``doctor``: sent by the very exporters that programs would use.

Owns making it, sending it within a time limit, and saying what became of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from tilelang_otel import semconv
from tilelang_otel._courier import Courier
from tilelang_otel._otel.environment import OtelEnvironment
from tilelang_otel._otel.targets import target_of
from tilelang_otel._sdk.export_errors import Explanation, explain, listening
from tilelang_otel._sdk.setup import make_exporter, make_resource
from tilelang_otel.version import __version__

__all__ = ["SPAN_NAME", "Sent", "send_test_span", "send_through_config_file"]

SPAN_NAME: Final = "tilelang-otel doctor"

_POLL_S: Final = 0.05
_LOCAL: Final = ("console", "otlp_jsonl")


@dataclass(frozen=True)
class Sent:
    """What became of the test span at one exporter."""

    exporter: str
    target: str
    is_accepted: bool
    duration_s: float
    trace_id: str
    what: str = ""
    """Why it was not accepted, or what was done instead of sending."""

    advice: str = ""


def send_test_span(
    environment: OtelEnvironment,
    exporters: Sequence[str],
    timeout_s: float,
    tick: Callable[[str, float], None],
) -> list[Sent]:
    """Send one span through each exporter.

    Args:
        environment: OpenTelemetry's variables.
        exporters: Names of entry points.
        timeout_s: How many seconds each of them gets.
        tick: Called again and again with the target and the seconds so far.

    Returns:
        What became of it, in the order of ``exporters``.
    """
    with environment.applied(), listening([], to="opentelemetry.sdk"):
        span = _make_span()
    return [_send(environment, name, span, timeout_s, tick) for name in exporters]


def send_through_config_file(
    environment: OtelEnvironment, timeout_s: float, tick: Callable[[str, float], None]
) -> list[Sent]:
    """Send one span as ``OTEL_CONFIG_FILE`` says, and tell from what exporters log."""
    from tilelang_otel.provider import configure

    path = environment.get("OTEL_CONFIG_FILE") or ""
    trace_ids: list[str] = []

    def work(said: list[str]) -> bool:
        provider = configure(exit_timeout_s=timeout_s)
        with provider.get_tracer(semconv.SCOPE_NAME).start_as_current_span(SPAN_NAME) as span:
            trace_ids.append(f"{span.get_span_context().trace_id:032x}")
            is_recording = span.is_recording()
        flush = getattr(provider, "force_flush", None)
        with listening(said):
            return is_recording and flush is not None and flush() is not False

    return [_run(environment, "OTEL_CONFIG_FILE", path, work, timeout_s, tick, trace_ids)]


def _make_span() -> ReadableSpan:
    memory = InMemorySpanExporter()
    provider = TracerProvider(sampler=ALWAYS_ON, resource=make_resource(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer(semconv.SCOPE_NAME, __version__, semconv.SCHEMA_URL)
    tracer.start_span(SPAN_NAME, kind=trace.SpanKind.INTERNAL).end()
    return memory.get_finished_spans()[0]


def _send(
    environment: OtelEnvironment,
    exporter: str,
    span: ReadableSpan,
    timeout_s: float,
    tick: Callable[[str, float], None],
) -> Sent:
    target = target_of(environment, exporter)
    trace_id = f"{span.context.trace_id:032x}" if span.context else ""
    if exporter in _LOCAL:
        return _without_sending(exporter, target)

    def work(said: list[str]) -> bool:
        with environment.applied():
            made = make_exporter(exporter)
        with listening(said):
            try:
                return made.export([span]) is SpanExportResult.SUCCESS
            finally:
                made.shutdown()

    return _run(environment, exporter, target, work, timeout_s, tick, [trace_id])


def _without_sending(exporter: str, target: str) -> Sent:
    """Judge an exporter that writes on this machine, and leave nothing behind."""
    if exporter == "console":
        return Sent(exporter, target, True, 0.0, "", "prints spans on standard output")
    is_new = not os.path.exists(target)
    try:
        with open(target, "ab"):
            pass
        if is_new:
            os.unlink(target)
    except OSError as error:
        what = error.strerror or str(error)
        return Sent(exporter, target, False, 0.0, "", what, "set OTEL_PYTHON_TILELANG_FILE")
    return Sent(exporter, target, True, 0.0, "", "can be written")


def _run(
    environment: OtelEnvironment,
    exporter: str,
    target: str,
    work: Callable[[list[str]], bool],
    timeout_s: float,
    tick: Callable[[str, float], None],
    trace_ids: Sequence[str],
) -> Sent:
    said: list[str] = []
    courier = Courier("tilelang-otel-doctor", restarts=False)
    errand = courier.send(lambda: work(said))
    courier.close()
    start_s = time.monotonic()
    explanation: Explanation | None = None
    while not errand.wait(_POLL_S):
        waited_s = time.monotonic() - start_s
        tick(target, waited_s)
        heard = [environment.mask(message) for message in list(said)]
        # Exporters try again, for seconds, what will not change within seconds.
        if heard and explain(heard).is_final:
            explanation = explain(heard)
            break
        if waited_s >= timeout_s:
            explanation = explain(heard or ["timed out"])
            break
    duration_s = time.monotonic() - start_s
    trace_id = trace_ids[0] if trace_ids else ""
    if explanation is None and errand.error is None and errand.result and not said:
        return Sent(exporter, target, True, duration_s, trace_id)
    if errand.error is not None:
        said.append(f"{type(errand.error).__name__}: {errand.error}")
    explanation = explanation or explain([environment.mask(message) for message in said])
    return Sent(exporter, target, False, duration_s, trace_id, explanation.what, explanation.advice)
