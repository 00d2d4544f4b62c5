"""What a user of TVM writes: a model, compiled for this CPU, and called. Knows of no tracing."""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn


class MLP(nn.Module):
    """A layer with an activation."""

    def __init__(self) -> None:
        self.fc = nn.Linear(8, 4)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Return what the layer makes of ``x``."""
        return nn.op.relu(self.fc(x))


module, _ = MLP().export_tvm({"forward": {"x": nn.spec.Tensor((1, 8), "float32")}})
executable = tvm.compile(module, target="llvm")
machine = relax.VirtualMachine(executable, tvm.cpu())
arguments = [np.ones(shape, "float32") for shape in ((1, 8), (4, 8), (4,))]
result = machine["forward"](*(tvm.runtime.tensor(each) for each in arguments))
print(result.numpy().tolist())
