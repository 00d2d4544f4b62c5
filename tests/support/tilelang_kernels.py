"""TileLang programs for tests, the folders they may write to, and compiles that are traced.

Owns what is compiled and where; which spans that gives, only the tests say.
Importing this imports TileLang. Without ``from __future__ import annotations``:
TileLang reads the annotations of its programs as values.
"""

# pyright: reportInvalidTypeForm=false

import gc
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tilelang_otel
from tests.support.spans import AnySpan, SpanMemory, outline
from tilelang_otel import semconv
from tilelang_otel._guard import guard

__all__ = [
    "SM80",
    "Target",
    "cache_entries",
    "collector_at_rest",
    "compile_cpu",
    "compile_cuda",
    "folders",
    "forget",
    "frag",
    "gemm",
    "is_pass",
    "lower",
    "outcome",
    "scale",
    "shape",
    "traced",
    "work_spans",
]

tilelang: Any = importlib.import_module("tilelang")
T: Any = importlib.import_module("tilelang.language")
Target: Any = importlib.import_module("tvm.target").Target

SM80 = {"kind": "cuda", "arch": "sm_80"}
"""A target that code can be made for on a machine without a GPU."""


def scale(n: int = 1024, name: str = "scale") -> Any:
    """Return an element-wise program for the CPU.

    Args:
        n: How many elements: another number gives another kernel.
        name: The kernel's name.
    """

    @T.prim_func
    def main(a: T.Tensor((n,), "float32"), b: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=1) as _:
            for i in T.serial(n):
                b[i] = a[i] * T.float32(2)

    return main.with_attr("global_symbol", name)


def gemm(k: int = 64, name: str = "gemm") -> Any:
    """Return a matrix multiplication of float16 for CUDA.

    Args:
        k: How long the inner dimension is: another number gives another kernel.
        name: The kernel's name.
    """

    @T.prim_func
    def main(
        a: T.Tensor((64, k), "float16"),
        b: T.Tensor((k, 64), "float16"),
        c: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, 1, threads=128) as (_x, _y):
            a_shared = T.alloc_shared((64, 32), "float16")
            b_shared = T.alloc_shared((32, 64), "float16")
            c_local = T.alloc_fragment((64, 64), "float32")
            T.clear(c_local)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(a[0, i * 32], a_shared)
                T.copy(b[i * 32, 0], b_shared)
                T.gemm(a_shared, b_shared, c_local)
            T.copy(c_local, c[0, 0])

    return main.with_attr("global_symbol", name)


def frag(n: int, name: str | None = None) -> Any:
    """Return a program over a fragment of one row, for CUDA, with 128 threads.

    Args:
        n: The row's width: unless it is a multiple of the threads, ``tl.LayoutInference``
            fails.
        name: The kernel's name; by default ``frag_<n>``.
    """

    @T.prim_func
    def main(a: T.Tensor((1, n), "float32"), b: T.Tensor((1, n), "float32")):
        with T.Kernel(1, threads=128) as _:
            f = T.alloc_fragment((1, n), "float32")
            T.copy(a[0, 0], f)
            for i in T.Parallel(n):
                f[0, i] = f[0, i] * T.float32(2)
            T.copy(f, b[0, 0])

    return main.with_attr("global_symbol", name or f"frag_{n}")


def compile_cpu(n: int = 1024, name: str = "scale", **options: Any) -> Any:
    """Compile :func:`scale`, which runs g++ unless it is cached.

    Args:
        n: See there.
        name: See there.
        **options: Of ``tilelang.compile``.
    """
    return tilelang.compile(scale(n, name), target="c", **options)


def compile_cuda(program: Any, **options: Any) -> Any:
    """Compile a program with nvcc, unless it is cached.

    Args:
        program: :func:`gemm` or :func:`frag`.
        **options: Of ``tilelang.compile``.
    """
    return tilelang.compile(program, target=SM80, **options)


def lower(program: Any) -> Any:
    """Lower a program to CUDA source, for which nothing but TVM is needed.

    Args:
        program: :func:`gemm` or :func:`frag`.
    """
    target = Target(SM80)
    with target:
        return tilelang.lower(program, target=target)


@contextmanager
def folders(folder: Path) -> Iterator[Path]:
    """Keep all caches, and what the autotuner writes where it is started, in a folder.

    Args:
        folder: An empty one.

    Yields:
        TileLang's cache folder.
    """
    cache = folder / "tilelang"
    (folder / "started").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILELANG_CACHE_DIR", str(cache))
        patch.setenv("TILELANG_AUTO_TUNING_CPU_COUNTS", "2")
        patch.setenv("XDG_CACHE_HOME", str(folder / "ours"))
        patch.chdir(folder / "started")
        forget()
        try:
            yield cache
        finally:
            forget()


@contextmanager
def traced(memory: SpanMemory | None = None) -> Iterator[SpanMemory]:
    """Trace what the program does, into memory; no bug of ours is swallowed.

    Args:
        memory: Where to; by default one of its own.
    """
    memory = SpanMemory() if memory is None else memory
    reraised, guard.reraise = guard.reraise, True
    tilelang_otel.instrument(memory.provider)
    try:
        yield memory
    finally:
        tilelang_otel.uninstrument()
        guard.reraise = reraised


def forget() -> None:
    """Empty TileLang's memory of kernels, as if the process had just started."""
    for cache in importlib.import_module("tilelang.cache")._dispatch_map.values():
        cache._memory_cache.clear()


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Have no garbage collection in a measurement: one takes 0.2 s with torch loaded."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def is_pass(span: AnySpan) -> bool:
    """Tell whether a span is that of a pass.

    Args:
        span: A finished one.
    """
    return semconv.TVM_PASS_NAME in (span.attributes or {})


def work_spans(spans: tuple[Any, ...]) -> list[Any]:
    """Return the spans that name work, without those that only hold others.

    Args:
        spans: Finished ones.
    """
    return [span for span in spans if span.name.partition(" ")[0] not in semconv.CONTAINER_SPANS]


def shape(spans: tuple[Any, ...], *attributes: str) -> list[str]:
    """Return the spans as an outline, in which passes that follow one another are one line.

    Passes that failed have lines of their own.

    Args:
        spans: Finished ones.
        *attributes: Names of attributes whose values follow the name.
    """
    names = {span.name for span in spans if is_pass(span)}
    lines: list[str] = []
    for line in outline(spans, *attributes):
        word = line.split()[0]
        indent = line[: line.index(word)]
        if word not in names:
            lines.append(line)
        elif lines and lines[-1].endswith(" passes"):
            before = lines[-1].removesuffix(" passes")
            lines[-1] = f"{before.rstrip('0123456789')}{int(before) + 1} passes"
        else:
            lines.append(f"{indent}1 passes")
    return lines


def outcome(call: Callable[[], Any]) -> tuple[type[BaseException] | None, str]:
    """Return class and message of what a call raises; None and nothing if it raises nothing.

    Args:
        call: What to call.
    """
    try:
        call()
    except Exception as error:  # noqa: BLE001 - to be compared
        return type(error), str(error)
    return None, ""


def cache_entries(cache: Path) -> list[Path]:
    """Return the folders of the kernels in TileLang's disk cache.

    Args:
        cache: TileLang's cache folder.
    """
    return sorted(Path(entry) for entry in cache.glob("*/**/kernels/*") if os.path.isdir(entry))
