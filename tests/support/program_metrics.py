"""Metrics of compiles that never were, by the instruments that real ones count in.

Sent from the test's process, which lives long enough for rates; what real programs
count, they count themselves.
"""

from __future__ import annotations

from types import TracebackType

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from tests.support.records import finished_compile, finished_pass
from tilelang_otel._frames import Failure, Record
from tilelang_otel._metrics import Metrics

__all__ = ["ProgramMetrics"]


class ProgramMetrics:
    """A program that counts, as its instruments see it; a context manager.

    Args:
        endpoint: Where it sends, over gRPC.
        service: Its name.
        trace_id: The trace that its exemplars link.
    """

    def __init__(self, endpoint: str, service: str, trace_id: int) -> None:
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=endpoint, insecure=True), export_interval_millis=600_000
        )
        resource = Resource({"service.name": service, "service.instance.id": f"{service}-1"})
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        found = Metrics(self._provider).current()
        assert found is not None
        self._instruments = found
        self._trace_id = trace_id

    def count(self) -> None:
        """Count a compile of each kind, and send everything."""
        failure = Failure("ValueError", "no such layout")
        self._instruments.compile_began()
        self._instruments.finished(
            [
                finished_pass("tl.LayoutInference", 20, "tilelang"),
                finished_pass("tl.LowerTileOp", 30, "tilelang", failure),
                finished_compile(900, tilelang_kernel_name="matmul", tilelang_cache_result="miss"),
                finished_compile(5, tilelang_kernel_name="matmul", tilelang_cache_result="disk"),
                finished_compile(100, failure, tilelang_kernel_name="matmul"),
            ],
            self._context_of,
        )
        self._instruments.stalled(finished_pass("tl.LayoutInference"))
        self._instruments.compiled_at_runtime({"tilelang.kernel.name": "matmul"})
        self._instruments.telemetry(0.002)
        assert self._provider.force_flush()

    def _context_of(self, record: Record) -> Context:
        linked = SpanContext(self._trace_id, 1, is_remote=False, trace_flags=TraceFlags(1))
        return set_span_in_context(NonRecordingSpan(linked))

    def __enter__(self) -> ProgramMetrics:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._provider.shutdown()
