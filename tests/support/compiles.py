"""Traces of compiles that never were: with the names and durations that a test asks for.

Owns what they look like; real ones are recorded by real compiles. Sent from
the test's process with the SDK, so that hundreds of them take no time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

from tilelang_otel import semconv

__all__ = ["Made", "compile_span", "failed_compile", "request", "send", "whole_compile"]


@dataclass(frozen=True)
class Made:
    """A span to be sent, and those below it, which follow one another."""

    name: str
    duration_s: float = 0.01
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    children: tuple[Made, ...] = ()
    kind: SpanKind = SpanKind.INTERNAL
    failed: bool = False
    scope: str = semconv.SCOPE_NAME


def compile_span(kernel: str, duration_s: float = 0.05, cache_result: str = "") -> Made:
    """Return a compile without passes.

    Args:
        kernel: What is compiled.
        duration_s: How long that takes.
        cache_result: What the kernel cache said, if it was asked.
    """
    cache: dict[str, Any] = {semconv.TILELANG_CACHE_RESULT: cache_result} if cache_result else {}
    return Made(
        f"{semconv.SPAN_COMPILE} {kernel}",
        duration_s,
        {semconv.TILELANG_KERNEL_NAME: kernel, semconv.TVM_TARGET_KIND: "llvm", **cache},
    )


def failed_compile(kernel: str) -> Made:
    """Return a compile with a pass that failed.

    Args:
        kernel: What is compiled.
    """
    error = {semconv.ERROR_TYPE: "ValueError"}
    culprit = Made("Lower", 0.01, {semconv.TVM_PASS_NAME: "Lower", **error}, failed=True)
    whole = compile_span(kernel)
    return Made(
        whole.name, whole.duration_s, {**whole.attributes, **error}, (culprit,), failed=True
    )


def request(kernel: str, cache_result: str = "") -> Made:
    """Return a request that a server answered, with a compile inside.

    Args:
        kernel: What is compiled.
        cache_result: What the kernel cache said, if it was asked.
    """
    inner = compile_span(kernel, cache_result=cache_result)
    return Made("POST /generate", 0.2, {}, (inner,), SpanKind.SERVER, scope="a web framework")


def whole_compile(kernel: str, result: str = "miss") -> Made:
    """Return a TileLang compile with a span of each kind that takes time.

    Args:
        kernel: What is compiled.
        result: What the kernel cache said.
    """

    def a_pass(name: str, phase: str, self_s: float) -> Made:
        return Made(
            name,
            self_s,
            {
                semconv.TVM_PASS_NAME: name,
                semconv.TVM_PASS_PHASE: phase,
                semconv.TVM_PASS_SELF_DURATION: self_s,
                semconv.TILELANG_KERNEL_NAME: kernel,
                semconv.TVM_TARGET_KIND: "cuda",
            },
        )

    def compiler(name: str, duration_s: float) -> Made:
        attributes: dict[str, Any] = {
            semconv.PROCESS_EXECUTABLE_NAME: name,
            semconv.PROCESS_EXIT_CODE: 0,
        }
        return Made(name, duration_s, attributes, kind=SpanKind.CLIENT)

    return Made(
        f"{semconv.SPAN_COMPILE} {kernel}",
        1.0,
        {
            semconv.TILELANG_KERNEL_NAME: kernel,
            semconv.TVM_TARGET_KIND: "cuda",
            semconv.TILELANG_EXECUTION_BACKEND: "tvm_ffi",
            semconv.TILELANG_CACHE_RESULT: result,
        },
        (
            Made(
                semconv.SPAN_LOWER,
                0.7,
                children=(
                    a_pass("tirx.BindTarget", "tirx", 0.01),
                    a_pass("tl.LayoutInference", "pipeline_cuda", 0.05),
                    Made(
                        f"{semconv.SPAN_CODEGEN} tilelang_cuda",
                        0.5,
                        {semconv.TILELANG_KERNEL_NAME: kernel},
                        (compiler("nvcc", 0.4),),
                    ),
                ),
            ),
            Made(semconv.SPAN_ADAPTER, 0.2, children=(compiler("g++", 0.15),)),
            Made(semconv.SPAN_LOAD, 0.01),
        ),
    )


def send(endpoint: str, service: str, made: Iterable[Made]) -> int:
    """Send one trace for each, over gRPC, and return how many spans that were.

    Args:
        endpoint: Who takes OTLP there.
        service: The service's name.
        made: The traces' roots.
    """
    provider = TracerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(
            OTLPSpanExporter(endpoint, timeout=20), max_queue_size=100_000, schedule_delay_millis=50
        )
    )
    # As if it had just ended, so that searches of the last hour find it.
    now_ns = time.time_ns()
    try:
        count = sum(_make(provider, root, now_ns - _ns(root.duration_s), None) for root in made)
        assert provider.force_flush(30_000), "the spans were not taken within 30 s"
    finally:
        provider.shutdown()
    return count


def _make(provider: TracerProvider, made: Made, start_ns: int, parent: trace.Span | None) -> int:
    context = trace.set_span_in_context(parent) if parent is not None else None
    span = provider.get_tracer(made.scope).start_span(
        made.name, context, made.kind, made.attributes, start_time=start_ns
    )
    count = 1
    child_ns = start_ns
    for child in made.children:
        count += _make(provider, child, child_ns, span)
        child_ns += _ns(child.duration_s)
    if made.failed:
        span.set_status(StatusCode.ERROR, "made to fail")
    span.end(start_ns + _ns(made.duration_s))
    return count


def _ns(duration_s: float) -> int:
    return round(duration_s * 1e9)
