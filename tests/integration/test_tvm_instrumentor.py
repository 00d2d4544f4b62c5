"""Zero-code tracing of TVM: which spans a program gets that says nothing about tracing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace

import tilelang_otel
from tests.support.require import require_tvm
from tests.support.spans import SpanMemory, assert_sound, covered_fraction, outline, trees
from tests.support.threads import in_threads
from tests.support.tvm_modules import compile_mlp, empty_module, mlp, python_pass, scaling

require_tvm()

import tvm  # noqa: E402
from tvm import relax, tirx  # noqa: E402
from tvm.ir import transform  # noqa: E402

from tilelang_otel.events import pass_phase  # noqa: E402

_LLVM: Any = "llvm"


@pytest.fixture(autouse=True)
def instrumented(memory: SpanMemory) -> Iterator[None]:
    """Trace into ``memory`` for the length of the test."""
    tilelang_otel.instrument(memory.provider)
    yield
    tilelang_otel.uninstrument()


def _identity(name: str = "Id") -> Any:
    return python_pass(name, lambda mod: mod)


def _root(memory: SpanMemory) -> Any:
    [root] = [span for span in memory.spans if span.parent is None]
    return root


@pytest.mark.parametrize(
    ("compile_", "root", "stages"),
    [
        (lambda: tvm.compile(mlp(), target=_LLVM), "compile forward", {"relax", "tirx", "host"}),
        (lambda: relax.build(mlp(), target=_LLVM), "compile forward", {"relax", "tirx", "host"}),
        (lambda: tvm.compile(scaling(), target=_LLVM), "compile main", {"tirx", "host"}),
        (lambda: tirx.build(scaling(), target=_LLVM), "compile main", {"tirx", "host"}),
        (lambda: tirx.build(scaling()["main"], target=_LLVM), "compile main", {"tirx", "host"}),
    ],
    ids=["compile relax", "relax.build", "compile tirx", "tirx.build", "tirx.build function"],
)
def test_entry_point_is_the_root_with_target_and_every_pass_has_a_phase(
    compile_: Callable[[], Any], root: str, stages: set[str], memory: SpanMemory
) -> None:
    """Whichever way in, one tree; entry points that call each other share one span."""
    compile_()
    span = _root(memory)
    assert span.name == root
    assert span.attributes["tvm.target.kind"] == "llvm"
    assert span.attributes["tilelang.kernel.name"] == root.split()[1]
    passes = [s for s in memory.spans if s.attributes and "tvm.pass.name" in s.attributes]
    assert len(passes) > 40
    assert {str((s.attributes or {}).get("tvm.pass.phase")) for s in passes} == stages
    assert [s.name for s in memory.spans if s.name.startswith("compile")] == [root]
    assert_sound(memory.spans)


def test_code_generation_and_linking_stand_beside_the_passes(memory: SpanMemory) -> None:
    """They are most of the time, so they have names, with the target and the function."""
    compile_mlp()
    [root] = trees(memory.spans, "tilelang.codegen.name", "tvm.target.kind")
    passes = {s.name for s in memory.spans if "tvm.pass.name" in (s.attributes or {})}
    assert [(c.name, c.attributes) for c in root.children if c.name not in passes] == [
        ("codegen vm", {"tilelang.codegen.name": "relax.VMCodeGen"}),
        ("codegen llvm", {"tilelang.codegen.name": "target.build.llvm", "tvm.target.kind": "llvm"}),
        ("link", {}),
    ]


def test_device_code_has_its_own_phase_and_code_generation(memory: SpanMemory) -> None:
    """Host and device parts of one module are told apart."""
    target: Any = tvm.target.Target("opencl", host="llvm")
    tvm.compile(scaling(bind_thread=True), target=target)
    phases = {
        str((span.attributes or {}).get("tvm.pass.phase"))
        for span in memory.spans
        if "tvm.pass.name" in (span.attributes or {})
    }
    assert phases == {"tirx", "host", "device"}
    names = [span.name for span in memory.spans if span.name.startswith("codegen")]
    assert names == ["codegen opencl", "codegen llvm"]
    assert _root(memory).attributes["tvm.target.kind"] == "opencl"


def test_named_work_covers_95_percent_of_a_warm_compile(memory: SpanMemory) -> None:
    """Passes, code generation and linking; measured from the recorded intervals.

    The machine may take a slice of time anywhere, so the best of some compiles
    counts. The first, cold one also loads code, and is not promised anything.
    """
    compile_mlp()
    memory.take()
    best = 0.0
    for _ in range(8):
        compile_mlp()
        best = max(best, covered_fraction(_root(memory), memory.spans))
        memory.take()
        if best >= 0.95:
            break
    assert best >= 0.95


def test_phase_that_the_program_sets_wins(memory: SpanMemory) -> None:
    """The stage that we see is only for passes without a phase."""
    with pass_phase("mine"):
        tirx.build(scaling(), target=_LLVM)
    tirx.build(scaling(), target=_LLVM)
    roots = trees(memory.spans, "tvm.pass.phase")
    for root, phase in zip(roots, ("mine", "tirx"), strict=True):
        assert root.children[0].attributes == {"tvm.pass.phase": phase}


# -- contexts ----------------------------------------------------------------------------


def test_explicit_context_around_a_compile_adds_no_span(memory: SpanMemory) -> None:
    """The compile is what the program is about; a context says how, not what."""
    with transform.PassContext(opt_level=3):
        compile_mlp()
        compile_mlp()
    assert [root.name for root in trees(memory.spans)] == ["compile forward"] * 2
    assert_sound(memory.spans)


def test_passes_outside_of_a_compile_belong_to_their_context(memory: SpanMemory) -> None:
    """One root for the context, all its passes below."""
    with transform.PassContext():
        _identity("A")(empty_module())
        transform.Sequential([_identity("B")], name="Seq")(empty_module())
    assert outline(memory.spans) == ["PassContext", "  A", "  Seq", "    B"]


def test_context_in_which_nothing_runs_gives_no_span(memory: SpanMemory) -> None:
    """Programs make contexts to ask for the current one's settings."""
    with transform.PassContext(opt_level=1), transform.PassContext():
        pass
    assert memory.spans == ()


def test_default_context_is_traced_in_every_thread_and_left_as_it_was(memory: SpanMemory) -> None:
    """A thread's first compile, without any context, is seen like any other."""

    def compile_(number: int) -> None:
        _identity(f"alone {number}")(empty_module())
        tirx.build(scaling(), target=_LLVM)
        assert len(transform.PassContext.current().instruments) == 0

    compile_(9)
    in_threads(2, compile_)
    names = sorted(root.name for root in trees(memory.spans))
    assert names == ["PassContext"] * 3 + ["compile main"] * 3
    assert_sound(memory.spans)


def test_two_threads_compile_at_once_without_sharing_parents(memory: SpanMemory) -> None:
    """Each gets its own trace, with all of its passes.

    Not of a Relax model: TVM's own legalization is not made for threads.
    """
    together = threading.Barrier(2, timeout=20)
    mod = scaling()
    tirx.build(mod, target=_LLVM)
    count = len(memory.take())

    def compile_(number: int) -> None:
        together.wait()
        with transform.PassContext(opt_level=3 if number else 2):
            tirx.build(mod, target=_LLVM)

    in_threads(2, compile_)
    traces = {span.context.trace_id for span in memory.spans if span.context}
    assert len(traces) == 2
    for trace_id in traces:
        own = [s for s in memory.spans if s.context and s.context.trace_id == trace_id]
        assert len(own) == count
        assert_sound(own)


def test_compile_inside_a_pass_is_a_child_of_that_pass(memory: SpanMemory) -> None:
    """Constant folding and tuning compile in the middle of a compile."""

    def body(mod: Any) -> Any:
        with transform.PassContext(opt_level=1):
            tirx.build(scaling(), target=_LLVM)
        return mod

    with transform.PassContext():
        transform.Sequential([python_pass("Tune", body), _identity("After")], name="Seq")(
            empty_module()
        )
    [root] = trees(memory.spans)
    [seq] = root.children
    assert (root.name, seq.name) == ("PassContext", "Seq")
    tune, after = seq.children
    assert (tune.name, after.name) == ("Tune", "After")
    assert [child.name for child in tune.children] == ["compile main"]
    assert len(tune.children[0].children) > 3
    assert_sound(memory.spans)


def test_compile_joins_the_programs_span_and_is_current_in_its_passes(memory: SpanMemory) -> None:
    """A request that compiles shows it, and spans that a pass starts are in the compile."""
    tracer = memory.provider.get_tracer("program")

    def body(mod: Any) -> Any:
        with tracer.start_as_current_span("users"):
            return mod

    default = relax.get_default_pipeline(tvm.target.Target(_LLVM))
    pipeline: Any = transform.Sequential([python_pass("Mine", body), default])
    with tracer.start_as_current_span("request") as request:
        relax.build(mlp(), target=_LLVM, relax_pipeline=pipeline)
        assert trace.get_current_span() is request
    [root] = trees(memory.spans)
    assert root.name == "request"
    [compile_] = root.children
    assert compile_.name == "compile forward"
    assert "users" in [child.name for child in compile_.children]
    assert_sound(memory.spans)


def test_140_nested_python_passes_still_fit(memory: SpanMemory) -> None:
    """Each level may cost one more Python frame, and no more.

    In a thread, whose Python stack is its own: the test runner's frames count too.
    """

    def nest(levels: int, mod: Any) -> Any:
        if levels == 0:
            return mod
        return python_pass(f"P{levels}", lambda inner: nest(levels - 1, inner))(mod)

    def compile_(_: int) -> None:
        with transform.PassContext():
            nest(140, empty_module())
        nest(140, empty_module())

    in_threads(1, compile_)
    deepest = [line for line in outline(memory.spans) if line.endswith(" P1")]
    assert deepest == ["  " * 140 + "P1"] * 2
