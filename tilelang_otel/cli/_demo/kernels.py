"""The kernels that ``tilelang-otel demo`` compiles.

TileLang reads a kernel's program from its source file, so they have a module of
their own. It imports TileLang, so it is imported only when the demo runs.
"""

# No postponed annotations: TileLang takes shapes from them.
# pyright: reportInvalidTypeForm=false, reportUnknownParameterType=false
# ruff: noqa: N803, N806 - matrices are called A, B and C

import importlib
from typing import Any

T: Any = importlib.import_module("tilelang.language")

__all__ = ["add", "gemm", "scale_fragment"]


def add(length: int) -> Any:
    """Return a kernel that adds two vectors, one element after the other."""

    @T.prim_func
    def add(
        A: T.Tensor((length,), "float32"),
        B: T.Tensor((length,), "float32"),
        C: T.Tensor((length,), "float32"),
    ):
        with T.Kernel(1):
            for i in T.serial(length):
                C[i] = A[i] + B[i]

    return add


def gemm(size: int, block: int = 64, depth: int = 32) -> Any:
    """Return a kernel that multiplies two square matrices on tensor cores."""

    @T.prim_func
    def gemm(
        A: T.Tensor((size, size), "float16"),
        B: T.Tensor((size, size), "float16"),
        C: T.Tensor((size, size), "float16"),
    ):
        with T.Kernel(T.ceildiv(size, block), T.ceildiv(size, block), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block, depth), "float16")
            B_shared = T.alloc_shared((depth, block), "float16")
            C_local = T.alloc_fragment((block, block), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(size, depth), num_stages=2):
                T.copy(A[by * block, k * depth], A_shared)
                T.copy(B[k * depth, bx * block], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block, bx * block])

    return gemm


def scale_fragment(width: int) -> Any:
    """Return a kernel with a fragment, for which not every width has a layout."""

    @T.prim_func
    def scale_fragment(
        A: T.Tensor((1, width), "float32"),
        B: T.Tensor((1, width), "float32"),
    ):
        with T.Kernel(1, threads=128):
            local = T.alloc_fragment((1, width), "float32")
            T.copy(A, local)
            for i, j in T.Parallel(1, width):
                local[i, j] = local[i, j] * 2.0
            T.copy(local, B)

    return scale_fragment
