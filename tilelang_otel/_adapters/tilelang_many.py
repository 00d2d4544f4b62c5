"""Many kernels at once: ``par_compile`` and the autotuner.

Each is one root, with a child for each configuration, whichever thread compiles
it; a configuration that fails, in whatever way, says why on its own span.
"""

from __future__ import annotations

import concurrent
import functools
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from opentelemetry import context as otel_context

from tilelang_otel import semconv
from tilelang_otel._adapters._describe import kernel_attributes
from tilelang_otel._adapters._patches import Patches
from tilelang_otel._adapters._tally import (
    CONFIGURATION_KEY,
    Tally,
    configuration,
    count,
    counted,
    tallied,
)
from tilelang_otel._adapters._threads import TracedConcurrent, TracedThreading
from tilelang_otel._frames import Failure
from tilelang_otel._guard import guard
from tilelang_otel._recorder import Recorder
from tilelang_otel._scopes import CompileScope, Describe, Work
from tilelang_otel._scrub import clean_name, describe_failure

__all__ = ["TileLangMany"]

_THREAD_USERS = ("tilelang.jit", "tilelang.autotuner.tuner")
"""Modules that make executors and threads, through names of their own."""


class _Local(threading.local):
    elaborating: Work | None = None


class TileLangMany:
    """Wraps ``par_compile``, the autotuner's ``run``, and the executors of both.

    Args:
        recorder: Who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._patches = Patches()
        self._thread = _Local()

    def put_on(self) -> None:
        """Wrap; raises on a TileLang that cannot be imported."""
        importlib.import_module("tilelang")
        jit = sys.modules.get("tilelang.jit")
        tuner = sys.modules.get("tilelang.autotuner.tuner")
        self._patches.wrap(jit, "par_compile", self._par_compile, "tilelang")
        self._patches.wrap(getattr(jit, "JITImpl", None), "par_compile", self._par_compile)
        auto_tuner = getattr(tuner, "AutoTuner", None)
        self._patches.wrap(auto_tuner, "run", self._autotune)
        self._patches.wrap(auto_tuner, "_default_compile", self._compile_one)
        self._patches.wrap(auto_tuner, "_default_elaborate", self._elaborate)
        self._patches.wrap(auto_tuner, "_benchmark_target", self._benchmark)
        self._patches.wrap(auto_tuner, "_load_result_from_disk", self._load_result)
        compile_args = getattr(sys.modules.get("tilelang.autotuner.param"), "CompileArgs", None)
        self._patches.wrap(compile_args, "compile_program", self._elaborated)
        self._patches.wrap(tuner, "compile_grouped_unit_tvm_ffi", self._grouped)
        for name in _THREAD_USERS:
            module = sys.modules.get(name)
            if getattr(module, "concurrent", None) is concurrent:
                self._patches.put(module, "concurrent", TracedConcurrent(concurrent))
            if getattr(module, "threading", None) is threading:
                self._patches.put(module, "threading", TracedThreading(threading))

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
            name = _name_of(getattr(instance, "fn", None))
            if name is None:
                return semconv.SPAN_AUTOTUNE, {}
            return f"{semconv.SPAN_AUTOTUNE} {name}", {semconv.TILELANG_KERNEL_NAME: name}

        return self._fan_out(semconv.SPAN_AUTOTUNE, describe, lambda: wrapped(*args, **kwargs))

    def _fan_out(self, kind: str, describe: Describe, call: Callable[[], Any]) -> Any:
        """Run ``call``, and count the kernels that it compiles."""
        with self._recorder.compile_scope(describe, kind=kind, fans_out=True) as scope:
            if not scope.is_outermost:
                return call()
            with tallied() as tally:
                error: BaseException | None = None
                try:
                    return call()
                except BaseException as raised:
                    error = raised
                    raise
                finally:
                    with guard:
                        _tell(scope, tally, error, kind)

    def _compile_one(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        """One configuration of the tuner's, of a program that no ``jit`` wraps."""
        # The kernel's own name is only known when its program has been elaborated.
        name = _name_of(getattr(instance, "fn", None))
        span_name = semconv.SPAN_COMPILE if name is None else f"{semconv.SPAN_COMPILE} {name}"
        with (
            self._recorder.compile_scope(lambda: (span_name, configuration())) as scope,
            counted(scope),
        ):
            work = self._recorder.work(lambda: (semconv.SPAN_ELABORATE, {}))
            outer, self._thread.elaborating = self._thread.elaborating, work.__enter__()
            try:
                return wrapped(*args, **kwargs)
            except BaseException as error:
                self._end_elaboration(error)
                raise
            finally:
                self._end_elaboration(None)
                self._thread.elaborating = outer

    def _elaborated(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        self._end_elaboration(None)
        return wrapped(*args, **kwargs)

    def _end_elaboration(self, error: BaseException | None) -> None:
        work, self._thread.elaborating = self._thread.elaborating, None
        if work is not None:
            work.end(error)

    def _elaborate(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_ELABORATE, configuration())):
            return wrapped(*args, **kwargs)

    def _benchmark(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        kernel = args[0] if args else kwargs.get("jit_kernel")

        def describe() -> tuple[str, dict[str, Any]]:
            attributes = kernel_attributes(getattr(kernel, "prim_func", None))
            name = attributes.get(semconv.TILELANG_KERNEL_NAME)
            return (
                semconv.SPAN_BENCHMARK if name is None else f"{semconv.SPAN_BENCHMARK} {name}",
                attributes,
            )

        with self._recorder.compile_scope(describe, kind=semconv.SPAN_BENCHMARK):
            return wrapped(*args, **kwargs)

    def _load_result(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_CACHE_LOAD, {})):
            result = wrapped(*args, **kwargs)
        self._recorder.annotate(semconv.TILELANG_CACHE_RESULT, "miss" if result is None else "disk")
        return result

    def _grouped(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        """One unit of a grouped compile: several configurations, one device compile."""
        with self._recorder.compile_scope(lambda: (semconv.SPAN_COMPILE, {})) as scope:
            with guard:
                args, kwargs = self._with_elaborations(args, kwargs)
            results = wrapped(*args, **kwargs)
            with guard:
                # (index, configuration, kernel or None, error or None)
                errors = [result[3] for result in results]
                for error in errors:
                    count(scope, error)
                if errors and all(error is not None for error in errors):
                    scope.set_outcome(errors[-1])
                _name_unit(scope, [result[2] for result in results])
            return results

    def _with_elaborations(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Have each configuration's elaboration tell which it is: it may fail alone."""
        # compile_grouped_unit_tvm_ffi(unit_items, compile_args, elaborate_func)
        items = args[0] if args else kwargs["unit_items"]
        original = args[2] if len(args) > 2 else kwargs["elaborate_func"]
        indices = iter([index for index, _ in items])

        @functools.wraps(original)
        def elaborate(*given: Any, **config: Any) -> Any:
            context = otel_context.set_value(CONFIGURATION_KEY, next(indices, None))
            token = otel_context.attach(context)
            try:
                return original(*given, **config)
            finally:
                otel_context.detach(token)

        if len(args) > 2:
            return (*args[:2], elaborate, *args[3:]), kwargs
        return args, {**kwargs, "elaborate_func": elaborate}


def _name_of(function: Any) -> str | None:
    name = getattr(function, "__name__", None)
    return None if name is None else clean_name(str(name))


def _name_unit(scope: CompileScope, kernels: list[Any]) -> None:
    """Name a unit after its kernels, if they are all one program's."""
    names = {
        kernel_attributes(kernel.prim_func).get(semconv.TILELANG_KERNEL_NAME)
        for kernel in kernels
        if kernel is not None
    }
    name = names.pop() if len(names) == 1 else None
    if name is not None and scope.record is not None:
        scope.record.rename(f"{semconv.SPAN_COMPILE} {name}")
        scope.set_attribute(semconv.TILELANG_KERNEL_NAME, name)


def _tell(scope: CompileScope, tally: Tally, error: BaseException | None, kind: str) -> None:
    scope.set_attribute(semconv.TILELANG_COMPILED_COUNT, tally.compiled)
    scope.set_attribute(semconv.TILELANG_FAILED_COUNT, tally.failed)
    if kind == semconv.SPAN_AUTOTUNE:
        _tell_tuner_cache(scope, tally, error)
    if tally.compiled and (error is None or isinstance(error, Exception)):
        scope.set_outcome(None)
    elif tally.failed:
        failure = describe_failure(error or tally.last_error)
        # The span of the kernel carries the exception: once is enough.
        scope.set_outcome(Failure(failure.type, failure.message, origin=tally.last_name))


def _tell_tuner_cache(scope: CompileScope, tally: Tally, error: BaseException | None) -> None:
    """Say what the tuner's own cache answered, where it did not go to the disk."""
    if scope.record is None or semconv.TILELANG_CACHE_RESULT in (scope.record.attributes or {}):
        return
    if tally.compiled or tally.failed:
        scope.set_attribute(semconv.TILELANG_CACHE_RESULT, "disabled")
    elif error is None:
        scope.set_attribute(semconv.TILELANG_CACHE_RESULT, "memory")
