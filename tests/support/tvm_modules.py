"""Passes and models of real TVM, for tests that need one. Imports TVM when called."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

__all__ = [
    "CallLog",
    "call_log",
    "compile_mlp",
    "empty_module",
    "mlp",
    "python_pass",
    "raising",
    "scaling",
    "tolerant",
]


CallLog = list[tuple[str, ...]]
"""Calls of an instrument's hooks: the hook, and the pass it was about."""


def call_log(calls: CallLog, raises: str = "") -> Any:
    """Return an instrument, as users write them, that writes down every call it gets.

    Args:
        calls: Where it writes to.
        raises: Name of a hook that raises instead.
    """
    from tvm.ir.instrument import PassInstrument

    class Log(PassInstrument):
        __slots__ = ("__dict__",)

        def enter_pass_ctx(self) -> None:
            self.log("enter_pass_ctx")

        def exit_pass_ctx(self) -> None:
            self.log("exit_pass_ctx")

        def should_run(self, mod: Any, info: Any) -> Any:
            self.log("should_run", info.name)
            return True

        def run_before_pass(self, mod: Any, info: Any) -> None:
            self.log("run_before_pass", info.name)

        def run_after_pass(self, mod: Any, info: Any) -> None:
            self.log("run_after_pass", info.name)

        def log(self, hook: str, *about: str) -> None:
            if hook == raises:
                raise LookupError(f"{hook} raises")
            calls.append((hook, *about))

    return Log()


def python_pass(name: str, function: Callable[[Any], Any]) -> Any:
    """Return a module pass around ``function``.

    Args:
        name: The pass's name.
        function: Takes the module and returns it.
    """
    from tvm.ir import transform

    @transform.module_pass(opt_level=0, name=name)
    def run(mod: Any, context: Any) -> Any:
        return function(mod)

    return run


def raising(name: str, error: BaseException | Callable[[], BaseException]) -> Any:
    """Return a pass that raises ``error``, or what it makes."""

    def body(mod: Any) -> Any:
        raise error if isinstance(error, BaseException) else error()

    return python_pass(name, body)


def tolerant(name: str, inner: Any, then: Any = None) -> Any:
    """Return a pass that catches the failure of ``inner``, and runs ``then``."""

    def body(mod: Any) -> Any:
        with contextlib.suppress(Exception):
            inner(mod)
        return mod if then is None else then(mod)

    return python_pass(name, body)


def empty_module() -> Any:
    """Return a module without functions."""
    import tvm

    return tvm.IRModule({})


@functools.cache
def mlp() -> Any:
    """Return a two-layer perceptron whose only Relax function is ``forward``."""
    from tvm.relax.frontend import nn

    class MLP(nn.Module):
        def __init__(self) -> None:
            self.fc1 = nn.Linear(64, 256)
            self.relu = nn.ReLU()
            self.fc2 = nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.fc2(self.relu(self.fc1(x)))

    spec: Any = {"forward": {"x": nn.spec.Tensor((1, 64), "float32")}}
    return MLP().export_tvm(spec)[0]


def compile_mlp() -> Any:
    """Compile :func:`mlp` for the CPU."""
    import tvm

    target: Any = "llvm"
    return tvm.compile(mlp(), target=target)


def scaling(bind_thread: bool = False) -> Any:
    """Return a module whose only function, ``main``, doubles 16 numbers.

    Args:
        bind_thread: Whether it runs on a device's threads.
    """
    from tvm import IRModule, te

    a: Any = te.placeholder((16,), "float32", name="A")
    b: Any = te.compute((16,), lambda i: a[i] * 2, name="B")
    function: Any = te.create_prim_func([a, b])
    if not bind_thread:
        return IRModule({"main": function.with_attr("global_symbol", "main")})
    from tvm import s_tir

    schedule: Any = s_tir.Schedule(function)
    block = getattr(schedule, "get_sblock", None) or schedule.get_block
    [loop] = schedule.get_loops(block("B"))
    schedule.bind(loop, "threadIdx.x")
    return schedule.mod
