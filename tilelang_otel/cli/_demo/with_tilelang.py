"""The demo with TileLang: a GEMM lowered to CUDA, and a kernel compiled for this CPU.

Neither needs a GPU. The kernel is run, checked against torch, and then asked for
again, to show what a cache hit looks like.
"""

from __future__ import annotations

import importlib
import logging
import os
import tempfile
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["TileLangDemo"]

_TARGET: Final = {"kind": "cuda", "arch": "sm_80"}
_LENGTH: Final = 1024
_NO_LAYOUT: Final = 229
"""A width that no layout fits: it is no multiple of the threads."""


class TileLangDemo:
    """Compiles and runs the kernels.

    Attributes:
        compiler: What it needs, as users call it.
    """

    compiler = "TileLang"

    def load(self) -> str:
        """Import what it needs; return what is missing, or an empty text."""
        # A cold compile is what is to be seen, so the user's cache is left alone.
        self._cache = tempfile.TemporaryDirectory(prefix="tilelang-otel-demo-")
        os.environ["TILELANG_CACHE_DIR"] = self._cache.name
        os.environ["TILELANG_PRINT_ON_COMPILATION"] = "0"
        try:
            self._tilelang: Any = importlib.import_module("tilelang")
            self._torch: Any = importlib.import_module("torch")
            self._target: Any = importlib.import_module("tvm.target").Target
            self._kernels: Any = importlib.import_module("tilelang_otel.cli._demo.kernels")
        except (ImportError, OSError) as error:  # OSError: a library that fits no other
            return f"TileLang is installed, but cannot be loaded: {type(error).__name__}: {error}"
        for name in ("tilelang", "tilelang.cache.kernel_cache"):
            logging.getLogger(name).setLevel(logging.ERROR)
        return ""

    def run(self, fail: bool, console: Console, progress: Console) -> int:
        """Compile and run the kernels, and print what came of it; return the exit code."""
        try:
            return self._fail(console, progress) if fail else self._succeed(console, progress)
        finally:
            self._cache.cleanup()

    def _fail(self, console: Console, progress: Console) -> int:
        try:
            with progress.status("lowering a kernel that fails", refresh_per_second=0.5):
                self._lower(self._kernels.scale_fragment(_NO_LAYOUT))
        except Exception as error:  # noqa: BLE001 - whatever TileLang raises is the demo
            console.print(f"The compile failed, as it was meant to: {_sentence_of(error)}\n")
            return 0
        console.print("The compile did not fail: this TileLang has a layout for it.\n")
        return 0

    def _succeed(self, console: Console, progress: Console) -> int:
        with progress.status("lowering a GEMM to CUDA", refresh_per_second=0.5):
            source = self._lower(self._kernels.gemm(1024)).kernel_source
        console.print(f"A GEMM was lowered to {len(source.splitlines())} lines of CUDA.")
        program = self._kernels.add(_LENGTH)
        try:
            with progress.status("compiling a kernel for this CPU", refresh_per_second=0.5):
                kernel = self._tilelang.compile(program, target="c")
        except Exception as error:  # noqa: BLE001 - most likely there is no C++ compiler
            console.print(f"A kernel could not be compiled for this CPU: {_sentence_of(error)}\n")
            return 1
        a, b, c = (self._torch.randn(_LENGTH) for _ in range(3))
        kernel(a, b, c)
        matches = bool(self._torch.allclose(a + b, c))
        console.print(
            f"A kernel was compiled for this CPU and run: its numbers "
            f"{'match' if matches else 'do not match'} torch's."
        )
        self._tilelang.compile(program, target="c")
        console.print("It was asked for again, and came from the cache.\n")
        return 0 if matches else 1

    def _lower(self, program: Any) -> Any:
        # tilelang.lower takes the target's details from the one in scope.
        with self._target(_TARGET):
            return self._tilelang.lower(program, target=_TARGET)


def _sentence_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip()
