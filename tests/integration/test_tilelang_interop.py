"""Tracing beside TileLang's own instruments and tools, and those of other libraries."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

import tilelang_otel
from tests.support.require import require_tilelang
from tests.support.spans import SpanMemory, assert_sound, outline
from tests.support.tvm_modules import empty_module, python_pass, raising, tolerant

require_tilelang()

from tests.support.tilelang_kernels import (  # noqa: E402
    compile_cpu,
    compile_cuda,
    folders,
    frag,
    is_pass,
    lower,
    shape,
    traced,
)
from tilelang_otel import OTelPassObserver  # noqa: E402
from tilelang_otel._adapters.tilelang_tool import create_tool  # noqa: E402
from tilelang_otel.events import StackedPassInstrument  # noqa: E402

theirs: Any = importlib.import_module("tilelang.instrumentation")
PassContext: Any = importlib.import_module("tvm.ir.transform").PassContext
JITKernel: Any = importlib.import_module("tilelang.jit.kernel").JITKernel


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this module empty caches of its own."""
    with folders(tmp_path_factory.mktemp("caches")):
        yield


def _identity(name: str = "Id") -> Any:
    return python_pass(name, lambda mod: mod)


def _under_theirs(memory: SpanMemory) -> Any:
    return PassContext(
        instruments=[theirs.StackedPassInstrument(OTelPassObserver(memory.provider))]
    )


# -- our observer under TileLang's instrument ---------------------------------------------------


def test_observer_under_tilelangs_instrument_gives_each_pass_once(memory: SpanMemory) -> None:
    """With TileLang's phases; nothing else of ours is needed."""
    with _under_theirs(memory):
        lower(frag(128))
    assert shape(memory.spans) == ["PassContext", "  78 passes"]
    phases = [(span.attributes or {}).get("tvm.pass.phase") for span in memory.spans]
    assert phases.count("pipeline_cuda") == 70
    assert_sound(memory.spans)


def test_observer_under_tilelangs_instrument_keeps_a_tolerant_pass_free_of_error(
    memory: SpanMemory,
) -> None:
    """TileLang's stack drops what it cannot pair, although it has succeeded."""
    with _under_theirs(memory):
        tolerant("Tol", raising("Boom", ValueError("boom")), _identity())(empty_module())
        _identity()(empty_module())
    assert outline(memory.spans) == ["PassContext", "  Tol", "    Boom!", "    Id", "  Id"]
    assert_sound(memory.spans)


def test_observer_under_tilelangs_instrument_hides_no_pass_after_a_caught_failure(
    memory: SpanMemory,
) -> None:
    """There, the failed pass stays open until the context's exit."""
    with _under_theirs(memory):
        with pytest.raises(ValueError, match="boom"):
            raising("Boom", ValueError("boom"))(empty_module())
        _identity()(empty_module())
        _identity()(empty_module())
    assert outline(memory.spans) == ["PassContext", "  Boom!", "  Id", "  Id"]
    assert_sound(memory.spans)


def test_failing_lowering_under_tilelangs_instrument_is_told_once(memory: SpanMemory) -> None:
    """The program gets TileLang's error, and the pass has it."""
    with pytest.raises(Exception, match="no available layout"), _under_theirs(memory):
        lower(frag(229))
    assert shape(memory.spans) == ["PassContext!", "  20 passes", "  tl.LayoutInference!*"]


# -- TileLang's observers under our instrument ------------------------------------------------


class _Counting(theirs.PassEventObserver):
    """What a user of TileLang's API writes."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.finished: list[tuple[str, str | None, object]] = []

    def pass_started(self, mod: Any, event: Any) -> Any:
        self.started.append(event.name)
        return len(self.started)

    def pass_finished(self, mod: Any, event: Any, state: Any) -> None:
        self.finished.append((event.name, event.phase, state))


def test_tilelangs_observer_under_our_instrument_gets_the_same_events(
    memory: SpanMemory,
) -> None:
    """Name, phase, and its own state back; with zero-code tracing around it as well."""
    seen: list[list[tuple[str, str | None, object]]] = []
    with traced(memory):
        for instrument in (StackedPassInstrument, theirs.StackedPassInstrument):
            observer = _Counting()
            with PassContext(instruments=[instrument(observer)]):
                lower(frag(128))
            seen.append(observer.finished)
    assert len(seen[0]) == 78
    assert seen[0] == seen[1]
    assert {phase for _, phase, _ in seen[0]} == {None, "pipeline_cuda"}
    assert sum(is_pass(span) for span in memory.spans) == 2 * 78


@pytest.mark.parametrize("zero_code", [False, True])
def test_lower_in_a_context_with_our_instrument_gives_each_pass_once(
    zero_code: bool, memory: SpanMemory
) -> None:
    """TileLang exits and enters the instruments of a user's context twice for that."""
    instrument = StackedPassInstrument(OTelPassObserver(memory.provider))
    context = PassContext(opt_level=3, instruments=[instrument])
    if zero_code:
        with traced(memory), context:
            lower(frag(128))
    else:
        with context:
            lower(frag(128))
    spans = memory.spans
    assert sum(is_pass(span) for span in spans) == 78
    sequences = [(span.attributes or {}).get("tvm.pass.sequence") for span in spans]
    assert sorted(number for number in sequences if isinstance(number, int)) == list(range(78))
    assert len({span.context.trace_id for span in spans if span.context}) == 1
    assert_sound(spans)


# -- TileLang's tools -------------------------------------------------------------------------


def test_pass_timing_beside_us_reports_the_passes_that_we_record(
    memory: SpanMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TileLang's own tool stays right, and so do we."""
    monkeypatch.setenv("TILELANG_PASS_PROFILE", "1")
    timing = logging.getLogger("tilelang.pass_timing")
    with traced(memory), caplog.at_level(logging.INFO, logger=timing.name):
        timing.addHandler(caplog.handler)
        try:
            compile_cpu(1700)
        finally:
            timing.removeHandler(caplog.handler)
    assert "TileLang Pass Timing Report" in caplog.text
    assert "(61 passes)" in caplog.text
    assert "    61 passes" in shape(memory.spans)


def test_lower_trace_beside_us_writes_its_pages(memory: SpanMemory, tmp_path: Path) -> None:
    """Another registered tool, with instruments and code generation hooks of its own."""
    lower_trace: Any = importlib.import_module("tilelang.tools.lower_trace")
    lower_trace.enable(mode="html", trace_dir=str(tmp_path / "trace"))
    try:
        with traced(memory):
            lower(frag(128))
    finally:
        lower_trace.disable()
    assert [path.suffix for path in (tmp_path / "trace").rglob("*.html")] != []
    assert sum(is_pass(span) for span in memory.spans) == 78


@pytest.fixture
def standalone(memory: SpanMemory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register our tool as a TileLang that reads the entry point does."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", memory.provider)
    theirs.register_pass_instrumentation_tool("found", create_tool)
    yield
    theirs.unregister_pass_instrumentation_tool("found")


def test_tool_by_itself_records_passes_and_code_generation(
    standalone: None, memory: SpanMemory
) -> None:
    """Without the wrappers: not the cache, nor the compilers."""
    compile_cpu(1500)
    assert shape(memory.take()) == [
        "compile scale",
        "  lower",
        "    61 passes",
        "    codegen tilelang_c",
    ]
    # Answered from the cache: TileLang makes no session.
    compile_cpu(1500)
    assert memory.spans == ()
    lower(frag(128))
    assert shape(memory.spans) == [
        "compile",
        "  lower",
        "    78 passes",
        "    codegen tilelang_cuda",
    ]


def test_tool_by_itself_records_a_failure_once(standalone: None, memory: SpanMemory) -> None:
    """And leaves it to the program."""
    for _ in range(2):
        with pytest.raises(Exception, match="no available layout"):
            compile_cuda(frag(229))
        assert shape(memory.take()) == [
            "compile frag_229!",
            "  lower!",
            "    20 passes",
            "    tl.LayoutInference!*",
        ]


def test_tool_stands_aside_where_zero_code_tracing_sees_more(
    standalone: None, memory: SpanMemory
) -> None:
    """Nothing comes twice."""
    with traced(memory):
        lower(frag(128))
    assert shape(memory.spans) == [
        "compile frag_128",
        "  lower",
        "    78 passes",
        "    codegen tilelang_cuda",
    ]


# -- other libraries --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["__init__", "_compile_and_create_adapter"])
def test_wrapper_of_another_library_stays_on_and_works(
    name: str, memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it came after ours, on the very same function: ours then does nothing."""
    called: list[str] = []
    monkeypatch.setattr(JITKernel, name, vars(JITKernel)[name])
    tilelang_otel.instrument(memory.provider)
    inner = getattr(JITKernel, name)

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(name)
        return inner(self, *args, **kwargs)

    setattr(JITKernel, name, wrapper)
    options = {"__init__": 1600, "_compile_and_create_adapter": 1601}
    compile_cpu(options[name])
    assert outline(memory.take())[0] == "compile scale"
    tilelang_otel.uninstrument()
    assert vars(JITKernel)[name] is wrapper
    compile_cpu(options[name] + 10)
    assert called == [name, name]
    assert memory.spans == ()
