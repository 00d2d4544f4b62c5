"""What TileLang tells a tool about a compile, and what it does with one that fails."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.require import require_tilelang

require_tilelang()

tilelang: Any = importlib.import_module("tilelang")
T: Any = importlib.import_module("tilelang.language")
session: Any = importlib.import_module("tilelang.instrumentation.session")

_TARGET = {"kind": "cuda", "arch": "sm_80"}


class _Tool:
    """Notes what TileLang calls; a tool by shape, without TileLang's base class."""

    pass_instrument_priority = 0

    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen

    def create_pass_instrument(self) -> None:
        self._seen.append(("context", session.current_pass_instrument_context()))

    def pipeline_scope(self, base_phase: str) -> Any:
        self._seen.append(("phase", base_phase))
        return importlib.import_module("contextlib").nullcontext()

    def run_codegen(self, event: Any, next_call: Callable[[], Any]) -> Any:
        self._seen.append(("codegen", event.name, event.target.kind.name))
        return next_call()

    def finish(self, error: BaseException | None) -> None:
        self._seen.append(("finish", error))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What a tool sees of the compiles in a test, with the kernel cache switched off."""
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")
    notes: list[Any] = []
    session.register_pass_instrumentation_tool("contract", lambda: _Tool(notes))
    yield notes
    session.unregister_pass_instrumentation_tool("contract")


def _add(length: int) -> Any:
    @T.prim_func
    def add(
        A: T.Tensor((length,), "float32"),  # pyright: ignore[reportInvalidTypeForm]
        B: T.Tensor((length,), "float32"),  # pyright: ignore[reportInvalidTypeForm]
    ):
        with T.Kernel(1):
            for i in T.serial(length):
                B[i] = A[i] + 1.0

    return add


def test_session_of_a_cpu_compile_names_its_stage_and_its_code_generator(seen: list[Any]) -> None:
    """The stage, the kernel and the backend are text; the code generator has its full name."""
    tilelang.compile(_add(64), target="c")
    contexts = [note[1] for note in seen if note[0] == "context"]
    assert contexts == ["stage=jit-lower, kernel=add, backend=cython"]
    assert [note[1:] for note in seen if note[0] == "codegen"] == [("target.build.tilelang_c", "c")]
    assert ("phase", "pipeline_c") in seen
    assert seen[-1] == ("finish", None)


def test_session_of_lower_has_no_metadata(seen: list[Any]) -> None:
    """``tilelang.lower`` says nothing of its context: the kernel's name has to come from it."""
    target = importlib.import_module("tvm.target").Target
    with target(_TARGET):
        tilelang.lower(_add(128), target=_TARGET)
    assert [note[1] for note in seen if note[0] == "context"] == [None]
    assert [note[1] for note in seen if note[0] == "codegen"] == [
        "target.build.tilelang_cuda_without_compile"
    ]


def test_exception_of_a_tool_escapes_the_compile() -> None:
    """Tools run unguarded: one that raises fails the user's compile, so ours may not."""

    def broken() -> Any:
        raise LookupError("a tool's own")

    session.register_pass_instrumentation_tool("contract", broken)
    try:
        with pytest.raises(LookupError, match="a tool's own"):
            tilelang.compile(_add(96), target="c")
    finally:
        session.unregister_pass_instrumentation_tool("contract")


def test_pass_info_is_the_same_object_in_both_callbacks() -> None:
    """A pass's two callbacks are about one ``PassInfo``, called from one Python frame."""
    import sys

    transform: Any = importlib.import_module("tvm.ir.transform")
    ffi: Any = importlib.import_module("tvm.ir._ffi_instrument_api")
    base: Any = importlib.import_module("tvm.ir.instrument").PassInstrument
    open_passes: list[tuple[Any, Any]] = []
    pairs: list[tuple[bool, bool]] = []

    class Watch(base):
        __slots__ = ("__dict__",)

        def __init__(self, before: Any, after: Any) -> None:
            self.__init_handle_by_constructor__(
                ffi.PassInstrument, "watch", None, None, None, before, after
            )

    def before(mod: Any, info: Any) -> None:
        open_passes.append((info, sys._getframe(1)))

    def after(mod: Any, info: Any) -> None:
        opened, caller = open_passes.pop()
        pairs.append((info.same_as(opened), sys._getframe(1) is caller))

    module = importlib.import_module("tvm").IRModule({})
    simplify: Any = importlib.import_module("tvm.tirx").transform.RemoveNoOp()
    with transform.PassContext(instruments=[Watch(before, after)]):
        transform.Sequential([simplify, transform.Sequential([simplify])])(module)
    assert pairs == [(True, True)] * 4
