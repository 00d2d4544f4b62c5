"""Spans of a compile whose process has died, as that process would have made them.

Owns the ids and the resource that they have, and that no exporter's queue is overrun.
How a record becomes a span is up to ``_spans``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tilelang_otel import _crash, semconv
from tilelang_otel._providers import facts_of
from tilelang_otel._spans import emit
from tilelang_otel.version import __version__

__all__ = ["FLUSH_TIMEOUT_MS", "emit_compile"]

FLUSH_TIMEOUT_MS: Final = 30_000
"""How long an export may take while nobody waits for the process's end."""


def emit_compile(
    compile_: _crash.DeadCompile,
    resource: Mapping[str, Any],
    provider: Any,
    processor: SpanProcessor,
) -> int:
    """Make the spans of one compile.

    Args:
        compile_: What is left of it.
        resource: The attributes of its process's resource.
        provider: The tracer provider that is to export them.
        processor: Where that hands finished spans to.

    Returns:
        How many spans there are.
    """
    root = compile_.root
    ids = _Ids(
        compile_.trace_id,
        iter([compile_.span_id, *(compile_.span_ids.get(id(r), 0) for r in compile_.records)]),
    )
    own = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource(resource),
        id_generator=ids,
        shutdown_on_exit=False,
    )
    own.add_span_processor(_HandOn(processor))
    tracer = own.get_tracer(semconv.SCOPE_NAME, __version__, schema_url=semconv.SCHEMA_URL)
    context = None
    if compile_.parent_span_id:
        parent = SpanContext(
            compile_.trace_id,
            compile_.parent_span_id,
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        context = trace.set_span_in_context(NonRecordingSpan(parent))
    offset_ns = compile_.wall_offset_ns
    # Started first, so that the others are below it, and ended last, as it always is.
    end_ns, root.end_ns = root.end_ns, 0
    emit([root], tracer, context, offset_ns)
    root.end_ns = end_ns
    room = max(facts_of(provider).queue_spans // 2, 1)
    for start in range(0, len(compile_.records), room):
        emit(compile_.records[start : start + room], tracer, context, offset_ns)
        provider.force_flush(FLUSH_TIMEOUT_MS)
    emit([root], tracer, context, offset_ns)
    return 1 + len(compile_.records)


class _Ids(IdGenerator):
    """Gives the ids that spans had, and new ones to those that had none."""

    def __init__(self, trace_id: int, span_ids: Iterator[int]) -> None:
        self._trace_id = trace_id
        self._span_ids = span_ids
        self._random = RandomIdGenerator()

    def generate_trace_id(self) -> int:
        """Return the compile's own."""
        return self._trace_id

    def generate_span_id(self) -> int:
        """Return that of the next record."""
        return next(self._span_ids, 0) or self._random.generate_span_id()


class _HandOn(SpanProcessor):
    """Gives spans to another provider's processors, which do not ask who has started them."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._processor = processor

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Hand a started span on."""
        self._processor.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand a finished span on."""
        self._processor.on_end(span)
