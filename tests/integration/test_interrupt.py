"""Ctrl-C during a compile: the program gets it, and the spans say so."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tilelang_otel
from tests.support.require import require_tvm

require_tvm()

from tvm import relax  # noqa: E402
from tvm.ir import transform  # noqa: E402
from tvm.ir.instrument import PassInstrument  # noqa: E402

from tilelang_otel.events import StackedPassInstrument  # noqa: E402

# Its annotations say that a decorated function still takes a context.
_module_pass: Any = transform.module_pass

_SLOW = "CanonicalizeRelaxBindings"
"""A C++ pass whose time grows with the square of the number of bindings."""


class _PressCtrlC(PassInstrument):
    """Sends the signal of Ctrl-C while the slow pass runs.

    The timer starts in the pass's before-callback and is far shorter than the
    pass, so that Python first runs again in its after-callback. It counts what
    this process computes: a busy machine doesn't make it end before the pass begins.
    """

    __slots__ = ("__dict__",)

    def run_before_pass(self, mod: Any, info: Any) -> None:
        """Start the timer, if it is the slow pass."""
        if info.name == _SLOW:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)


class _KeepSpans(SpanProcessor):
    """Keeps spans without a lock: the SDK's own would stay locked when interrupted."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span."""
        self.spans.append(span)


@pytest.fixture(scope="module")
def big_module() -> Any:
    """A function with enough bindings to keep the slow pass busy for a while."""
    tensor: Any = getattr(relax, "TensorStructInfo", None) or relax.TensorType
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor([4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(x, x))
            for _ in range(4000):
                y = builder.emit(y)
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Where the spans of a test are."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    """A provider that keeps its spans."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture(autouse=True)
def alarm_is_ctrl_c() -> Iterator[None]:
    """Let the timer's signal do what Ctrl-C does."""
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def _directly(mod: Any) -> Any:
    return relax.transform.CanonicalizeBindings()(mod)


def _in_a_python_pass(mod: Any) -> Any:
    @_module_pass(opt_level=0, name="Python")
    def python_pass(mod: Any, context: Any) -> Any:
        return relax.transform.CanonicalizeBindings()(mod)

    return python_pass(mod)


def _failed(exporter: InMemorySpanExporter) -> dict[str, tuple[str, int]]:
    def exceptions(span: ReadableSpan) -> int:
        return sum(event.name == "exception" for event in span.events)

    return {
        span.name: (str((span.attributes or {}).get("error.type")), exceptions(span))
        for span in exporter.get_finished_spans()
        if not span.status.is_ok
    }


@pytest.mark.parametrize("compile_", [_directly, _in_a_python_pass])
def test_ctrl_c_during_zero_code_compile_reaches_the_program(
    compile_: Callable[[Any], Any],
    big_module: Any,
    provider: TracerProvider,
    exporter: InMemorySpanExporter,
) -> None:
    """A Ctrl-C that TVM turned into an empty RuntimeError is a KeyboardInterrupt again."""
    tilelang_otel.instrument(provider)
    try:
        with transform.PassContext(instruments=[_PressCtrlC()]), pytest.raises(KeyboardInterrupt):
            compile_(big_module)
    finally:
        tilelang_otel.uninstrument()
    failed = _failed(exporter)
    assert failed[_SLOW] == ("KeyboardInterrupt", 1)
    assert set(failed.values()) == {("KeyboardInterrupt", 1), ("KeyboardInterrupt", 0)}
    assert "CanonicalizeTIRVariables" not in failed


def test_ctrl_c_with_the_instrument_put_in_by_hand_is_named_on_the_spans(
    big_module: Any, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    """Without scopes of ours the error stays TVM's, but the spans say what it was."""
    instrument = StackedPassInstrument(tilelang_otel.OTelPassObserver(provider))
    with (
        pytest.raises(RuntimeError),
        transform.PassContext(instruments=[_PressCtrlC(), instrument]),
    ):
        _directly(big_module)
    failed = _failed(exporter)
    assert failed[_SLOW] == ("KeyboardInterrupt", 1)
    assert failed["PassContext"] == ("KeyboardInterrupt", 0)


def test_empty_runtime_error_of_a_pass_stays_a_runtime_error(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    """Only what began in our callbacks was a Ctrl-C: a pass may raise what it likes."""

    @_module_pass(opt_level=0, name="Empty")
    def empty(mod: Any, context: Any) -> Any:
        raise RuntimeError

    from tvm import IRModule

    tilelang_otel.instrument(provider)
    try:
        with pytest.raises(RuntimeError):
            empty(IRModule({}))
    finally:
        tilelang_otel.uninstrument()
    assert _failed(exporter)["Empty"] == ("RuntimeError", 1)


def test_interrupts_at_any_moment_leave_tracing_and_contexts_intact() -> None:
    """However a signal cuts our code short, it is not lost, and the next compile is traced."""
    from tvm import IRModule, tirx

    kept = _KeepSpans()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(kept)
    passes = transform.Sequential([tirx.transform.RemoveNoOp()] * 20)
    module = IRModule({})
    tilelang_otel.instrument(provider)
    lost = 0
    # An interrupt in a callback of the collector's is lost, as with any program; what
    # other tests have left for it to collect is not this one's.
    gc.collect()
    gc.disable()
    try:
        for attempt in range(300):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0002 + 0.000003 * attempt)
            try:
                while signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0:
                    passes(module)
                lost += 1
            except KeyboardInterrupt:
                pass
        passes(module)  # what an interrupt has left is ended now
        kept.spans.clear()
        passes(module)
    finally:
        gc.enable()
        tilelang_otel.uninstrument()
    assert lost == 0
    assert len(transform.PassContext.current().instruments) == 0
    names = [span.name for span in kept.spans]
    assert names.count("PassContext") == 1
    assert names.count("tirx.RemoveNoOp") == 20
