"""Many kernels at once: ``par_compile`` and the autotuner.

Their threads know nothing of who asked, so a compile in one of them would
start a trace of its own. The executors that they make carry the trace along,
and nothing else: TileLang keeps state in context variables of its own, which
must stay as they would be without us.
"""

from __future__ import annotations

import concurrent.futures
import functools
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import wrapt
from opentelemetry import context as otel_context

from tilelang_otel import semconv
from tilelang_otel._adapters._patches import Patches
from tilelang_otel._adapters._tally import Tally, count, tallied
from tilelang_otel._frames import Failure
from tilelang_otel._guard import guard
from tilelang_otel._recorder import CompileScope, Describe, Recorder
from tilelang_otel._scrub import clean_name, describe_failure

__all__ = ["TileLangMany"]

_THREAD_USERS = ("tilelang.jit", "tilelang.autotuner.tuner")
"""Modules that make executors and threads, through names of their own."""


class TileLangMany:
    """Wraps ``par_compile``, the autotuner's ``run``, and the executors of both.

    Args:
        recorder: Who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._patches = Patches()

    def put_on(self) -> None:
        """Wrap; raises on a TileLang that cannot be imported."""
        importlib.import_module("tilelang")
        jit = sys.modules.get("tilelang.jit")
        tuner = sys.modules.get("tilelang.autotuner.tuner")
        self._patches.wrap(jit, "par_compile", self._par_compile, "tilelang")
        self._patches.wrap(getattr(jit, "JITImpl", None), "par_compile", self._par_compile)
        self._patches.wrap(getattr(tuner, "AutoTuner", None), "run", self._autotune)
        self._patches.wrap(tuner, "compile_grouped_unit_tvm_ffi", self._grouped)
        for name in _THREAD_USERS:
            module = sys.modules.get(name)
            if getattr(module, "concurrent", None) is concurrent:
                self._patches.put(module, "concurrent", _Concurrent(concurrent))
            if getattr(module, "threading", None) is threading:
                self._patches.put(module, "threading", _Threading(threading))

    def take_off(self) -> None:
        """Restore everything."""
        self._patches.take_off()

    def _par_compile(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        return self._fan_out(
            semconv.SPAN_PAR_COMPILE,
            lambda: (semconv.SPAN_PAR_COMPILE, {}),
            lambda: wrapped(*args, **kwargs),
        )

    def _autotune(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        def describe() -> tuple[str, dict[str, Any]]:
            name = getattr(getattr(instance, "fn", None), "__name__", None)
            if name is None:
                return semconv.SPAN_AUTOTUNE, {}
            name = clean_name(str(name))
            return f"{semconv.SPAN_AUTOTUNE} {name}", {semconv.TILELANG_KERNEL_NAME: name}

        return self._fan_out(semconv.SPAN_AUTOTUNE, describe, lambda: wrapped(*args, **kwargs))

    def _fan_out(self, kind: str, describe: Describe, call: Callable[[], Any]) -> Any:
        """Run ``call``; its span is an error only if not one kernel was got."""
        with self._recorder.compile_scope(describe, kind=kind, fans_out=True) as scope:
            if not scope.is_outermost:
                return call()
            with tallied() as tally:
                error: Exception | None = None
                try:
                    return call()
                except Exception as raised:
                    error = raised
                    raise
                finally:
                    with guard:
                        _tell(scope, tally, error)

    def _grouped(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        """One unit of a grouped compile: several configurations, one device compile."""
        with self._recorder.compile_scope(lambda: (semconv.SPAN_COMPILE, {})) as scope:
            results = wrapped(*args, **kwargs)
            with guard:
                # (index, configuration, kernel or None, error or None)
                errors = [result[3] for result in results]
                for error in errors:
                    count(scope, error)
                if errors and all(error is not None for error in errors):
                    scope.set_outcome(errors[-1])
            return results


def _tell(scope: CompileScope, tally: Tally, error: Exception | None) -> None:
    scope.set_attribute(semconv.TILELANG_COMPILED_COUNT, tally.compiled)
    scope.set_attribute(semconv.TILELANG_FAILED_COUNT, tally.failed)
    if tally.compiled:
        scope.set_outcome(None)
    elif tally.failed:
        failure = describe_failure(error or tally.last_error)
        # The span of the kernel carries the exception: once is enough.
        scope.set_outcome(Failure(failure.type, failure.message, origin=tally.last_name))


class _Executor(concurrent.futures.ThreadPoolExecutor):
    """A thread pool whose tasks run in the trace of whoever submitted them."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(_in_trace(fn), *args, **kwargs)


class _Thread(threading.Thread):
    """A thread that runs in the trace of whoever made it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if callable(kwargs.get("target")):
            kwargs["target"] = _in_trace(kwargs["target"])
        super().__init__(*args, **kwargs)


class _Threading(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument,reportUntypedBaseClass]
    Thread = _Thread


class _Futures(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument,reportUntypedBaseClass]
    ThreadPoolExecutor = _Executor


class _Concurrent(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument,reportUntypedBaseClass]
    futures = _Futures(concurrent.futures)


def _in_trace(function: Callable[..., Any]) -> Callable[..., Any]:
    context = otel_context.get_current()

    @functools.wraps(function)
    def in_trace(*args: Any, **kwargs: Any) -> Any:
        token = otel_context.attach(context)
        try:
            return function(*args, **kwargs)
        finally:
            otel_context.detach(token)

    return in_trace
