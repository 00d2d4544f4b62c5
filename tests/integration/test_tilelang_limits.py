"""Tracing of TileLang at its limits: compilers that hang, texts that are huge, many compiles."""

from __future__ import annotations

import gc
import importlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider, sampling

import tilelang_otel
from tests.support.memory import resident_bytes
from tests.support.require import require_tilelang
from tests.support.spans import SpanMemory

require_tilelang()

from tests.support.tilelang_kernels import (  # noqa: E402
    compile_cpu,
    compile_cuda,
    folders,
    frag,
    is_pass,
    lower,
    outcome,
    scale,
    shape,
    tilelang,
    traced,
)
from tilelang_otel._adapters.tilelang_tool import create_tool  # noqa: E402

_NVCC: Any = importlib.import_module("tilelang.contrib.nvcc")
_SESSION: Any = importlib.import_module("tilelang.instrumentation.session")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this module empty caches of its own."""
    with folders(tmp_path_factory.mktemp("caches")):
        yield


@pytest.fixture(autouse=True)
def uninstrumented_afterwards() -> Iterator[None]:
    """Take tracing off, whatever the test did."""
    yield
    tilelang_otel.uninstrument()


def test_passes_are_handed_on_while_the_device_compiler_hangs(
    memory: SpanMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compile that never ends shows how far it came."""
    started, may_end = tmp_path / "started", tmp_path / "may_end"
    compiler = tmp_path / "nvcc"
    compiler.write_text(
        f"#!/bin/sh\n: > {started}\nwhile [ ! -e {may_end} ]; do sleep 0.02; done\nexit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setattr(_NVCC, "get_nvcc_compiler", lambda: str(compiler))
    tilelang_otel.instrument(memory.provider, part_spans=20)
    thread = threading.Thread(target=outcome, args=[lambda: compile_cuda(frag(128))])
    thread.start()
    try:
        deadline_s = time.monotonic() + 30
        while not started.exists():
            assert time.monotonic() < deadline_s, "nvcc has not been started after 30 s"
            time.sleep(0.01)
        handed_on = [span for span in memory.spans if is_pass(span)]
    finally:
        may_end.touch()
        thread.join(30)
    assert not thread.is_alive()
    assert len(handed_on) >= 60
    [root] = [span for span in memory.spans if span.parent is None]
    assert {s.context.trace_id for s in handed_on if s.context} == {
        root.context.trace_id if root.context else None
    }
    assert shape(memory.spans)[0] == "compile frag_128!"


def test_huge_error_of_a_program_is_cut_on_the_span_and_whole_for_the_program(
    memory: SpanMemory,
) -> None:
    """One span that is too large takes the whole batch with it."""

    @tilelang.jit(target="c")
    def jitted(n: int) -> Any:
        if n == 1:
            raise ValueError("x" * (5 << 20))
        return scale(n)

    # The first call of all runs the program once more, to see what kind it is.
    jitted(1024)
    with traced(memory), pytest.raises(ValueError, match="x") as caught:
        jitted(1)
    assert len(str(caught.value)) == 5 << 20
    assert shape(memory.spans) == ["compile jitted!", "  elaborate!*"]
    assert max(len(span.to_json()) for span in memory.spans) < 10_000


@pytest.mark.parametrize("name", ["k" * 5000, "_", "x_gc_1_y"])
def test_odd_kernel_name_makes_a_sane_span_name(name: str, memory: SpanMemory) -> None:
    """The kernel keeps its name, whatever the span's is."""
    with traced(memory):
        artifact = lower(frag(128, name))
    assert name in artifact.kernel_source
    [root] = [span for span in memory.spans if span.parent is None]
    assert root.name.startswith(f"compile {name[:50]}")
    assert len(root.name) <= 1024


_WRONG = {
    "OTEL_PYTHON_TILELANG_CAPTURE_NESTED": "perhaps",
    "OTEL_PYTHON_TILELANG_CONTEXT_SPAN": "",
    "OTEL_PYTHON_TILELANG_PART_AGE": "-1",
    "OTEL_PYTHON_TILELANG_PART_SPANS": "many",
}


@pytest.mark.parametrize("way", ["zero-code", "tool"])
def test_wrong_settings_fail_no_compile(
    way: str,
    memory: SpanMemory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """TileLang calls tools unguarded: an exception of theirs would be the compile's."""
    for name, value in _WRONG.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", memory.provider)
    if way == "zero-code":
        tilelang_otel.instrument()
    else:
        _SESSION.register_pass_instrumentation_tool("found", create_tool)
    try:
        for _ in range(3):
            assert "__global__" in lower(frag(128)).kernel_source
    finally:
        _SESSION.unregister_pass_instrumentation_tool("found")
    assert sum(is_pass(span) for span in memory.spans) == 3 * 78
    warnings = [r.getMessage() for r in caplog.records if r.name.startswith("tilelang_otel")]
    told = [name for name in _WRONG for warning in warnings if name in warning]
    # An empty variable counts as unset.
    assert sorted(told) == sorted(name for name, value in _WRONG.items() if value)


@pytest.mark.parametrize("sampler", [sampling.ALWAYS_ON, sampling.ALWAYS_OFF])
def test_memory_stays_flat_over_many_compiles(sampler: sampling.Sampler) -> None:
    """Lowering again and again, and asking the cache: nothing piles up."""

    def compile_(times: int) -> None:
        for _ in range(times):
            lower(program)
            compile_cpu(1024)

    program = frag(128)
    tilelang_otel.instrument(TracerProvider(sampler=sampler, shutdown_on_exit=False))
    compile_(20)
    gc.collect()
    before_bytes, objects = resident_bytes(), len(gc.get_objects())
    compile_(60)
    gc.collect()
    assert len(gc.get_objects()) - objects < 1000
    assert resident_bytes() - before_bytes < 16 << 20
