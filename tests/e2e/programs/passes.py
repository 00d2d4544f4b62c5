"""A pipeline of Python passes, one of which fails: the tree is known beforehand."""

from collections.abc import Callable

import tvm
from tvm import te
from tvm.ir import transform

a = te.placeholder((16,), "float32", name="A")
b = te.compute((16,), lambda i: a[i] * 2, name="B")
scale = te.create_prim_func([a, b]).with_attr("global_symbol", "scale")


def make_pass(name: str, then: Callable[[tvm.IRModule], tvm.IRModule] = lambda mod: mod):
    """Return a pass called ``name`` that does ``then``."""
    return transform.module_pass(lambda mod, context: then(mod), opt_level=0, name=name)


def fail(mod: tvm.IRModule) -> tvm.IRModule:
    """Fail as a pass of the compiler would."""
    raise ValueError("cannot lower loop i")


pipeline = transform.Sequential(
    [
        make_pass("Prepare"),
        transform.Sequential(
            [make_pass("Legalize", make_pass("Simplify")), make_pass("Lower", fail)], name="lower"
        ),
        make_pass("NeverReached"),
    ],
    name="pipeline",
)
with transform.PassContext():
    try:
        pipeline(tvm.IRModule({"scale": scale}))
    except ValueError as error:
        print(f"failed: {error}")
