"""Host code that is compiled late: when a library is exported, or at a first launch.

A module that holds C source, or objects to be linked, becomes runnable when it
is first launched: a C++ compiler runs then, in whatever request happens to
launch it. It is a compile of its own, in the trace of that request.
"""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tilelang_otel import semconv
from tilelang_otel._adapters._patches import Patches
from tilelang_otel._guard import guard
from tilelang_otel._recorder import Recorder

__all__ = ["TVMExport", "name_executable"]


class _Thread(threading.local):
    launch: tuple[Any, ExitStack] | None = None
    """The executable that is being made runnable, and what ends its span."""


class TVMExport:
    """Wraps ``Executable.jit`` and ``export_library`` of ``tvm.runtime``.

    Args:
        recorder: Who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._patches = Patches()
        self._thread = _Thread()

    def put_on(self) -> None:
        """Wrap; raises on a TVM that cannot be imported."""
        runtime: Any = importlib.import_module("tvm.runtime")
        self._patches.wrap(getattr(runtime, "Executable", None), "jit", self._jit)
        self._patches.wrap(getattr(runtime, "Module", None), "export_library", self._export)

    def take_off(self) -> None:
        """Restore everything."""
        self._patches.take_off()

    def _jit(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        # Called at every launch; only one of them exports.
        if getattr(instance, "_jitted_mod", None) is not None:
            return wrapped(*args, **kwargs)
        outer = self._thread.launch
        with ExitStack() as stack:
            self._thread.launch = (instance, stack)
            try:
                return wrapped(*args, **kwargs)
            finally:
                self._thread.launch = outer

    def _export(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        launch = self._thread.launch
        with guard:
            if launch is not None and self._recorder.current() is None:
                executable, stack = launch
                stack.enter_context(self._recorder.compile_scope(lambda: _launch_of(executable)))
        with self._recorder.compile_scope(
            lambda: (semconv.SPAN_EXPORT, {}), kind=semconv.SPAN_EXPORT
        ):
            return wrapped(*args, **kwargs)


_kernels: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def name_executable(executable: Any, attributes: dict[str, Any]) -> None:
    """Tell which kernel an executable is for, in case it is compiled late.

    Args:
        executable: What will be launched.
        attributes: What its span is to say about the kernel.
    """
    _kernels[executable] = attributes


def _launch_of(executable: Any) -> tuple[str, dict[str, Any]]:
    attributes = dict(_kernels.get(executable, {}))
    name = attributes.get(semconv.TILELANG_KERNEL_NAME)
    attributes[semconv.TILELANG_STAGE] = "first-launch"
    return semconv.SPAN_COMPILE if name is None else f"{semconv.SPAN_COMPILE} {name}", attributes
