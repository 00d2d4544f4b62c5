"""What the adapters wrap in TileLang is there, and is looked up when it is called."""

from __future__ import annotations

import concurrent.futures
import importlib
import inspect
import subprocess
import threading
from typing import Any

import pytest

from tests.support.require import require_tilelang

require_tilelang()

importlib.import_module("tilelang")

_WRAPPED = (
    ("tilelang.cache", "cached"),
    ("tilelang.engine.lower", "lower"),
    ("tilelang.jit", "compile"),
    ("tilelang.jit", "par_compile"),
    ("tilelang.jit", "JITImpl.compile"),
    ("tilelang.jit", "JITImpl.get_tir"),
    ("tilelang.jit", "JITImpl.par_compile"),
    ("tilelang.jit.kernel", "JITKernel._compile_and_create_adapter"),
    ("tilelang.jit.kernel", "JITKernel._create_adapter_from_artifact"),
    ("tilelang.jit.kernel", "JITKernel._create_adapter_from_database"),
    ("tilelang.jit.adapter.libgen", "LibraryGenerator.load_lib"),
    ("tilelang.jit.adapter", "TVMFFIKernelAdapter._make_executable"),
    ("tilelang.cache.kernel_cache", "KernelCache._generate_key"),
    ("tilelang.cache.kernel_cache", "KernelCache._load_kernel_from_disk"),
    ("tilelang.cache.kernel_cache", "KernelCache._save_kernel_to_disk"),
    ("tilelang.cache.cuda_binary_cache", "CUDABinaryCache.load"),
    ("tilelang.autotuner.tuner", "AutoTuner.run"),
    ("tilelang.autotuner.tuner", "compile_grouped_unit_tvm_ffi"),
    ("tilelang.instrumentation.session", "register_pass_instrumentation_tool"),
    ("tilelang.instrumentation.session", "unregister_pass_instrumentation_tool"),
    ("tilelang.instrumentation.session", "current_pass_instrument_context"),
    ("tvm.runtime", "Executable.jit"),
    ("tvm.runtime", "Module.export_library"),
    ("tvm.runtime", "load_module"),
    ("tvm.ir.transform", "PassContext.__init__"),
    ("tvm.ir.transform", "Pass.__call__"),
)


def _find(module: str, path: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(("module", "path"), _WRAPPED)
def test_wrapped_name_is_a_callable_of_tilelang(module: str, path: str) -> None:
    """An adapter that wraps a name that is gone would be silent."""
    assert callable(_find(module, path))


@pytest.mark.parametrize(
    ("module", "name", "copies"),
    [
        ("tilelang.cache", "cached", ["tilelang.jit"]),
        ("tilelang.engine.lower", "lower", ["tilelang.engine", "tilelang"]),
        ("tilelang.jit", "par_compile", ["tilelang"]),
    ],
)
def test_copies_of_wrapped_function_are_the_function(
    module: str, name: str, copies: list[str]
) -> None:
    """What TileLang imports by name from one module into another is wrapped in both."""
    original = _find(module, name)
    for copy in copies:
        assert _find(copy, name) is original


@pytest.mark.parametrize(
    "name",
    ["tilelang.contrib.nvcc", "tilelang.contrib.hipcc", "tilelang.jit.adapter.libgen"],
)
def test_module_that_starts_a_compiler_does_so_by_its_own_name(name: str) -> None:
    """A module's ``subprocess`` is the real one, so that only its own can be replaced."""
    assert importlib.import_module(name).subprocess is subprocess


@pytest.mark.parametrize("name", ["tilelang.jit", "tilelang.autotuner.tuner"])
def test_module_that_makes_executors_does_so_by_its_own_name(name: str) -> None:
    """Executors come from ``concurrent.futures``, looked up when they are made."""
    module = importlib.import_module(name)
    assert module.concurrent.futures is concurrent.futures


def test_tuner_makes_threads_by_its_own_name() -> None:
    """The tuner's threads come from its own ``threading``."""
    assert importlib.import_module("tilelang.autotuner.tuner").threading is threading


def test_cached_takes_function_and_target_by_name() -> None:
    """The function is the first argument of ``cached``, and the target has that name."""
    parameters = list(inspect.signature(_find("tilelang.cache", "cached")).parameters)
    assert parameters[0] == "func"
    assert "target" in parameters


def test_grouped_compile_takes_items_arguments_and_elaboration() -> None:
    """A grouped unit gets its configurations first, and what elaborates them third."""
    function = _find("tilelang.autotuner.tuner", "compile_grouped_unit_tvm_ffi")
    assert list(inspect.signature(function).parameters) == [
        "unit_items",
        "compile_args",
        "elaborate_func",
    ]


def test_event_api_has_the_names_and_parameters_of_ours() -> None:
    """Our event API is TileLang's: same names, same parameters, same attributes."""
    theirs = importlib.import_module("tilelang.instrumentation.events")
    ours = importlib.import_module("tilelang_otel.events")
    assert sorted(theirs.__all__) == sorted(ours.__all__)
    for name in ("PassEvent", "IncompletePass", "pass_phase"):
        expected = list(inspect.signature(getattr(theirs, name)).parameters)
        assert list(inspect.signature(getattr(ours, name)).parameters) == expected
    expected = list(inspect.signature(theirs.StackedPassInstrument.__init__).parameters)
    assert list(inspect.signature(ours.StackedPassInstrument.__init__).parameters) == expected
    for name in vars(theirs.PassEventObserver):
        if not name.startswith("_"):
            expected = list(inspect.signature(getattr(theirs.PassEventObserver, name)).parameters)
            found = list(inspect.signature(getattr(ours.PassEventObserver, name)).parameters)
            assert found == expected
