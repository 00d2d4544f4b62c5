"""As many passes as the first argument says, below one context, as fast as they come."""

import sys

import tvm
from tvm.ir import transform


@transform.module_pass(opt_level=0, name="Nothing")
def nothing(mod: tvm.IRModule, context: transform.PassContext) -> tvm.IRModule:
    """Do nothing."""
    return mod


module = tvm.IRModule({})
with transform.PassContext():
    for _ in range(int(sys.argv[1])):
        nothing(module)
print("done")
