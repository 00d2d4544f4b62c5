"""TileLang's compile entry points: one span for each kernel that is asked for.

``@tilelang.jit`` functions call ``tilelang.compile``, and that asks the cache.
The outermost is the compile; a call that a function answers from its own
memory reaches none of them, and has no span. How the cache answered is told by
the steps it went through.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from tilelang_otel import semconv
from tilelang_otel._adapters._compile_times import CompileTimes
from tilelang_otel._adapters._describe import kernel_attributes, shapes_of, target_attributes
from tilelang_otel._adapters._patches import Patches
from tilelang_otel._adapters._tally import configuration, counted
from tilelang_otel._guard import guard
from tilelang_otel._recorder import Recorder
from tilelang_otel._scopes import CompileScope, Describe

__all__ = ["TileLangCompile"]


class _Lookup:
    """What became of one look-up in the kernel cache."""

    key: str | None = None
    was_loaded: bool = False
    was_compiled: bool = False

    def result(self) -> str | None:
        if self.key is None:
            return "disabled" if self.was_compiled else None
        if self.was_compiled:
            return "miss"
        return "disk" if self.was_loaded else "memory"


class _Thread(threading.local):
    lookup: _Lookup | None = None


class TileLangCompile:
    """Wraps ``compile``, ``cached``, ``lower``, jitted functions and the kernel cache.

    Args:
        recorder: Who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._patches = Patches()
        self._thread = _Thread()
        self._times = CompileTimes()

    def put_on(self) -> None:
        """Wrap; raises on a TileLang that cannot be imported."""
        importlib.import_module("tilelang")
        wrap = self._patches.wrap
        wrap("tilelang.cache", "cached", self._cached, "tilelang.jit", "tilelang")
        wrap("tilelang.engine.lower", "lower", self._lower, "tilelang.engine", "tilelang")
        jit = sys.modules.get("tilelang.jit")
        wrap(getattr(jit, "JITImpl", None), "compile", self._jit_compile)
        wrap(getattr(jit, "JITImpl", None), "get_tir", self._elaborate)
        kernel = getattr(sys.modules.get("tilelang.jit.kernel"), "JITKernel", None)
        wrap(kernel, "_compile_and_create_adapter", self._compile)
        for cache in self._cache_classes():
            if "_generate_key" in vars(cache):
                wrap(cache, "_generate_key", self._generate_key)
            if "_load_kernel_from_disk" in vars(cache):
                wrap(cache, "_load_kernel_from_disk", self._load)
            if "_save_kernel_to_disk" in vars(cache):
                wrap(cache, "_save_kernel_to_disk", self._save)

    def take_off(self) -> None:
        """Restore everything."""
        self._patches.take_off()

    def _cache_classes(self) -> list[type]:
        base: type | None = getattr(
            sys.modules.get("tilelang.cache.kernel_cache"), "KernelCache", None
        )
        found: list[type] = []
        waiting = [] if base is None else [base]
        while waiting:
            cache = waiting.pop()
            found.append(cache)
            waiting.extend(cache.__subclasses__())
        return found

    # -- whole compiles ---------------------------------------------------------

    def _scope(self, describe: Describe, func: Any = None) -> CompileScope:
        shapes = None if func is None else functools.partial(shapes_of, func)
        return self._recorder.compile_scope(describe, shapes=shapes)

    def _cached(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        func = args[0] if args else kwargs.get("func")
        lookup, outer = _Lookup(), self._thread.lookup

        def describe() -> tuple[str, dict[str, Any]]:
            name, attributes = _compile_of(func, kwargs.get("target"))
            return name, {**attributes, **configuration()}

        with self._scope(describe, func) as scope, counted(scope):
            self._thread.lookup = lookup
            try:
                kernel = wrapped(*args, **kwargs)
            finally:
                self._thread.lookup = outer
                if not scope.is_muted:
                    self._tell(scope, lookup)
            if not scope.is_muted:
                self._tell_kernel(scope, kernel)
                self._times.finished(scope, lookup.key, lookup.was_compiled)
            return kernel

    def _tell(self, scope: CompileScope, lookup: _Lookup) -> None:
        with guard:
            result = lookup.result()
            if result is not None:
                scope.set_attribute(semconv.TILELANG_CACHE_RESULT, result)
            if lookup.key is not None:
                scope.set_attribute(semconv.TILELANG_CACHE_KEY, lookup.key)

    def _tell_kernel(self, scope: CompileScope, kernel: Any) -> None:
        with guard:
            backend = getattr(kernel, "execution_backend", None)
            if isinstance(backend, str):
                scope.set_attribute(semconv.TILELANG_EXECUTION_BACKEND, backend)
            for name, value in target_attributes(getattr(kernel, "target", "")).items():
                scope.set_attribute(name, value)

    def _lower(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        func = args[0] if args else kwargs.get("func_or_mod")
        target = args[1] if len(args) > 1 else kwargs.get("target")
        with (
            self._scope(lambda: _compile_of(func, target), func),
            self._recorder.work(lambda: (semconv.SPAN_LOWER, kernel_attributes(func))),
        ):
            self._name_passes(func)
            try:
                return wrapped(*args, **kwargs)
            finally:
                self._name_passes(None)

    def _name_passes(self, func: Any) -> None:
        with guard:
            recording = self._recorder.current()
            if recording is not None:
                name = kernel_attributes(func).get(semconv.TILELANG_KERNEL_NAME)
                recording.set_kernel_name(name)

    def _jit_compile(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        # The kernel's own name is only known when its program has been elaborated.
        name = getattr(getattr(instance, "func", None), "__name__", None)
        span_name = semconv.SPAN_COMPILE if name is None else f"{semconv.SPAN_COMPILE} {name}"
        with self._scope(lambda: (span_name, configuration())) as scope, counted(scope):
            return wrapped(*args, **kwargs)

    # -- the steps of one ---------------------------------------------------------

    def _elaborate(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_ELABORATE, {})):
            return wrapped(*args, **kwargs)

    def _generate_key(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_CACHE_KEY, {})):
            key = wrapped(*args, **kwargs)
        if self._thread.lookup is not None:
            self._thread.lookup.key = key
        return key

    def _load(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_CACHE_LOAD, {})):
            kernel = wrapped(*args, **kwargs)
        if self._thread.lookup is not None:
            self._thread.lookup.was_loaded = kernel is not None
        return kernel

    def _save(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_CACHE_SAVE, {})):
            return wrapped(*args, **kwargs)

    def _compile(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        func = args[0] if args else kwargs.get("tilelang_func")
        if self._thread.lookup is not None:
            self._thread.lookup.was_compiled = True
        target = getattr(instance, "target", None)
        with self._scope(lambda: _compile_of(func, target), func) as scope:
            self._tell_kernel(scope, instance)
            return wrapped(*args, **kwargs)


def _compile_of(func: Any, target: Any) -> tuple[str, dict[str, Any]]:
    attributes = kernel_attributes(func)
    # "auto" is a wish; what it resolves to is told when it is known.
    if target != "auto":
        attributes.update(target_attributes(target))
    name = attributes.get(semconv.TILELANG_KERNEL_NAME)
    if name is None:
        return semconv.SPAN_COMPILE, attributes
    return f"{semconv.SPAN_COMPILE} {name}", attributes
