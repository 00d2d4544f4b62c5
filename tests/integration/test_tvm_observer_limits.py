"""The observer in real pass contexts: memory, nesting, clocks, names, module text."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider, sampling

from tests.support.memory import resident_bytes
from tests.support.require import require_tvm
from tests.support.spans import SpanMemory, assert_sound, outline
from tests.support.tvm_modules import compile_mlp, empty_module, mlp, python_pass, raising

require_tvm()

import tvm  # noqa: E402
from tvm.ir import transform  # noqa: E402

from tilelang_otel import OTelPassObserver  # noqa: E402
from tilelang_otel.events import StackedPassInstrument  # noqa: E402


def _identity(name: str = "Id") -> Any:
    return python_pass(name, lambda mod: mod)


def _context(memory: SpanMemory) -> Any:
    observer = OTelPassObserver(memory.provider)
    return transform.PassContext(instruments=[StackedPassInstrument(observer)])


# -- memory ------------------------------------------------------------------------------


class _Heavy(OTelPassObserver):
    """An observer that somebody put four megabytes into."""

    payload = b""


def test_five_compiles_leave_nothing_alive(memory: SpanMemory) -> None:
    """Instruments, observers and modules die with the compile that used them."""
    finalized: list[str] = []

    def compile_() -> None:
        observer = _Heavy(memory.provider)
        observer.payload = bytes(4 << 20)
        instrument = StackedPassInstrument(observer)
        mod = tvm.IRModule({})
        for name, value in (("observer", observer), ("instrument", instrument)):
            weakref.finalize(value, finalized.append, name)
        with transform.PassContext(instruments=[instrument]):
            python_pass("Outer", _identity())(mod)
        context = transform.PassContext(instruments=[instrument])
        with pytest.raises(ValueError, match="boom"), context:
            raising("Boom", lambda: ValueError("boom"))(mod)

    for _ in range(5):
        compile_()
        gc.collect()
    assert sorted(finalized) == ["instrument"] * 5 + ["observer"] * 5


def test_instrument_that_is_never_used_dies_too() -> None:
    """TVM holds its callbacks, and those hold nothing that leads back."""
    instrument = StackedPassInstrument(OTelPassObserver())
    context = transform.PassContext(instruments=[instrument])
    alive = [weakref.ref(instrument), weakref.ref(instrument.observer)]
    del instrument, context
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_modules_and_exceptions_die_with_the_compile() -> None:
    """What a pass was given and what it raised is not ours to keep."""

    class Mark:
        pass

    marks: list[weakref.ref[Mark]] = []

    def fail(mod: Any) -> Any:
        mark = Mark()
        marks.append(weakref.ref(mark))
        error = ValueError("boom")
        error.args = ("boom", mark)
        raise error

    instrument = StackedPassInstrument(OTelPassObserver(TracerProvider(shutdown_on_exit=False)))

    def compile_() -> None:
        with transform.PassContext(instruments=[instrument]):
            python_pass("Boom", fail)(tvm.IRModule({}))

    for _ in range(3):
        with pytest.raises(ValueError, match="boom"):
            compile_()
    gc.collect()
    assert [mark() for mark in marks] == [None, None, None]


@pytest.mark.parametrize("sampler", [sampling.ALWAYS_ON, sampling.ALWAYS_OFF])
def test_memory_stays_flat_over_a_thousand_contexts(sampler: sampling.Sampler) -> None:
    """A pod that compiles all day does not grow: its provider drops the spans here."""
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    inner = _identity()
    outer = transform.Sequential([inner, python_pass("Outer", inner)], name="Seq")
    mod = empty_module()

    def compile_(times: int) -> None:
        for _ in range(times):
            instrument = StackedPassInstrument(OTelPassObserver(provider))
            with transform.PassContext(instruments=[instrument]):
                outer(mod)

    compile_(500)
    gc.collect()
    before_bytes, objects = resident_bytes(), len(gc.get_objects())
    compile_(1000)
    gc.collect()
    assert len(gc.get_objects()) - objects < 500
    assert resident_bytes() - before_bytes < 4 << 20


# -- nesting ---------------------------------------------------------------------------------


def _nest(levels: int, mod: Any) -> Any:
    if levels == 0:
        return mod
    return python_pass(f"P{levels}", lambda inner: _nest(levels - 1, inner))(mod)


def test_python_passes_nest_140_deep(memory: SpanMemory) -> None:
    """TVM alone manages 150; our callbacks leave it nearly all of that."""
    with _context(memory):
        _nest(140, empty_module())
    lines = outline(memory.spans)
    assert lines[0] == "PassContext"
    assert lines[140].strip() == "P1"
    assert lines[140].startswith("  " * 140)
    assert_sound(memory.spans)


# -- clocks ------------------------------------------------------------------------------------


def test_wall_clock_that_steps_back_in_a_pass_changes_no_duration(
    memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody sets the clock back by an hour: no span lasts minus 59 minutes."""
    real = time.time_ns

    def step_back(mod: Any) -> Any:
        monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
        monkeypatch.setattr("opentelemetry.sdk.trace.time_ns", lambda: real() - 3600 * 10**9)
        return mod

    with _context(memory):
        transform.Sequential([python_pass("Step", step_back), _identity()], name="Seq")(
            empty_module()
        )
    monkeypatch.undo()
    assert_sound(memory.spans)
    for span in memory.spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.end_time - span.start_time < 60 * 10**9


@pytest.mark.parametrize("has_parent", [True, False])
def test_every_span_of_a_real_lowering_lies_within_its_parent(
    has_parent: bool, memory: SpanMemory
) -> None:
    """In integer nanoseconds, also under a request that the SDK timed by the wall clock."""
    tracer = memory.provider.get_tracer("program")

    def compile_() -> None:
        with _context(memory):
            compile_mlp()

    if has_parent:
        with tracer.start_as_current_span("request"):
            compile_()
    else:
        compile_()
    assert len(memory.spans) > 78
    assert_sound(memory.spans)
    assert len({span.context.trace_id for span in memory.spans if span.context}) == 1
    assert len({id(span.resource) for span in memory.spans}) == 1


# -- names and text -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x" * 200_000, "x" * 255 + "…"),
        ("tab\n", "tab"),
        ("%s{}", "%s{}"),
        ("größe", "größe"),
        ("a\0b", "a b"),
    ],
    ids=["long", "newline", "format", "unicode", "nul"],
)
def test_pass_names_become_span_names_that_backends_take(
    name: str, shown: str, memory: SpanMemory
) -> None:
    """TVM lets any name through; a backend refuses more than 1,024 characters."""
    with _context(memory):
        _identity(name)(empty_module())
    assert outline(memory.spans, "tvm.pass.name") == ["PassContext", f"  {shown} {shown}"]


def test_no_module_is_printed_or_recorded(
    memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Printing costs half a second for a large module, and nobody asked for it."""

    def printed(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a module was printed")

    for name in ("__str__", "__repr__", "script", "astext"):
        if hasattr(tvm.IRModule, name):
            monkeypatch.setattr(tvm.IRModule, name, printed)
    with _context(memory):
        compile_mlp()
    for span in memory.spans:
        for value in (span.attributes or {}).values():
            assert type(value) in (str, int, float, bool)
            assert not isinstance(value, str) or len(value) <= 256


def test_passes_carry_the_name_of_the_only_function(memory: SpanMemory) -> None:
    """A module with one function names it; one with several does not."""
    main = tvm.IRModule({"matmul": mlp()["forward"]})
    with _context(memory):
        _identity("One")(main)
        _identity("None")(empty_module())
    assert outline(memory.spans, "tilelang.kernel.name") == [
        "PassContext",
        "  One matmul",
        "  None",
    ]
