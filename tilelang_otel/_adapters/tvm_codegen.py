"""What TVM does beside passes: generating code and linking it.

Of a small model's compile this is more than four fifths of the time.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from tilelang_otel import semconv
from tilelang_otel._adapters._describe import function_name, target_attributes
from tilelang_otel._adapters._patches import Patches
from tilelang_otel._recorder import Recorder

__all__ = ["TVMCodegen"]


class TVMCodegen:
    """Wraps code generation per target, for the virtual machine, and linking.

    Args:
        recorder: Who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._patches = Patches()

    def put_on(self) -> None:
        """Wrap; raises on a TVM that cannot be imported."""
        importlib.import_module("tvm")
        self._patches.wrap("tvm.tirx.build", "codegen_build", self._generate)
        build = sys.modules.get("tvm.relax.vm_build")
        if build is not None:
            self._patches.wrap(build, "_vmcodegen", self._generate_vm)
            self._patches.wrap(getattr(build, "_ffi_api", None), "VMLink", self._link)

    def take_off(self) -> None:
        """Restore everything."""
        self._patches.take_off()

    def _generate(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        mod = args[0] if args else kwargs.get("mod")
        target = args[1] if len(args) > 1 else kwargs.get("target")

        def describe() -> tuple[str, dict[str, Any]]:
            attributes = target_attributes(target)
            kind = attributes.get(semconv.TVM_TARGET_KIND, "")
            attributes[semconv.TILELANG_CODEGEN_NAME] = f"target.build.{kind}"
            name = function_name(mod)
            if name is not None:
                attributes[semconv.TILELANG_KERNEL_NAME] = name
            return f"{semconv.SPAN_CODEGEN} {kind}".rstrip(), attributes

        with self._recorder.work(describe):
            return wrapped(*args, **kwargs)

    def _generate_vm(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        mode = args[2] if len(args) > 2 else kwargs.get("exec_mode", "bytecode")
        function = "relax.VMTIRCodeGen" if mode == "compiled" else "relax.VMCodeGen"
        attributes = {semconv.TILELANG_CODEGEN_NAME: function}
        with self._recorder.work(lambda: (f"{semconv.SPAN_CODEGEN} vm", attributes)):
            return wrapped(*args, **kwargs)

    def _link(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_LINK, {})):
            return wrapped(*args, **kwargs)
