"""Many TileLang kernels at once: one trace, with every configuration in its place."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace

from tests.support.require import require_tilelang
from tests.support.spans import SpanMemory, assert_sound, outline

require_tilelang()

from tests.support.tilelang_kernels import (  # noqa: E402
    SM80,
    compile_cuda,
    folders,
    frag,
    gemm,
    is_pass,
    scale,
    shape,
    tilelang,
    traced,
)

AutoTuner: Any = importlib.import_module("tilelang.autotuner").AutoTuner
torch: Any = importlib.import_module("torch")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this module empty caches of its own, and a folder that the autotuner writes to."""
    with folders(tmp_path_factory.mktemp("caches")):
        yield


@pytest.fixture(autouse=True)
def instrumented(cache: None, memory: SpanMemory) -> Iterator[None]:
    """Trace into ``memory`` for the length of the test."""
    with traced(memory):
        yield


def _compiles(spans: tuple[Any, ...]) -> list[list[Any]]:
    """Return name, configuration and ``error.type`` of each kernel's span, in that order."""
    return sorted(
        [
            span.name,
            span.attributes.get("tilelang.config.index"),
            span.attributes.get("error.type"),
        ]
        for span in spans
        if span.name.startswith("compile ")
    )


def _root(memory: SpanMemory) -> Any:
    [root] = [span for span in memory.spans if span.parent is None]
    return root


def _counts(span: Any) -> tuple[Any, Any, bool]:
    """Return how many were compiled, how many failed, and whether the span is an error."""
    return (
        span.attributes["tilelang.compiled.count"],
        span.attributes["tilelang.failed.count"],
        not span.status.is_ok,
    )


# -- par_compile ----------------------------------------------------------------------------


def test_par_compile_is_one_tree_in_the_callers_trace_with_each_failure_on_its_kernel(
    memory: SpanMemory,
) -> None:
    """TileLang compiles in threads that know nothing of the caller; the program gets its error."""
    with memory.provider.get_tracer("program").start_as_current_span("request") as request:
        with pytest.raises(Exception, match="no available layout"):
            tilelang.par_compile([frag(128), frag(229), frag(256)], target=SM80, num_workers=2)
        assert trace.get_current_span() is request
    assert len({span.context.trace_id for span in memory.spans if span.context}) == 1
    parents: list[Any] = [span for span in memory.spans if span.name == "par_compile"]
    assert [_counts(span) for span in parents] == [(2, 1, False)]
    assert _compiles(memory.spans) == [
        ["compile frag_128", 0, None],
        ["compile frag_229", 1, "tvm.error.InternalError"],
        ["compile frag_256", 2, None],
    ]
    compiles = [span for span in memory.spans if span.name.startswith("compile ")]
    assert {span.parent.span_id for span in compiles if span.parent} == {parents[0].context.span_id}
    assert [s.name for s in memory.spans if s.events] == ["tl.LayoutInference"]
    assert _root(memory).name == "request"
    assert_sound(memory.spans)


def test_par_compile_is_an_error_only_if_nothing_compiled(memory: SpanMemory) -> None:
    """Also where the program asked to ignore what fails, and gets no exception."""
    kernels = tilelang.par_compile(
        [frag(229), frag(227)], target=SM80, num_workers=2, ignore_error=True
    )
    assert kernels == [None, None]
    assert _counts(_root(memory)) == (0, 2, True)
    assert _root(memory).attributes["error.type"] == "tvm.error.InternalError"
    assert _root(memory).status.description.startswith("failed in compile frag_22")
    assert [s.name for s in memory.spans if s.events] == ["tl.LayoutInference"] * 2
    assert outline(memory.spans)[0] == "par_compile!"


def test_par_compile_that_ignores_one_failure_is_no_error(memory: SpanMemory) -> None:
    """The failure is on its kernel, and counted."""
    kernels = tilelang.par_compile(
        [frag(128), frag(229)], target=SM80, num_workers=2, ignore_error=True
    )
    assert [kernel is None for kernel in kernels] == [False, True]
    assert _counts(_root(memory)) == (1, 1, False)
    assert [error for _, _, error in _compiles(memory.spans)] == [None, "tvm.error.InternalError"]


def test_jitted_function_compiles_many_as_one_tree(memory: SpanMemory) -> None:
    """It elaborates them all before it compiles any."""

    @tilelang.jit(target="c")
    def jitted(n: int) -> Any:
        return scale(n, f"scale_{n}")

    assert len(jitted.par_compile([{"n": 310}, (311,)], num_workers=1)) == 2
    kernel = [
        "    cache key",
        "    cache load",
        "    lower",
        "      61 passes",
        "      codegen tilelang_c",
        "    adapter",
        "      g++",
        "      load",
        "    cache save",
    ]
    assert shape(memory.spans) == [
        "par_compile",
        "  elaborate",
        "  elaborate",
        "  compile scale_310",
        *kernel,
        "  compile scale_311",
        *kernel,
    ]
    assert _counts(_root(memory)) == (2, 0, False)


# -- autotuner ------------------------------------------------------------------------------


def _program(n: int = 400) -> Any:
    if n == 402:
        raise ValueError("there is no 402")
    return scale(n, "tuned")


def _tuner(*sizes: int) -> Any:
    tuner = AutoTuner.from_kernel(_program, configs=[{"n": n} for n in sizes])
    return tuner.set_compile_args(target="c").set_profile_args(backend="wall")


def test_autotuner_run_is_one_tree_down_to_the_benchmarks(memory: SpanMemory) -> None:
    """Elaboration, compiles and benchmarks are in threads; one configuration is no good."""
    with memory.provider.get_tracer("program").start_as_current_span("request"):
        result = _tuner(400, 401, 402).run(warmup=1, rep=1, timeout=60)
    assert result.config["n"] in (400, 401)
    assert len({span.context.trace_id for span in memory.spans if span.context}) == 1
    [run] = [span for span in memory.spans if span.name == "autotune _program"]
    assert _counts(run) == (2, 1, False)
    assert (run.attributes or {})["tilelang.cache.result"] == "miss"
    assert _compiles(memory.spans) == [
        ["compile _program", 2, "ValueError"],
        ["compile tuned", 0, None],
        ["compile tuned", 1, None],
    ]
    below = [span.name for span in memory.spans if span.parent and span.name != run.name]
    assert below.count("benchmark tuned") == 2
    assert below.count("g++") == 2
    # The caller's thread elaborates the first once by itself.
    assert below.count("elaborate") == 4
    assert [span.name for span in memory.spans if span.events] == ["elaborate"]
    assert_sound(memory.spans)
    memory.take()
    # TileLang remembers, and so compiles nothing.
    again = _tuner(400, 401, 402).run(warmup=1, rep=1, timeout=60)
    assert again.config == result.config
    assert _root(memory).attributes["tilelang.cache.result"] == "memory"
    assert _compiles(memory.spans) == []


def test_autotuner_run_without_any_kernel_is_an_error(memory: SpanMemory) -> None:
    """The program's exception says nothing of the causes; the configurations do."""
    tuner = AutoTuner.from_kernel(frag, configs=[{"n": 229}, {"n": 227}])
    tuner.set_compile_args(target=SM80).set_profile_args(backend="wall")
    with pytest.raises(RuntimeError, match="Auto-tuning failed"):
        tuner.run(warmup=1, rep=1, timeout=60)
    assert _counts(_root(memory)) == (0, 2, True)
    errors = [[index, error] for _, index, error in _compiles(memory.spans)]
    assert sorted(errors) == [[0, "tvm.error.InternalError"], [1, "tvm.error.InternalError"]]
    assert [span.name for span in memory.spans if span.events] == ["tl.LayoutInference"] * 2


def test_grouped_compile_keeps_the_kernels_name_and_tells_the_configurations_apart(
    memory: SpanMemory,
) -> None:
    """TileLang puts ``_gc_<n>`` behind the names of what it compiles in one go."""

    def program(k: int = 64) -> Any:
        if k == 229:
            return frag(229, "gemm")
        return gemm(k)

    tuner = AutoTuner.from_kernel(program, configs=[{"k": 64}, {"k": 96}, {"k": 229}])
    tuner.set_compile_args(target=SM80, execution_backend="tvm_ffi")
    tuner.set_profile_args(backend="wall")
    # Without a GPU no kernel runs, but all that can be are compiled.
    with pytest.raises(RuntimeError, match="Auto-tuning failed"):
        tuner.run(warmup=1, rep=1, timeout=0, enable_grouped_compile=True, group_compile_size=3)
    [unit] = [span for span in memory.spans if span.name.startswith("compile")]
    assert unit.name == "compile gemm"
    assert [span.name for span in memory.spans if "_gc_" in span.name] == []
    for span in memory.spans:
        assert "_gc_" not in str((span.attributes or {}).get("tilelang.kernel.name")), span.name
    lowered = [s.attributes or {} for s in memory.spans if s.name == "lower"]
    told = ("tilelang.config.index", "tilelang.kernel.symbol", "error.type")
    assert [[attributes.get(name) for name in told] for attributes in lowered] == [
        [0, "gemm_gc_0", None],
        [1, "gemm_gc_1", None],
        [2, "gemm_gc_2", "tvm.error.InternalError"],
    ]
    elaborated = [s.attributes or {} for s in memory.spans if s.name == "elaborate"]
    # The caller's thread elaborates the first once by itself.
    indices = [attributes.get("tilelang.config.index") for attributes in elaborated]
    assert sorted(indices, key=str) == [0, 1, 2, None]
    assert [span.name for span in memory.spans].count("nvcc") == 1
    assert _counts(_root(memory))[:2] == (2, 1)
    assert len([span for span in memory.spans if is_pass(span)]) > 150


# -- first launch -----------------------------------------------------------------------------


def test_late_host_compiler_of_a_first_launch_is_in_the_launchers_trace(
    memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled as late as that is a compile of its own, named after the kernel."""
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")
    kernel = compile_cuda(gemm(name="late"))
    assert "g++" not in [span.name for span in memory.take()]
    with memory.provider.get_tracer("program").start_as_current_span("request"):
        # As the first call does; a call needs a GPU.
        kernel.adapter._get_executable().jit()
    assert shape(memory.take()) == [
        "request",
        "  compile late",
        "    export",
        "      g++",
        "      g++",
        "    load",
    ]
    kernel.adapter._get_executable().jit()
    assert memory.spans == ()
