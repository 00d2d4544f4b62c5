"""Zero-code tracing of TVM when something goes wrong: compiles, providers, sampling, TVM itself."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import sampling

import tilelang_otel
from tests.support.broken import BROKEN_CALLS, BrokenProvider
from tests.support.require import require_tvm
from tests.support.spans import SpanMemory, assert_sound, outline, trees
from tests.support.tvm_modules import (
    compile_mlp,
    empty_module,
    mlp,
    python_pass,
    raising,
    scaling,
    tolerant,
)

require_tvm()

import tvm  # noqa: E402
from tvm import relax, tirx  # noqa: E402
from tvm.ir import transform  # noqa: E402

_LLVM: Any = "llvm"


@pytest.fixture(autouse=True)
def uninstrumented_afterwards() -> Iterator[None]:
    """Take tracing off, whatever the test did."""
    yield
    tilelang_otel.uninstrument()


def _identity(name: str = "Id") -> Any:
    return python_pass(name, lambda mod: mod)


def _boom(name: str = "Boom") -> Any:
    return raising(name, lambda: ValueError("boom"))


def _compile_with(*passes: Any) -> Any:
    """Compile through a pipeline of the test's own."""
    pipeline: Any = transform.Sequential(list(passes), name="Mine")
    return relax.build(mlp(), target=_LLVM, relax_pipeline=pipeline)


# -- compiles that fail -----------------------------------------------------------------------


def test_failing_compile_is_an_error_from_the_pass_up_to_the_root(memory: SpanMemory) -> None:
    """One exception, on the pass that raised it; the user gets the very error."""
    tilelang_otel.instrument(memory.provider)
    with pytest.raises(ValueError, match=r"^boom$"):
        _compile_with(_identity(), python_pass("Outer", _boom()), _identity("Never"))
    assert outline(memory.spans, "error.type", "tvm.pass.end_estimated") == [
        "compile forward! ValueError",
        "  Mine! ValueError",
        "    Id",
        "    Outer! ValueError",
        "      Boom!* ValueError",
    ]
    assert memory.named("compile forward").status.description == "failed in Boom"
    assert_sound(memory.spans)


def test_failing_code_generation_is_where_the_error_is(memory: SpanMemory) -> None:
    """All passes have finished then: none of them is to blame."""
    tilelang_otel.instrument(memory.provider)
    target: Any = "c"  # which has no threads of a device
    with pytest.raises(Exception, match="not implemented") as caught:
        tirx.build(scaling(bind_thread=True), target=target)
    kind = f"{type(caught.value).__module__}.{type(caught.value).__qualname__}"
    failed = [line.strip() for line in outline(memory.spans, "error.type") if "!" in line]
    assert failed == [f"compile main! {kind}", f"codegen c!* {kind}"]
    assert_sound(memory.spans)


def test_caught_failures_are_attributed_when_they_happen(memory: SpanMemory) -> None:
    """The exception is known, the end is real, and no later pass is hidden."""
    tilelang_otel.instrument(memory.provider)
    with transform.PassContext():
        tolerant("Tol", python_pass("Mid", _boom()), _identity())(empty_module())
        with pytest.raises(ValueError, match="boom"):
            _boom("Bang")(empty_module())
        _identity("Last")(empty_module())
    assert outline(memory.spans, "error.type", "tvm.pass.end_estimated") == [
        "PassContext",
        "  Tol",
        "    Mid! ValueError",
        "      Boom!* ValueError",
        "    Id",
        "  Bang!* ValueError",
        "  Last",
    ]
    assert_sound(memory.spans)


def test_pass_that_fails_itself_after_a_caught_failure_is_to_blame(memory: SpanMemory) -> None:
    """Two failures, two exceptions, each on its own pass."""
    tilelang_otel.instrument(memory.provider)

    def body(mod: Any) -> Any:
        with pytest.raises(ValueError, match="boom"):
            _boom()(mod)
        raise LookupError("the second")

    with pytest.raises(Exception, match="the second"), transform.PassContext():
        python_pass("Outer", body)(empty_module())
    assert outline(memory.spans) == ["PassContext!", "  Outer!*", "    Boom!*"]
    assert memory.named("Outer").status.description == "the second"


def test_failure_in_the_default_context_leaves_it_as_it_was(memory: SpanMemory) -> None:
    """The next compile in this thread is traced like the first."""
    tilelang_otel.instrument(memory.provider)
    with pytest.raises(ValueError, match="boom"):
        _boom()(empty_module())
    assert len(transform.PassContext.current().instruments) == 0
    _identity()(empty_module())
    assert outline(memory.spans, "error.type") == [
        "PassContext! ValueError",
        "  Boom!* ValueError",
        "PassContext",
        "  Id",
    ]


# -- providers ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("swallowing")
@pytest.mark.parametrize("call", BROKEN_CALLS)
def test_broken_provider_changes_no_result_and_no_exception(call: str, memory: SpanMemory) -> None:
    """With every call of the API failing in turn."""
    tilelang_otel.instrument(BrokenProvider(memory.provider, call))
    assert compile_mlp() is not None
    mod = empty_module()
    assert _identity()(mod).same_as(mod)
    with pytest.raises(ValueError, match=r"^boom$") as caught:
        _compile_with(_boom())
    assert caught.value.__context__ is None
    assert len(transform.PassContext.current().instruments) == 0


def test_applications_provider_is_used_whenever_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked up at each compile, and never replaced."""
    tilelang_otel.instrument()
    compile_mlp()
    memory = SpanMemory()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", memory.provider)
    tirx.build(scaling(), target=_LLVM)
    assert [root.name for root in trees(memory.spans)] == ["compile main"]
    assert trace.get_tracer_provider() is memory.provider


# -- nothing to record ----------------------------------------------------------------------------


def test_unsampled_compile_records_nothing_and_passes_its_context_on() -> None:
    """What the program starts in there is unsampled too, in the same trace."""
    memory = SpanMemory(sampling.ParentBased(sampling.ALWAYS_OFF))
    tilelang_otel.instrument(memory.provider)
    seen: list[Any] = []

    def body(mod: Any) -> Any:
        seen.append(trace.get_current_span().get_span_context())
        with memory.provider.get_tracer("program").start_as_current_span("users") as span:
            seen.append(span.get_span_context())
        return _identity()(mod)

    default = relax.get_default_pipeline(tvm.target.Target(_LLVM))
    with transform.PassContext():
        _compile_with(python_pass("Mine", body), default)
    assert memory.spans == ()
    assert [context.is_valid for context in seen] == [True, True]
    assert [context.trace_flags.sampled for context in seen] == [False, False]
    assert len({context.trace_id for context in seen}) == 1


def test_unsampled_compile_reads_no_pass_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its callbacks return at once, in explicit contexts and in the default one."""
    memory = SpanMemory(sampling.ALWAYS_OFF)
    tilelang_otel.instrument(memory.provider)
    monkeypatch.setattr(
        "tilelang_otel._frames.Frame.name",
        property(lambda self: pytest.fail("a name was read")),
    )
    monkeypatch.setattr(
        "tilelang_otel.events._callbacks.Frame", lambda: pytest.fail("a frame was made")
    )
    compile_mlp()
    with transform.PassContext(opt_level=3):
        compile_mlp()
        with transform.PassContext():
            compile_mlp()
    assert memory.spans == ()


def test_suppressed_compile_records_nothing(memory: SpanMemory) -> None:
    """And the next one is recorded."""
    tilelang_otel.instrument(memory.provider)
    with suppress_instrumentation():
        compile_mlp()
        with transform.PassContext():
            _identity()(empty_module())
        _identity()(empty_module())
    assert memory.spans == ()
    tirx.build(scaling(), target=_LLVM)
    assert [root.name for root in trees(memory.spans)] == ["compile main"]


# -- a TVM that is not as we know it ------------------------------------------------------------


@pytest.mark.usefixtures("swallowing")
@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        ("tvm.driver.build_module", None, "compile"),
        ("tvm.relax.vm_build", None, "build"),
        ("tvm.relax.vm_build", None, "_vmcodegen"),
        ("tvm.tirx.build", None, "build"),
        ("tvm.tirx.build", None, "codegen_build"),
        ("tvm.ir.transform", "PassContext", "override_instruments"),
        ("tvm.tirx", None, "get_tir_pipeline"),
    ],
)
def test_tvm_without_something_that_we_wrap_is_traced_without_it(
    module: str, owner: str | None, name: str, memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes above all; and what we do wrap is restored as ever."""
    holder = sys.modules[module] if owner is None else getattr(sys.modules[module], owner)
    monkeypatch.delattr(holder, name)
    tilelang_otel.instrument(memory.provider)
    with transform.PassContext():
        _identity()(empty_module())
    assert outline(memory.spans) == ["PassContext", "  Id"]


@pytest.mark.usefixtures("swallowing")
@pytest.mark.parametrize("name", ["PassContext", "Pass"])
def test_tvm_without_contexts_or_passes_is_left_untouched_with_a_warning(
    name: str,
    memory: SpanMemory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is nothing to trace then; the program must not notice."""
    kept = transform.PassContext, transform.Pass
    monkeypatch.delattr(transform, name)
    before = dict(vars(kept[0])), dict(vars(kept[1]))
    with caplog.at_level(logging.WARNING, "tilelang_otel"):
        tilelang_otel.instrument(memory.provider)
    monkeypatch.undo()
    assert "The compile itself is not affected" in caplog.text
    assert dict(vars(kept[0]))["__init__"] is before[0]["__init__"] or name == "Pass"
    mod = empty_module()
    assert _identity()(mod).same_as(mod)
    assert compile_mlp() is not None
