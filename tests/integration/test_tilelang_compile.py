"""Zero-code tracing of TileLang's compiles: their spans, from the request to the compilers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from tests.support.require import require_tilelang
from tests.support.spans import SpanMemory, assert_sound, covered_fraction

require_tilelang()

from tests.support.tilelang_kernels import (  # noqa: E402
    SM80,
    Target,
    collector_at_rest,
    compile_cpu,
    compile_cuda,
    folders,
    frag,
    gemm,
    is_pass,
    lower,
    outcome,
    shape,
    traced,
    work_spans,
)
from tilelang_otel import semconv  # noqa: E402

_CASES: dict[str, Callable[[], Any]] = {
    "cpu": lambda: compile_cpu(1000),
    "lower": lambda: lower(gemm()),
    "cuda": lambda: compile_cuda(gemm()),
}

Spans = dict[str, tuple[Any, ...]]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this module empty caches of its own."""
    with folders(tmp_path_factory.mktemp("caches")):
        yield


@pytest.fixture(scope="module")
def cold(cache: None) -> Spans:
    """Compile each once, for all tests: with compilers they take seconds."""
    spans: Spans = {}
    with traced() as memory:
        for name, compile_ in _CASES.items():
            with collector_at_rest():
                compile_()
            spans[name] = memory.take()
    return spans


_SHAPES = {
    "cpu": [
        "compile scale",
        "  cache key",
        "  cache load",
        "  lower",
        "    61 passes",
        "    codegen tilelang_c",
        "  adapter",
        "    g++",
        "    load",
        "  cache save",
    ],
    "lower": [
        "compile gemm",
        "  lower",
        "    82 passes",
        "    codegen tilelang_cuda",
    ],
    "cuda": [
        "compile gemm",
        "  cache key",
        "  cache load",
        "  lower",
        "    82 passes",
        "    codegen tilelang_cuda",
        "      nvcc",
        "    6 passes",
        "    codegen tilelang_c_host",
        "  adapter",
        "  cache save",
        "    export",
        "      g++",
        "      g++",
    ],
}


@pytest.mark.parametrize("case", list(_CASES))
def test_cold_compile_gives_one_whole_tree(case: str, cold: Spans) -> None:
    """All that happens has a span in its place, also after TileLang's own session has ended."""
    assert shape(cold[case]) == _SHAPES[case]
    assert_sound(cold[case])
    assert len({span.context.trace_id for span in cold[case]}) == 1


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("cpu", {"pipeline_c": 53, None: 8}),
        ("lower", {"pipeline_cuda": 74, None: 8}),
        ("cuda", {"pipeline_cuda": 74, None: 14}),
    ],
)
def test_passes_have_the_phase_that_tilelang_gives_them(
    case: str, expected: dict[str | None, int], cold: Spans
) -> None:
    """Those that it runs outside its pipeline have none."""
    phases = [span.attributes.get(semconv.TVM_PASS_PHASE) for span in cold[case] if is_pass(span)]
    assert {phase: phases.count(phase) for phase in set(phases)} == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (
            "cpu",
            {
                "tilelang.kernel.name": "scale",
                "tvm.target.kind": "c",
                "tilelang.execution_backend": "cython",
                "tilelang.cache.result": "miss",
            },
        ),
        (
            "lower",
            {
                "tilelang.kernel.name": "gemm",
                "tvm.target.kind": "cuda",
                "tvm.target.arch": "sm_80",
            },
        ),
        (
            "cuda",
            {
                "tilelang.kernel.name": "gemm",
                "tvm.target.kind": "cuda",
                "tvm.target.arch": "sm_80",
                "tilelang.execution_backend": "tvm_ffi",
                "tilelang.cache.result": "miss",
            },
        ),
    ],
)
def test_compile_span_says_what_was_compiled_for_what(
    case: str, expected: dict[str, str], cold: Spans
) -> None:
    """Kernel, target, how it is called and what the cache said."""
    [root] = [span for span in cold[case] if span.parent is None]
    attributes = dict(root.attributes)
    key = attributes.pop(semconv.TILELANG_CACHE_KEY, None)
    assert attributes == expected
    assert (key is None) == (case == "lower")


@pytest.mark.parametrize("case", list(_CASES))
def test_every_pass_and_code_generator_names_the_kernel(case: str, cold: Spans) -> None:
    """Not the names of its host and device parts."""
    named = [s for s in cold[case] if s.name.startswith("codegen")]
    named += [s for s in cold[case] if is_pass(s) and semconv.TILELANG_KERNEL_NAME in s.attributes]
    kernel = "scale" if case == "cpu" else "gemm"
    assert {span.attributes[semconv.TILELANG_KERNEL_NAME] for span in named} == {kernel}
    assert len(named) > 50


def _named(spans: tuple[Any, ...], name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def test_compilers_are_client_spans_with_program_exit_code_and_size(cold: Spans) -> None:
    """Which work is another process's is seen at a glance; all else is internal."""
    programs = _named(cold["cuda"], "nvcc") + _named(cold["cuda"], "g++")[1:]
    programs += _named(cold["cpu"], "g++")
    for span in programs:
        assert span.attributes[semconv.PROCESS_EXECUTABLE_NAME] == span.name
        assert span.attributes[semconv.PROCESS_EXIT_CODE] == 0
        assert span.attributes[semconv.TILELANG_BINARY_SIZE] > 1000
    for spans in cold.values():
        for span in spans:
            is_program = span.name in ("nvcc", "g++")
            assert span.kind is (SpanKind.CLIENT if is_program else SpanKind.INTERNAL), span.name


def test_compiler_inside_the_process_is_an_internal_span_with_the_size(
    memory: SpanMemory,
) -> None:
    """NVRTC needs no GPU to compile; only loading what it made does."""
    with traced(memory), Target(SM80):
        outcome(lambda: compile_cuda(frag(128), execution_backend="nvrtc"))
    nvrtc: Any = memory.named("nvrtc")
    assert nvrtc.kind is SpanKind.INTERNAL
    assert list(nvrtc.attributes) == [semconv.TILELANG_BINARY_SIZE]
    assert nvrtc.attributes[semconv.TILELANG_BINARY_SIZE] > 1000
    assert [line.rstrip("!*") for line in shape(memory.spans)][:7] == [
        "compile frag_128",
        "  cache key",
        "  cache load",
        "  lower",
        "    78 passes",
        "    codegen tilelang_cuda",
        "  adapter",
    ]


def test_code_generation_says_which_generator_target_and_binary_cache(cold: Spans) -> None:
    """Those that only make source code have looked for no binary."""
    seen = [
        [dict(span.attributes) for span in cold[case] if span.name.startswith("codegen")]
        for case in _CASES
    ]
    names = [[codegen["tilelang.codegen.name"] for codegen in case] for case in seen]
    assert names == [
        ["target.build.tilelang_c"],
        ["target.build.tilelang_cuda_without_compile"],
        ["target.build.tilelang_cuda", "target.build.tilelang_c_host"],
    ]
    kinds = [[codegen["tvm.target.kind"] for codegen in case] for case in seen]
    assert kinds == [["c"], ["cuda"], ["cuda", "c"]]
    results = [[codegen.get("tilelang.binary_cache.result") for codegen in case] for case in seen]
    assert results == [[None], [None], ["miss", None]]


def test_pass_context_says_its_stage(cold: Spans) -> None:
    """As TileLang's session has it; ``tilelang.lower`` says none."""
    stages = [dict(_named(cold[case], "lower")[0].attributes) for case in _CASES]
    assert stages == [
        {
            "tilelang.stage": "jit-lower",
            "tilelang.execution_backend": "cython",
            "tilelang.kernel.name": "scale",
        },
        {"tilelang.kernel.name": "gemm"},
        {
            "tilelang.stage": "jit-lower",
            "tilelang.execution_backend": "tvm_ffi",
            "tilelang.kernel.name": "gemm",
        },
    ]


_AGAIN: dict[str, Callable[[int], Any]] = {
    "cpu": lambda n: compile_cpu(2000 + n),
    "lower": lambda n: lower(gemm()),
    "cuda": lambda n: compile_cuda(gemm(96 + 32 * n)),
}


@pytest.mark.parametrize("case", list(_CASES))
def test_named_work_covers_95_percent_of_every_cold_compile(
    case: str, cold: Spans, memory: SpanMemory
) -> None:
    """Containers don't count. The machine may take a slice of time: the best of three."""
    spans = cold[case]
    covered = 0.0
    for attempt in range(3):
        [root] = [span for span in spans if span.parent is None]
        covered = max(covered, covered_fraction(root, work_spans(spans)))
        if covered >= 0.95:
            return
        with traced(memory), collector_at_rest():
            _AGAIN[case](attempt)
        spans = memory.take()
    pytest.fail(f"named work covers only {covered:.1%}")
