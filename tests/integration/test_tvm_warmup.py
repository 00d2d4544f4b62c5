"""Unwanted compiles of the real TVM: a child of the request, marked, with its shapes."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from opentelemetry import trace

from tests.support.require import require_tvm
from tests.support.spans import SpanMemory, outline
from tilelang_otel import instrument, mark_warmup_done, semconv, uninstrument

require_tvm()


def test_compile_in_a_request_after_the_warmup_is_its_marked_child(
    memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """Who looks at a slow request sees what was compiled in it, and that nobody wanted it."""
    tvm: Any = importlib.import_module("tvm")
    te = tvm.te
    a = te.placeholder((64, 32), name="A")
    func = te.create_prim_func([a, te.compute((64, 32), lambda i, j: a[i, j] + 1.0, name="B")])
    instrument(memory.provider, emit="compile")
    try:
        tvm.compile(func, target="llvm")
        mark_warmup_done()
        tracer = trace.get_tracer("service", tracer_provider=memory.provider)
        with tracer.start_as_current_span("request"):
            tvm.compile(func, target="llvm")
    finally:
        uninstrument()
    assert outline(memory.spans, semconv.TILELANG_COMPILE_TRIGGER) == [
        "compile main",
        "request",
        "  compile main runtime",
    ]
    assert caplog.messages == [
        "compile main for A 64x32 float32, B 64x32 float32 on llvm came after the warm-up: "
        "no cache was asked"
    ]
