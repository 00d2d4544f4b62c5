"""Two compiles. The first stops in the middle of a pass, and after it, for the test's word."""

import tvm
from tvm.ir import transform


def ask(question: str) -> None:
    """Tell the test where this is, and wait for its answer."""
    print(question, flush=True)
    input()


@transform.module_pass(opt_level=0, name="Long")
def long(mod: tvm.IRModule, context: transform.PassContext) -> tvm.IRModule:
    """Take as long as the test wants."""
    ask("in the pass")
    return mod


@transform.module_pass(opt_level=0, name="Short")
def short(mod: tvm.IRModule, context: transform.PassContext) -> tvm.IRModule:
    """Take no time."""
    return mod


with transform.PassContext():
    long(tvm.IRModule({}))
ask("after the first")
with transform.PassContext():
    short(tvm.IRModule({}))
print("done", flush=True)
