"""Zero-code tracing of TileLang leaves the program alone, whatever the provider and the order."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider

import tilelang_otel
from tests.support.require import require_tilelang
from tests.support.spans import SpanMemory, assert_sound
from tests.support.threads import in_threads

require_tilelang()

from tests.support.tilelang_kernels import (  # noqa: E402
    compile_cpu,
    compile_cuda,
    folders,
    forget,
    frag,
    gemm,
    lower,
    outcome,
    shape,
    traced,
)
from tilelang_otel import TileLangInstrumentor  # noqa: E402

_ROOT = Path(__file__).parents[2]

_LOWERED = ["compile gemm", "  lower", "    82 passes", "    codegen tilelang_cuda"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this module empty caches of its own."""
    with folders(tmp_path_factory.mktemp("caches")):
        yield


@pytest.fixture(autouse=True)
def uninstrumented_afterwards() -> Iterator[None]:
    """Take tracing off, whatever the test did."""
    yield
    tilelang_otel.uninstrument()


# -- providers ------------------------------------------------------------------------------


def test_unsampled_compile_has_no_span_and_works() -> None:
    """From the first pass to the host compiler, and when it fails."""
    memory = SpanMemory(sampler=ALWAYS_OFF)
    with traced(memory):
        assert compile_cpu(1024) is compile_cpu(1024)
        assert "__global__" in lower(gemm()).kernel_source
        assert "no available layout" in outcome(lambda: lower(frag(229)))[1]
    assert memory.spans == ()


def test_compile_in_an_unsampled_request_has_no_span(memory: SpanMemory) -> None:
    """The sampler's decision on the request holds for what it compiles."""
    request = SpanMemory(sampler=ALWAYS_OFF).provider.get_tracer("program").start_span("request")
    with traced(memory), trace.use_span(request, end_on_exit=True):
        lower(gemm())
    assert memory.spans == ()


def test_provider_that_does_nothing_costs_no_compile() -> None:
    """As when no SDK is set up."""
    tilelang_otel.instrument(NoOpTracerProvider())
    assert "__global__" in lower(gemm()).kernel_source
    forget()
    assert compile_cpu(1024).execution_backend == "cython"


def test_suppressed_compile_has_no_span(memory: SpanMemory) -> None:
    """And the next one has."""
    with traced(memory):
        with suppress_instrumentation():
            lower(gemm())
            compile_cpu(1025)
        assert memory.spans == ()
        lower(gemm())
    assert shape(memory.spans) == _LOWERED


def test_provider_that_the_program_sets_later_is_used_and_kept(
    memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked up at each compile, and never set by us."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    tilelang_otel.instrument()
    lower(gemm())
    assert trace._TRACER_PROVIDER is None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", memory.provider)
    lower(gemm())
    assert trace.get_tracer_provider() is memory.provider
    assert shape(memory.spans) == _LOWERED


# -- on and off -----------------------------------------------------------------------------


def test_instrumenting_twice_records_everything_once(memory: SpanMemory) -> None:
    """By function and by class; one uninstrument takes it off."""
    tilelang_otel.instrument(memory.provider)
    tilelang_otel.instrument(memory.provider)
    with pytest.MonkeyPatch.context() as patch:
        # It warns in its log when it is on already.
        patch.setattr("opentelemetry.instrumentation.instrumentor._LOG.disabled", True)
        TileLangInstrumentor().instrument(tracer_provider=memory.provider)
    lower(gemm())
    assert shape(memory.take()) == _LOWERED
    tilelang_otel.uninstrument()
    lower(gemm())
    assert memory.spans == ()


def _stored() -> dict[tuple[str, ...], Any]:
    """Return all that the modules of TileLang and TVM hold, and their classes, as stored."""
    found: dict[tuple[str, ...], Any] = {}
    for module_name, module in sorted(sys.modules.items()):
        if module_name.partition(".")[0] not in ("tilelang", "tvm"):
            continue
        if not isinstance(module, types.ModuleType):
            continue
        for name, value in list(vars(module).items()):
            found[module_name, name] = value
            if isinstance(value, type) and value.__module__ == module_name:
                for attribute, stored in list(vars(value).items()):
                    found[module_name, name, attribute] = stored
    return found


def test_uninstrument_restores_the_very_objects_everywhere(memory: SpanMemory) -> None:
    """Whatever was wrapped, in whichever module, and copies of it in others; also the tool."""
    session: Any = sys.modules["tilelang.instrumentation.session"]
    tools = dict(session._tool_factories)
    before = _stored()
    tilelang_otel.instrument(memory.provider)
    during = _stored()
    lower(gemm())
    tilelang_otel.uninstrument()
    after = _stored()
    changed = {".".join(key) for key in before if before[key] is not during[key]}
    assert changed >= {
        "tilelang.cache.cached",
        "tilelang.lower",
        "tilelang.engine.lower.lower",
        "tilelang.jit.kernel.JITKernel._compile_and_create_adapter",
        "tilelang.contrib.nvcc.subprocess",
        "tvm.ir.transform.PassContext.__init__",
    }
    assert [".".join(key) for key in before if before[key] is not after.get(key)] == []
    assert session._tool_factories == tools


def test_instrument_after_uninstrument_works(memory: SpanMemory) -> None:
    """As often as one likes, and into another provider."""
    for provider in (SpanMemory(), memory):
        with traced(provider):
            lower(gemm())
        assert shape(provider.spans) == _LOWERED


# -- callers --------------------------------------------------------------------------------


def test_callers_span_is_the_parent_and_stays_current(memory: SpanMemory) -> None:
    """Nothing is attached that could be left behind, also when the compile fails."""
    tracer = memory.provider.get_tracer("program")
    with traced(memory), tracer.start_as_current_span("request") as request:
        lower(gemm())
        assert trace.get_current_span() is request
        outcome(lambda: compile_cuda(frag(229)))
        assert trace.get_current_span() is request
    assert [line for line in shape(memory.spans) if not line.startswith("    ")] == [
        "request",
        "  compile gemm",
        "  compile frag_229!",
    ]
    assert_sound(memory.spans)


def test_two_threads_compile_into_two_traces(memory: SpanMemory) -> None:
    """At once: no pass or compiler of one is in the other's tree."""
    together = threading.Barrier(2, timeout=60)

    def body(number: int) -> None:
        together.wait()
        compile_cpu(2100 + number, name=f"kernel_{number}")

    with traced(memory):
        in_threads(2, body, timeout_s=60)
    lines = shape(memory.spans)
    half = len(lines) // 2
    assert sorted([lines[0], lines[half]]) == ["compile kernel_0", "compile kernel_1"]
    assert lines[1:half] == lines[half + 1 :]
    assert "    61 passes" in lines
    assert len({span.context.trace_id for span in memory.spans if span.context}) == 2


class _Forgetful(SpanProcessor):
    """Keeps no span, but knows whether they live."""

    def __init__(self) -> None:
        self.seen: list[weakref.ref[Any]] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.seen.append(weakref.ref(span))


def test_compiles_leave_nothing_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """No span, no kernel, no exception: a process may compile for days."""
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")
    forgetful = _Forgetful()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(forgetful)
    alive: list[weakref.ref[Any]] = []
    tilelang_otel.instrument(provider)
    for _ in range(5):
        kernel = compile_cpu(1024)
        artifact = lower(gemm())
        alive += [weakref.ref(kernel), weakref.ref(kernel.adapter), weakref.ref(artifact)]
        del kernel, artifact
        with pytest.raises(Exception, match="no available layout") as caught:
            lower(frag(229))
        alive.append(weakref.ref(caught.value))
        del caught
    gc.collect()
    assert len(forgetful.seen) > 5 * 100
    assert [reference() for reference in alive if reference() is not None] == []
    assert sum(reference() is not None for reference in forgetful.seen) == 0


# -- imports --------------------------------------------------------------------------------

_INSTRUMENT = """
from tests.support.spans import SpanMemory
import tilelang_otel
memory = SpanMemory()
tilelang_otel.instrument(memory.provider)
import sys
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_instrument_works_before_and_after_the_import(order: str) -> None:
    """It imports nothing by itself; the program's import is what sets it up."""
    check = "assert not {'tilelang', 'tvm', 'torch'} & set(sys.modules), 'imported by us'\n"
    parts = [_INSTRUMENT + check, "import tilelang\n"]
    if order == "after":
        parts = ["import tilelang\n", _INSTRUMENT]
    code = "".join(parts) + (
        "from tests.support.tilelang_kernels import gemm, lower, shape\n"
        "lower(gemm())\n"
        "print(shape(memory.spans))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [str(_LOWERED)]), done.stderr
    assert "Traceback" not in done.stderr
