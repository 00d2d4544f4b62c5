"""What happens inside a TileLang compile: its pass contexts, code generation, adapters.

TileLang tells a registered tool which stage a pass context is made for and
when code is generated. Tools run unguarded inside the compile, so nothing of
this one may raise but what the compile itself raises.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tilelang_otel import semconv
from tilelang_otel._adapters._context_log import Stage, announce
from tilelang_otel._adapters._describe import kernel_attributes, target_attributes
from tilelang_otel._adapters._patches import Patches, Wrapper
from tilelang_otel._adapters.tvm_export import name_executable
from tilelang_otel._guard import guard
from tilelang_otel._recorder import Recorder
from tilelang_otel._recording import Recording

__all__ = ["TOOL_NAME", "OTelInstrumentationTool", "TileLangStages", "current_stage"]

TOOL_NAME = "opentelemetry"
"""Under which the tool is registered with TileLang."""

_SPAN_NAMES = {
    "jit-lower": semconv.SPAN_LOWER,
    "grouped-lower": semconv.SPAN_LOWER,
    "grouped-host": semconv.SPAN_HOST,
    "grouped-device": semconv.SPAN_DEVICE,
}

_FIELD = re.compile(r"(\w+)=([^,\[\]]+)")


class OTelInstrumentationTool:
    """A ``PassInstrumentationTool`` of TileLang, by shape: it needs no base class.

    One sees one compile session.

    Args:
        recorder: Who records.
    """

    pass_instrument_priority = 0

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def create_pass_instrument(self) -> object | None:
        """Announce the stage of the pass context that is about to be entered.

        Returns:
            None: the instrument is in every pass context already.
        """
        with guard:
            stage = current_stage()
            if stage is not None:
                announce(stage)
        return None

    def pipeline_scope(self, base_phase: str) -> AbstractContextManager[None]:
        """Do nothing: TileLang sets the phase itself."""
        return nullcontext()

    def run_codegen(self, event: Any, next_call: Callable[[], Any]) -> Any:
        """Record one call of a code generator, and return what it returns."""
        with self._recorder.work(lambda: _codegen_of(event, self._recorder.current())):
            return next_call()

    def finish(self, error: BaseException | None) -> None:
        """Do nothing: the compile's own scope sees how it ends."""


class TileLangStages:
    """Registers the tool, and wraps what makes adapters and loads libraries.

    Args:
        recorder: Who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._patches = Patches()
        self._session: Any = None

    def put_on(self) -> None:
        """Register and wrap; raises on a TileLang that cannot be imported."""
        importlib.import_module("tilelang")
        kernel = getattr(sys.modules.get("tilelang.jit.kernel"), "JITKernel", None)
        for name in ("_create_adapter_from_artifact", "_create_adapter_from_database"):
            self._patches.wrap(kernel, name, self._adapt)
        adapter = getattr(sys.modules.get("tilelang.jit.adapter"), "TVMFFIKernelAdapter", None)
        self._patches.wrap(adapter, "_make_executable", self._make_executable)
        self._patches.wrap("tvm.runtime", "load_module", self._load)
        for module, owner, name, wrapper in (
            ("tilelang.jit.adapter.libgen", "LibraryGenerator", "load_lib", self._load),
            ("tilelang.jit.adapter.nvrtc.libgen", "NVRTCLibraryGenerator", "load_lib", self._load),
            (
                "tilelang.jit.adapter.cutedsl.libgen",
                "CuTeDSLLibraryGenerator",
                "load_lib",
                self._load,
            ),
            ("tilelang.cache.cuda_binary_cache", "CUDABinaryCache", "load", self._look_up),
            ("tilelang.cache.ascend_binary_cache", "AscendBinaryCache", "load", self._look_up),
        ):
            self._wrap_once_imported(module, owner, name, wrapper)
        session = sys.modules.get("tilelang.instrumentation.session")
        register = getattr(session, "register_pass_instrumentation_tool", None)
        if register is not None:
            # The tool outlives no session, so each gets its own.
            register(TOOL_NAME, lambda: OTelInstrumentationTool(self._recorder))
            self._session = session

    def take_off(self) -> None:
        """Restore everything."""
        self._patches.take_off()
        if self._session is not None:
            with guard:
                self._session.unregister_pass_instrumentation_tool(TOOL_NAME)

    def _wrap_once_imported(self, module: str, owner: str, name: str, wrapper: Wrapper) -> None:
        self._patches.when_imported(
            module,
            lambda imported: self._patches.wrap(getattr(imported, owner, None), name, wrapper),
        )

    def _adapt(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_ADAPTER, {})):
            return wrapped(*args, **kwargs)

    def _load(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_LOAD, {})):
            return wrapped(*args, **kwargs)

    def _look_up(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        """Tell whether a device binary was cached: then no device compiler runs."""
        binary = wrapped(*args, **kwargs)
        self._recorder.annotate(semconv.TILELANG_BINARY_CACHE_RESULT, _binary_cache_result(binary))
        return binary

    def _make_executable(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        executable = wrapped(*args, **kwargs)
        with guard:
            name_executable(executable, kernel_attributes(getattr(instance, "ir_module", None)))
        return executable


def current_stage() -> Stage | None:
    """Return what the pass context is for whose instruments TileLang is making.

    TileLang says it as text: ``stage=jit-lower, kernel=gemm, backend=tvm_ffi``.
    """
    session = sys.modules.get("tilelang.instrumentation.session")
    metadata = session.current_pass_instrument_context() if session else None
    if not metadata:
        return None
    fields = dict(_FIELD.findall(str(metadata)))
    stage = fields.get("stage", "").strip()
    attributes: dict[str, Any] = {}
    if stage:
        attributes[semconv.TILELANG_STAGE] = stage
    if fields.get("backend"):
        attributes[semconv.TILELANG_EXECUTION_BACKEND] = fields["backend"].strip()
    if fields.get("config", "").strip().isdigit():
        attributes[semconv.TILELANG_CONFIG_INDEX] = int(fields["config"])
    if fields.get("kernel"):
        attributes.update(kernel_attributes(fields["kernel"].strip()))
    return Stage(_SPAN_NAMES.get(stage, semconv.SPAN_LOWER), attributes)


def _binary_cache_result(binary: Any) -> str:
    if binary is not None:
        return "hit"
    env = getattr(sys.modules.get("tilelang.env"), "env", None)
    is_enabled = getattr(env, "is_cache_enabled", None)
    return "miss" if is_enabled is None or is_enabled() else "disabled"


def _kernel_around(recording: Recording | None) -> dict[str, Any]:
    """Return what the innermost span around says about the kernel; empty if nothing does."""
    record = None if recording is None else recording.current
    while record is not None:
        attributes = record.attributes or {}
        if semconv.TILELANG_KERNEL_NAME in attributes:
            names = (semconv.TILELANG_KERNEL_NAME, semconv.TILELANG_KERNEL_SYMBOL)
            return {name: attributes[name] for name in names if name in attributes}
        record = record.parent
    return {}


def _codegen_of(event: Any, recording: Recording | None) -> tuple[str, dict[str, Any]]:
    function = str(event.name)
    # The module's function is the kernel's device or host part, under a name of its own.
    attributes = _kernel_around(recording) or kernel_attributes(event.mod)
    attributes.update(target_attributes(event.target))
    attributes[semconv.TILELANG_CODEGEN_NAME] = function
    kind = function.rsplit(".", 1)[-1].removesuffix("_without_compile")
    return f"{semconv.SPAN_CODEGEN} {kind}", attributes
