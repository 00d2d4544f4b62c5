"""TileLang compiles that fail: one exception, in its place, and the program's own error."""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

import tilelang_otel
from tests.support.broken import BROKEN_CALLS, BrokenProvider
from tests.support.require import require_tilelang
from tests.support.spans import SpanMemory, assert_sound

require_tilelang()

from tests.support.tilelang_kernels import (  # noqa: E402
    compile_cpu,
    compile_cuda,
    folders,
    frag,
    gemm,
    lower,
    outcome,
    shape,
    traced,
)

_NVCC: Any = importlib.import_module("tilelang.contrib.nvcc")
_CC: Any = importlib.import_module("tilelang.contrib.cc")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this module empty caches of its own."""
    with folders(tmp_path_factory.mktemp("caches")):
        yield


def _failed(spans: tuple[ReadableSpan, ...]) -> dict[str, tuple[str | None, Any, int]]:
    """Return message, ``error.type`` and number of exception events of all failed spans."""
    return {
        span.name: (
            span.status.description,
            (span.attributes or {}).get("error.type"),
            len(span.events),
        )
        for span in spans
        if not span.status.is_ok and span.status.status_code.name == "ERROR"
    }


def _same_with_and_without(call: Callable[[], Any], memory: SpanMemory) -> str:
    """Assert that ``call`` fails alike with tracing and without, and return its message."""
    with traced(memory):
        kind, message = outcome(call)
    kind_without_us, message_without_us = outcome(call)
    assert kind is not None
    assert kind is kind_without_us
    assert _without_folders(message) == _without_folders(message_without_us)
    assert_sound(memory.spans)
    return message


def _without_folders(message: str) -> str:
    """Leave out what the compilers' temporary files are called: never twice the same."""
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/tmp\w+", "TEMPORARY", message)


_LAYOUT = "Check failed: (has_best) is false: no available layout found"


def test_pass_that_fails_carries_the_only_exception(memory: SpanMemory) -> None:
    """All spans above are errors that name it, and no pass before it is."""
    _same_with_and_without(lambda: lower(frag(229)), memory)
    error = "tvm.error.InternalError"
    assert _failed(memory.spans) == {
        "tl.LayoutInference": (_LAYOUT, error, 1),
        "lower": ("failed in tl.LayoutInference", error, 0),
        "compile frag_229": ("failed in tl.LayoutInference", error, 0),
    }
    assert shape(memory.spans) == [
        "compile frag_229!",
        "  lower!",
        "    20 passes",
        "    tl.LayoutInference!*",
    ]


def test_pass_that_fails_in_a_cached_compile_gives_the_same(memory: SpanMemory) -> None:
    """With the steps of the cache before it, and nothing after it."""
    _same_with_and_without(lambda: compile_cuda(frag(229)), memory)
    assert shape(memory.spans) == [
        "compile frag_229!",
        "  cache key",
        "  cache load",
        "  lower!",
        "    20 passes",
        "    tl.LayoutInference!*",
    ]


def test_next_compile_after_a_failure_is_as_good_as_any(memory: SpanMemory) -> None:
    """Nothing of the failed one is left, in our state or TileLang's."""
    with traced(memory):
        with pytest.raises(Exception, match="no available layout"):
            lower(frag(229))
        memory.take()
        lower(frag(128))
    assert shape(memory.spans)[0] == "compile frag_128"
    assert _failed(memory.spans) == {}


# -- compilers ------------------------------------------------------------------------------


def test_nvcc_that_fails_says_why_without_the_source(memory: SpanMemory) -> None:
    """TileLang's own message is the whole source, and the command line."""
    raised = _same_with_and_without(
        lambda: compile_cuda(gemm(), compile_flags=["--no-such-flag"]), memory
    )
    assert "__global__" in raised
    assert len(raised) > 2000
    failed = _failed(memory.spans)
    assert failed["nvcc"] == (
        "exit code 1\nnvcc fatal   : Unknown option '--no-such-flag'",
        "CompilerError",
        1,
    )
    assert {name: failed[name][0] for name in failed if name != "nvcc"} == {
        "codegen tilelang_cuda": "failed in nvcc",
        "lower": "failed in nvcc",
        "compile gemm": "failed in nvcc",
    }
    assert sum(events for _, _, events in failed.values()) == 1
    [nvcc] = [span for span in memory.spans if span.name == "nvcc"]
    assert (nvcc.attributes or {})["process.exit.code"] == 1
    assert shape(memory.spans)[-4:] == [
        "  lower!",
        "    82 passes",
        "    codegen tilelang_cuda!",
        "      nvcc!*",
    ]


def test_nvcc_that_is_missing_is_told_on_its_span(
    memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never ran, so there is no exit code."""
    monkeypatch.setattr(_NVCC, "get_nvcc_compiler", lambda: "/nonexistent/nvcc")
    _same_with_and_without(lambda: compile_cuda(gemm()), memory)
    failed = _failed(memory.spans)
    assert failed["nvcc"] == (
        "[Errno 2] No such file or directory: '/nonexistent/nvcc'",
        "FileNotFoundError",
        1,
    )
    assert sum(events for _, _, events in failed.values()) == 1
    assert failed["compile gemm"][0] == "failed in nvcc"
    [nvcc] = [span for span in memory.spans if span.name == "nvcc"]
    assert "process.exit.code" not in (nvcc.attributes or {})


def test_nvcc_that_tilelang_gives_up_on_is_told_as_killed(
    memory: SpanMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span ends with the process, not before it."""
    compiler = tmp_path / "nvcc"
    compiler.write_text("#!/bin/sh\nexec sleep 60\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(_NVCC, "get_nvcc_compiler", lambda: str(compiler))
    monkeypatch.setattr(_NVCC, "_get_compile_timeout_seconds", lambda: 0.2)
    raised = _same_with_and_without(lambda: compile_cuda(gemm()), memory)
    assert "timed out" in raised
    failed = _failed(memory.spans)
    assert failed["nvcc"] == ("the compiler took too long and was killed", "TimeoutError", 1)
    assert failed["compile gemm"][0] == "failed in nvcc"
    [nvcc] = [span for span in memory.spans if span.name == "nvcc"]
    assert (nvcc.attributes or {})["process.exit.code"] == -9
    assert (nvcc.end_time or 0) - (nvcc.start_time or 0) >= 200_000_000


def test_host_compiler_that_fails_says_its_exit_code(
    memory: SpanMemory, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it says goes to the terminal, as without tracing: TileLang does not catch it."""
    raised = _same_with_and_without(lambda: compile_cpu(compile_flags=["-fno-such-flag"]), memory)
    assert capfd.readouterr().err.count("-fno-such-flag") == 2
    assert "#include" in raised
    failed = _failed(memory.spans)
    assert failed["g++"] == ("exit code 1", "CompilerError", 1)
    assert {name: failed[name][0] for name in failed if name != "g++"} == {
        "adapter": "failed in g++",
        "compile scale": "failed in g++",
    }
    assert sum(events for _, _, events in failed.values()) == 1


def test_host_compiler_that_is_missing_is_told_on_its_span(
    memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a device compiler."""
    monkeypatch.setattr(_CC, "get_cplus_compiler", lambda *args: "/nonexistent/g++")
    _same_with_and_without(compile_cpu, memory)
    failed = _failed(memory.spans)
    assert failed["g++"][:2] == (
        "[Errno 2] No such file or directory: '/nonexistent/g++'",
        "FileNotFoundError",
    )
    assert sum(events for _, _, events in failed.values()) == 1


def test_no_span_of_a_failure_holds_source_or_command_line(memory: SpanMemory) -> None:
    """Neither as status, nor as an event, nor as an attribute."""
    with traced(memory):
        outcome(lambda: compile_cpu(1024, compile_flags=["-fno-such-flag"]))
        outcome(lambda: compile_cuda(gemm(), compile_flags=["--no-such-flag"]))
    for span in memory.spans:
        text = span.to_json()
        assert len(text) < 6000, span.name
        for leak in ("__global__", "#include", "-fPIC", "--generate-code", "-gencode"):
            assert leak not in text, span.name


# -- of our own -----------------------------------------------------------------------------


@pytest.mark.parametrize("call", BROKEN_CALLS)
def test_broken_provider_fails_no_compile(
    call: str, memory: SpanMemory, swallowing: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever raises in it, the kernel is made, or the user's error raised."""
    provider = BrokenProvider(memory.provider, call)
    tilelang_otel.instrument(provider)
    try:
        artifact = lower(frag(128))
        with pytest.raises(Exception, match="no available layout"):
            lower(frag(229))
    finally:
        tilelang_otel.uninstrument()
    assert "__global__" in artifact.kernel_source
    assert provider.raised > 0
    complaints = [r for r in caplog.records if r.name.startswith("tilelang_otel")]
    assert len(complaints) == 1


_PIECES = [
    ("tilelang.cache", "cached"),
    ("tilelang.cache.kernel_cache", "KernelCache"),
    ("tilelang.engine.lower", "lower"),
    ("tilelang.jit", "JITImpl"),
    ("tilelang.jit.kernel", "JITKernel"),
    ("tilelang.instrumentation.session", "register_pass_instrumentation_tool"),
    ("tilelang.autotuner.tuner", "AutoTuner"),
    ("tilelang.jit.adapter.libgen", "LibraryGenerator"),
    ("tilelang.contrib.nvcc", "subprocess"),
]


@pytest.mark.parametrize(("module", "piece"), _PIECES)
def test_tilelang_that_lacks_a_piece_works_and_is_traced_as_far_as_it_is_known(
    module: str,
    piece: str,
    memory: SpanMemory,
    swallowing: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later release may rename anything; what is there then is put on all the same."""
    with monkeypatch.context() as patch:
        patch.delattr(sys.modules[module], piece)
        tilelang_otel.instrument(memory.provider)
    try:
        artifact = lower(frag(128))
    finally:
        tilelang_otel.uninstrument()
    assert "__global__" in artifact.kernel_source
    # All passes in any case: those are TVM's.
    assert sum("tvm.pass.name" in (s.attributes or {}) for s in memory.spans) == 78
