"""The model that ``tilelang-otel demo`` compiles: one block of a transformer.

Owns the model in TVM's terms, the same computation in NumPy, and how TVM builds
and runs it. Imports TVM, so it is imported only when the demo runs; what is said
about it is up to ``_demo.with_tvm``, recording and showing to ``demo``.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, Final, TypeAlias

# TVM has no types, and NumPy's leave too much open.
_np: Any = importlib.import_module("numpy")
_tvm: Any = importlib.import_module("tvm")
_relax: Any = importlib.import_module("tvm.relax")
_nn: Any = importlib.import_module("tvm.relax.frontend.nn")
_stock: Any = importlib.import_module("tvm.relax.backend.cpu_generic.pipeline")

__all__ = [
    "build",
    "compute_with_numpy",
    "has_llvm",
    "largest_difference",
    "make_inputs",
    "run",
]

Array: TypeAlias = Any
"""A NumPy array of 32-bit floats."""

_BATCH: Final = 1
_TOKENS: Final = 64
_WIDTH: Final = 256
_HEADS: Final = 8
_HIDDEN: Final = 1024
_EPSILON: Final = 1e-5
_SEED: Final = 20250

_MAX_KERNELS: Final = 3
"""What the failing pass of ``demo --fail`` accepts: less than the model needs."""


class _Attention(_nn.Module):
    """Self-attention of every token to every token."""

    def __init__(self) -> None:
        self.qkv = _nn.Linear(_WIDTH, 3 * _WIDTH, bias=False)
        self.out = _nn.Linear(_WIDTH, _WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        op = _nn.op
        qkv = op.reshape(self.qkv(x), (_BATCH, _TOKENS, 3, _HEADS, _WIDTH // _HEADS))
        q, k, v = (op.squeeze(part, 2) for part in op.split(qkv, 3, axis=2))
        mixed = op.scaled_dot_product_attention(q, k, v)
        return self.out(op.reshape(mixed, (_BATCH, _TOKENS, _WIDTH)))


class _TransformerBlock(_nn.Module):
    """Attention and a two-layer perceptron, each normalised before and added after."""

    def __init__(self) -> None:
        self.norm_1 = _nn.RMSNorm(_WIDTH, -1, _EPSILON, bias=False)
        self.attention = _Attention()
        self.norm_2 = _nn.RMSNorm(_WIDTH, -1, _EPSILON, bias=False)
        self.up = _nn.Linear(_WIDTH, _HIDDEN)
        self.down = _nn.Linear(_HIDDEN, _WIDTH)

    def transformer_block(self, x: Any) -> Any:
        x = x + self.attention(self.norm_1(x))
        return x + self.down(_nn.op.gelu(self.up(self.norm_2(x))))


def has_llvm() -> bool:
    """Tell whether this TVM can generate code with LLVM; TileLang's own cannot."""
    return bool(_tvm.runtime.enabled("llvm"))


def make_inputs() -> dict[str, Array]:
    """Return the input ``x`` and the weights, by name; the same ones each time."""
    random = _np.random.default_rng(_SEED)

    def array(*shape: int, scale: float = 1.0) -> Array:
        return (random.standard_normal(shape) * scale).astype(_np.float32)

    return {
        "x": array(_BATCH, _TOKENS, _WIDTH),
        "norm_1.weight": 1 + array(_WIDTH, scale=0.1),
        "attention.qkv.weight": array(3 * _WIDTH, _WIDTH, scale=_WIDTH**-0.5),
        "attention.out.weight": array(_WIDTH, _WIDTH, scale=_WIDTH**-0.5),
        "norm_2.weight": 1 + array(_WIDTH, scale=0.1),
        "up.weight": array(_HIDDEN, _WIDTH, scale=_WIDTH**-0.5),
        "up.bias": array(_HIDDEN, scale=0.1),
        "down.weight": array(_WIDTH, _HIDDEN, scale=_HIDDEN**-0.5),
        "down.bias": array(_WIDTH, scale=0.1),
    }


def compute_with_numpy(inputs: dict[str, Array]) -> Array:
    """Return what the model makes of ``inputs``, without TVM.

    Args:
        inputs: As :func:`make_inputs` returns them.
    """

    def norm(x: Array, weight: Array) -> Array:
        return x / _np.sqrt(_np.mean(x * x, axis=-1, keepdims=True) + _EPSILON) * weight

    def softmax(x: Array) -> Array:
        powers = _np.exp(x - x.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    def gelu(x: Array) -> Array:
        return (0.5 * x * (1 + _np.vectorize(math.erf)(x / math.sqrt(2)))).astype(_np.float32)

    def heads(x: Array) -> Array:
        return x.reshape(_BATCH, _TOKENS, _HEADS, -1).transpose(0, 2, 1, 3)

    x = inputs["x"]
    qkv = norm(x, inputs["norm_1.weight"]) @ inputs["attention.qkv.weight"].T
    q, k, v = (heads(part) for part in _np.split(qkv, 3, axis=-1))
    weights = softmax(q @ k.transpose(0, 1, 3, 2) / math.sqrt(_WIDTH // _HEADS))
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(_BATCH, _TOKENS, _WIDTH)
    x = x + mixed @ inputs["attention.out.weight"].T
    hidden = norm(x, inputs["norm_2.weight"]) @ inputs["up.weight"].T + inputs["up.bias"]
    return x + gelu(hidden) @ inputs["down.weight"].T + inputs["down.bias"]


def build(*, fail: bool) -> tuple[Any, list[str]]:
    """Compile the model for this CPU with TVM's own pipeline for it.

    Args:
        fail: Put a pass into the middle of the pipeline that finds fault with
            the module.

    Returns:
        The executable, and the names of its inputs after ``x``, in order.

    Raises:
        ValueError: The pass that was put in found fault.
    """
    target = _tvm.target.Target("llvm")
    spec = {"x": _nn.spec.Tensor((_BATCH, _TOKENS, _WIDTH), "float32")}
    mod, parameters = _TransformerBlock().export_tvm({"transformer_block": spec})
    pipeline = _failing_pipeline(target) if fail else _relax.get_default_pipeline(target)
    executable = _tvm.compile(mod, target=target, relax_pipeline=pipeline)
    return executable, [name for name, _ in parameters]


def run(executable: Any, parameters: list[str], inputs: dict[str, Array]) -> Array:
    """Run the compiled model once on this CPU.

    Args:
        executable: From :func:`build`.
        parameters: From :func:`build`.
        inputs: As :func:`make_inputs` returns them.
    """
    device = _tvm.cpu()
    arrays = [_tvm.runtime.tensor(inputs[name], device) for name in ("x", *parameters)]
    result: Array = _relax.VirtualMachine(executable, device)["transformer_block"](*arrays).numpy()
    return result


def largest_difference(result: Array, expected: Array) -> float:
    """Return how far apart two results are anywhere; infinity if they cannot be compared."""
    if result.shape != expected.shape:
        return math.inf
    difference = float(_np.abs(result - expected).max())
    return math.inf if math.isnan(difference) else difference


def _failing_pipeline(target: Any) -> Any:
    """Return the passes of TVM's pipeline for CPUs, with one more in the middle."""

    @_tvm.transform.module_pass(opt_level=0, name="LimitKernels")
    def limit_kernels(mod: Any, context: Any) -> Any:
        kernels = sum(
            isinstance(function, _tvm.tirx.PrimFunc) for function in mod.functions.values()
        )
        if kernels > _MAX_KERNELS:
            raise ValueError(
                f"the model needs {kernels} kernels, and this pass allows {_MAX_KERNELS}: "
                "it was put in by `tilelang-otel demo --fail`"
            )
        return mod

    passes = [
        *_stock.library_dispatch_passes(target),
        *_stock.legalize_passes(target),
        limit_kernels,
        *_stock.dataflow_lower_passes(target),
        *_stock.finalize_passes(target),
    ]

    @_tvm.transform.module_pass(opt_level=0, name="_pipeline")
    def pipeline(mod: Any, context: Any) -> Any:
        with target:
            return _tvm.transform.Sequential(passes)(mod)

    return pipeline
