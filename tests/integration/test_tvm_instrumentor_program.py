"""Zero-code tracing of TVM leaves the program alone: its instruments, functions, contexts."""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Iterator
from typing import Any

import pytest
import wrapt

import tilelang_otel
from tests.support.require import require_tvm
from tests.support.spans import SpanMemory, outline
from tests.support.tvm_modules import CallLog, call_log, compile_mlp, empty_module, python_pass

require_tvm()

import tvm  # noqa: E402
from tvm import relax, tirx  # noqa: E402
from tvm.ir import transform  # noqa: E402

from tilelang_otel import TVMInstrumentor  # noqa: E402

_LLVM: Any = "llvm"


@pytest.fixture(autouse=True)
def uninstrumented_afterwards() -> Iterator[None]:
    """Take tracing off, whatever the test did."""
    yield
    tilelang_otel.uninstrument()


def _identity(name: str = "Id") -> Any:
    return python_pass(name, lambda mod: mod)


# -- put on, take off -------------------------------------------------------------------------

_WRAPPED: list[tuple[Any, str]] = [
    (transform.PassContext, "__init__"),
    (transform.PassContext, "override_instruments"),
    (transform.PassContext, "__exit__"),
    (transform.Pass, "__call__"),
    (tvm, "compile"),
    (tvm.driver, "compile"),
    (relax, "build"),
    (tirx, "build"),
]


def _state() -> list[Any]:
    """Return every function that tracing may have touched, as it is stored."""
    return [vars(owner)[name] for owner, name in _WRAPPED]


def test_uninstrument_restores_the_very_objects(memory: SpanMemory) -> None:
    """Not equal ones: whoever compares, or has wrapped them, sees no difference."""
    before = _state()
    tilelang_otel.instrument(memory.provider)
    assert _state() != before
    tilelang_otel.uninstrument()
    assert [now is was for now, was in zip(_state(), before, strict=True)] == [True] * len(before)


def test_uninstrument_ends_tracing_also_of_contexts_made_before(memory: SpanMemory) -> None:
    """A context keeps the instrument it was made with; that one falls silent."""
    tilelang_otel.instrument(memory.provider)
    context = transform.PassContext()
    with context:
        _identity()(empty_module())
    assert outline(memory.take()) == ["PassContext", "  Id"]
    tilelang_otel.uninstrument()
    with context:
        _identity()(empty_module())
        compile_mlp()
    _identity()(empty_module())
    assert memory.spans == ()


def test_uninstrument_inside_a_context_loses_no_open_span(memory: SpanMemory) -> None:
    """The program may change its mind in the middle of a compile."""
    tilelang_otel.instrument(memory.provider)

    def body(mod: Any) -> Any:
        tilelang_otel.uninstrument()
        return mod

    with transform.PassContext():
        python_pass("Outer", body)(empty_module())
    assert outline(memory.spans)[:2] == ["PassContext", "  Outer"]


def test_contexts_made_before_instrument_are_traced_unless_they_have_instruments(
    memory: SpanMemory,
) -> None:
    """Changing the list of one that has some would call their hooks once more."""
    plain = transform.PassContext()
    calls: CallLog = []
    taken: Any = transform.PassContext(instruments=[call_log(calls)])
    tilelang_otel.instrument(memory.provider)
    with plain:
        _identity("A")(empty_module())
    with taken:
        _identity("B")(empty_module())
    assert [call[0] for call in calls] == [
        "enter_pass_ctx",
        "should_run",
        "run_before_pass",
        "run_after_pass",
        "exit_pass_ctx",
    ]
    assert outline(memory.spans) == ["PassContext", "  A"]


def test_instrumenting_twice_records_everything_once(memory: SpanMemory) -> None:
    """By function or by class, also mixed; one uninstrument takes it off."""
    before = _state()
    tilelang_otel.instrument(memory.provider)
    tilelang_otel.instrument(memory.provider)
    with pytest.MonkeyPatch.context() as patch:
        # It warns in its log when it is on already.
        patch.setattr("opentelemetry.instrumentation.instrumentor._LOG.disabled", True)
        TVMInstrumentor().instrument(tracer_provider=memory.provider)
    _identity()(empty_module())
    assert outline(memory.spans) == ["PassContext", "  Id"]
    tilelang_otel.uninstrument()
    assert _state() == before


def test_instrumenting_twice_warns_of_what_the_second_cannot_change(
    memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """Options and providers that are others than those in force; the same ones are no news."""
    tilelang_otel.instrument(memory.provider, emit="slow", exclude="A,B")
    tilelang_otel.instrument()
    tilelang_otel.instrument(memory.provider, emit="slow", exclude=["A", "B"])
    assert caplog.messages == []
    tilelang_otel.instrument(SpanMemory().provider, emit="compile", exclude="A,B", slow_s=5)
    assert caplog.messages == [
        "instrument(tracer_provider=…, emit=…) has no effect: compiles are traced already, "
        "and not like that; call uninstrument() first"
    ]


def test_instrument_again_after_uninstrument_works(memory: SpanMemory) -> None:
    """With other options too."""
    for exclude, lines in (("B", ["PassContext", "  A"]), ("A", ["PassContext", "  B"])):
        tilelang_otel.instrument(memory.provider, exclude=exclude)
        with transform.PassContext():
            _identity("A")(empty_module())
            _identity("B")(empty_module())
        tilelang_otel.uninstrument()
        assert outline(memory.take()) == lines


def test_wrappers_of_others_on_top_of_ours_stay_and_keep_working(memory: SpanMemory) -> None:
    """Ours then stays below theirs, and does nothing."""
    original = tvm.compile
    tilelang_otel.instrument(memory.provider)
    called: list[str] = []

    def theirs(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        called.append("theirs")
        return wrapped(*args, **kwargs)

    holder: Any = tvm
    holder.compile = wrapt.FunctionWrapper(tvm.compile, theirs)
    try:
        compile_mlp()
        assert memory.take()
        tilelang_otel.uninstrument()
        compile_mlp()
        assert memory.spans == ()
        assert called == ["theirs", "theirs"]
    finally:
        holder.compile = original


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_wrapped_functions_can_be_sent_and_copied(way: Any, memory: SpanMemory) -> None:
    """Programs hand them to worker processes; there, they are what that process has."""
    tilelang_otel.instrument(memory.provider)
    for function in (tvm.compile, relax.build, tirx.build):
        sent = way(function)
        back = pickle.loads(sent) if isinstance(sent, bytes) else sent
        assert back is function
    sent = pickle.dumps(tvm.compile)
    tilelang_otel.uninstrument()
    assert pickle.loads(sent) is tvm.compile


_TVM: Any = tvm  # some of these calls no type checker lets through
_PASS_CONTEXT: Any = transform.PassContext


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (lambda: _TVM.compile(None, target="llvm"), ValueError),
        (lambda: _TVM.compile(), TypeError),
        (lambda: _TVM.relax.build(3), TypeError),
        (lambda: _TVM.tirx.build("x"), AssertionError),
        (lambda: _PASS_CONTEXT(instruments=3), TypeError),
        (lambda: _PASS_CONTEXT(bogus=1), TypeError),
        (lambda: _PASS_CONTEXT().override_instruments(3), TypeError),
        (lambda: _PASS_CONTEXT().override_instruments(), TypeError),
    ],
)
def test_mistakes_of_the_program_raise_what_they_raised_before(
    mistake: Any, error: type[Exception], memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """The same exception with the same message, and nothing from us beside it."""
    with pytest.raises(error) as plain:
        mistake()
    tilelang_otel.instrument(memory.provider)
    with pytest.raises(error) as traced:
        mistake()
    assert str(traced.value) == str(plain.value)
    assert type(traced.value) is type(plain.value)
    assert caplog.records == []


def test_wrapped_functions_look_like_the_originals(memory: SpanMemory) -> None:
    """Programs introspect: names, docs and signatures are TVM's."""
    import inspect

    before = [(f.__name__, f.__doc__, str(inspect.signature(f))) for f in _functions()]
    tilelang_otel.instrument(memory.provider)
    assert [(f.__name__, f.__doc__, str(inspect.signature(f))) for f in _functions()] == before


def _functions() -> list[Any]:
    return [transform.Pass.__call__, transform.PassContext.__init__, tvm.compile, relax.build]


def test_module_types_stay_callable_as_before(memory: SpanMemory) -> None:
    """A module attribute that is a function in TVM stays a function-like object."""
    tilelang_otel.instrument(memory.provider)
    for function in (tvm.compile, relax.build):
        assert callable(function)
        assert isinstance(function, types.FunctionType)
