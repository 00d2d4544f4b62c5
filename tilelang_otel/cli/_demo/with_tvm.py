"""The demo with TVM: a transformer block, compiled for this CPU and checked against NumPy."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["TVMDemo"]

_TOLERANCE: Final = 1e-4


class TVMDemo:
    """Compiles and runs the transformer block.

    Attributes:
        compiler: What it needs, as users call it.
    """

    compiler = "TVM"

    def load(self) -> str:
        """Import what it needs; return what is missing, or an empty text."""
        try:
            self._model: ModuleType = importlib.import_module("tilelang_otel.cli._demo.transformer")
        except (ImportError, OSError) as error:  # OSError: a library that fits no other
            return f"TVM is installed, but cannot be loaded: {type(error).__name__}: {error}"
        if not self._model.has_llvm():
            return (
                "this TVM has no LLVM to compile for this CPU; in an environment of its own: "
                "pip install 'tilelang-otel[tvm]'"
            )
        return ""

    def run(self, fail: bool, console: Console, progress: Console) -> int:
        """Compile and run the model, and print what came of it; return the exit code."""
        model = self._model
        inputs = model.make_inputs()
        try:
            # A livelier sign would take its time from the passes.
            with progress.status("compiling a transformer block with TVM", refresh_per_second=0.5):
                executable, parameters = model.build(fail=fail)
        except Exception as error:
            if not fail:
                raise
            console.print(
                f"The compile failed, as it was meant to: {type(error).__name__}: {error}\n"
            )
            return 0
        with progress.status("running it, and the same in NumPy"):
            result = model.run(executable, parameters, inputs)
            difference = model.largest_difference(result, model.compute_with_numpy(inputs))
        matches = difference <= _TOLERANCE
        console.print(
            f"A transformer block was compiled and run: its numbers "
            f"{'match' if matches else 'do not match'} NumPy's "
            f"(largest difference {difference:.1g}, allowed {_TOLERANCE:.0e}).\n"
        )
        return 0 if matches else 1
