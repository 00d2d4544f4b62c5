"""What is compiled: a small model and a large one, and a loop that is all callbacks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["Compile", "cheap_passes", "large", "small"]

Compile = Callable[[], Any]
"""Compiles something, the same at each call, in the pass context that is current."""


def small() -> Compile:
    """Return the compile of a perceptron of two layers: about 80 passes in 40 ms."""
    tvm: Any = importlib.import_module("tvm")
    nn: Any = importlib.import_module("tvm.relax.frontend.nn")

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            self.first = nn.Linear(64, 64)
            self.second = nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return self.second(nn.op.relu(self.first(x)))

    spec = {"forward": {"x": nn.spec.Tensor((1, 64), "float32")}}
    module, _ = Perceptron().export_tvm(spec)
    target = tvm.target.Target("llvm")
    # Looked up at each call: zero-code replaces it.
    return lambda: tvm.compile(module, target)


def large() -> Compile:
    """Return what ``tilelang-otel demo`` compiles: a block of a transformer."""
    model: Any = importlib.import_module("tilelang_otel.cli._demo.transformer")
    return lambda: model.build(fail=False)


def cheap_passes(count: int) -> Compile:
    """Return a run of C++ passes on a module without functions, so that none does anything.

    Args:
        count: How many; one more runs around them.
    """
    tvm: Any = importlib.import_module("tvm")
    passes = tvm.transform.Sequential([tvm.tirx.transform.StmtSimplify()] * count)
    module = tvm.IRModule({})
    return lambda: passes(module)
