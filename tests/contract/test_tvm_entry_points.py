"""What we assume of TVM's compile functions: where they are, and who looks them up when.

Each test stands for a wrapper: where it fails, that wrapper sees nothing any more.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.require import require_tvm
from tests.support.tvm_modules import mlp

require_tvm()

tvm: Any = importlib.import_module("tvm")
transform: Any = tvm.ir.transform


def _module(name: str) -> Any:
    return sys.modules[name]


def _spy(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, log: list[str]) -> None:
    """Write ``name`` into ``log`` whenever the attribute is looked up and called."""
    original: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        log.append(name)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(
    ("home", "name", "copies"),
    [
        ("tvm.driver.build_module", "compile", {"tvm", "tvm.driver"}),
        ("tvm.relax.vm_build", "build", {"tvm.relax"}),
        ("tvm.tirx.build", "build", {"tvm.tirx"}),
        ("tvm.tirx.build", "codegen_build", set[str]()),
        ("tvm.relax.vm_build", "_vmcodegen", set[str]()),
        ("tvm.tirx.compilation_pipeline", "get_tir_pipeline", {"tvm.tirx"}),
        ("tvm.tirx.compilation_pipeline", "get_default_tir_pipeline", {"tvm.tirx"}),
        ("tvm.relax._ffi_api", "VMLink", set[str]()),
    ],
)
def test_compile_function_is_reachable_under_these_names_only(
    home: str, name: str, copies: set[str]
) -> None:
    """A wrapper on each of them misses no caller."""
    function = getattr(_module(home), name)
    holders = {
        module_name
        for module_name, module in list(sys.modules.items())
        if module_name.split(".")[0] == "tvm" and getattr(module, name, None) is function
    }
    assert holders == {home, *copies}


def test_tirx_build_is_a_function_that_hides_its_module() -> None:
    """The module has to be taken from ``sys.modules``."""
    assert callable(tvm.tirx.build)
    assert tvm.tirx.build is _module("tvm.tirx.build").build


def test_compile_looks_up_every_step_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrapped after ``import tvm`` is called, each step in the one before it."""
    log: list[str] = []
    _spy(monkeypatch, tvm.relax, "build", log)
    _spy(monkeypatch, _module("tvm.relax.vm_build"), "_vmcodegen", log)
    _spy(monkeypatch, tvm.tirx, "build", log)
    _spy(monkeypatch, tvm.tirx, "get_tir_pipeline", log)
    _spy(monkeypatch, _module("tvm.tirx.build"), "codegen_build", log)
    _spy(monkeypatch, _module("tvm.relax._ffi_api"), "VMLink", log)
    tvm.compile(mlp(), target="llvm")
    assert log == ["build", "_vmcodegen", "build", "get_tir_pipeline", "codegen_build", "VMLink"]


def test_default_pipeline_is_looked_up_when_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage is told from the finalizers of this pipeline too."""
    log: list[str] = []
    _spy(monkeypatch, tvm.tirx, "get_default_tir_pipeline", log)
    tvm.compile(mlp(), target="llvm", tir_pipeline=None)
    assert log == ["get_default_tir_pipeline"]


def test_tir_pipeline_has_finalizers_for_host_and_device_in_this_order() -> None:
    """They are asked for when their stage begins: that tells the stage."""
    everything, host, device = tvm.tirx.get_tir_pipeline("default")
    assert isinstance(everything, transform.Pass)
    names = [[each.info.name for each in make().passes] for make in (host, device)]
    assert "tirx.LowerTVMBuiltin" in names[0]
    assert "tirx.LowerWarpMemory" in names[1]


def test_host_code_is_finalized_and_generated_after_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stages come in the order in which they are told."""
    log: list[str] = []
    build = _module("tvm.tirx.build")
    get = tvm.tirx.get_tir_pipeline

    def spied(name: str) -> Any:
        everything, host, device = get(name)

        def telling(stage: str, make: Callable[[], Any]) -> Callable[[], Any]:
            def make_and_tell() -> Any:
                log.append(stage)
                return make()

            return make_and_tell

        return everything, telling("host", host), telling("device", device)

    monkeypatch.setattr(tvm.tirx, "get_tir_pipeline", spied)
    _spy(monkeypatch, build, "split_host_device_mods", log)
    _spy(monkeypatch, build, "codegen_build", log)
    tvm.compile(mlp(), target="llvm")
    assert log == ["split_host_device_mods", "host", "codegen_build"]


def test_constant_folding_builds_with_the_function_that_was_registered() -> None:
    """C++ calls ``tirx.build`` past any wrapper, in the middle of a Relax pass."""
    registered = tvm.get_global_func("tirx.build")
    assert registered is not None
    calls: list[str] = []
    original = tvm.tirx.build
    try:
        tvm.tirx.build = lambda *args, **kwargs: calls.append("wrapper")
        tensor = tvm.runtime.tensor([1.0, 2.0])
        builder = tvm.relax.BlockBuilder()
        with builder.function("main", []):
            with builder.dataflow():
                constant = tvm.relax.const(tensor)
                out = builder.emit_output(builder.emit(tvm.relax.op.add(constant, constant)))
            builder.emit_func_output(out)
        names: list[str] = []
        with transform.PassContext(instruments=[_Journal(names)]), tvm.target.Target("llvm"):
            mod = tvm.relax.transform.LegalizeOps()(builder.get())
            tvm.relax.transform.FoldConstant()(mod)
    finally:
        tvm.tirx.build = original
    assert names.index("FoldConstant") < names.index("tirx.BindTarget")
    assert calls == []


class _Journal(tvm.ir.instrument.PassInstrument):
    """Writes down the passes that start."""

    def __init__(self, names: list[str]) -> None:
        api: Any = _module("tvm.ir._ffi_instrument_api")
        self.__init_handle_by_constructor__(
            api.PassInstrument,
            "journal",
            None,
            None,
            None,
            lambda mod, info: names.append(info.name),
            None,
        )
