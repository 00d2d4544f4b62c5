"""The parent of a compile, and what child processes inherit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import (
    CarrierT,
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tilelang_otel import _context
from tilelang_otel._context import is_suppressed, parent_context
from tilelang_otel._guard import guard

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def current_span() -> Iterator[SpanContext]:
    """Make a span current that is not the one of the environment."""
    context = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    token = otel_context.attach(trace.set_span_in_context(NonRecordingSpan(context)))
    yield context
    otel_context.detach(token)


def parent() -> SpanContext:
    """Return the span that a compile started now would get as its parent."""
    return trace.get_current_span(parent_context()).get_span_context()


def test_parent_context_with_nothing_set_is_the_current_context() -> None:
    """Without a span and without variables a compile starts a trace of its own."""
    assert parent_context() is otel_context.get_current()
    assert not parent().is_valid


def test_parent_context_with_a_current_span_ignores_the_environment(
    current_span: SpanContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span that is current wins over whoever started the process."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    assert parent() == current_span


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(PARENT, id="as specified"),
        pytest.param(f"  {PARENT}  ", id="padded"),
        pytest.param(f"{PARENT}\n", id="trailing newline"),
        pytest.param(f"01-{TRACE}-{SPAN}-01-more", id="later version with more"),
        pytest.param(f"00-{TRACE}-{SPAN}-09", id="unknown flags"),
    ],
)
def test_parent_context_with_traceparent_joins_that_trace(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A valid TRACEPARENT becomes a remote parent."""
    monkeypatch.setenv("TRACEPARENT", value)
    assert (f"{parent().trace_id:032x}", f"{parent().span_id:016x}") == (TRACE, SPAN)
    assert parent().is_remote


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(PARENT.upper(), id="upper case"),
        pytest.param(f'"{PARENT}"', id="quotes"),
        pytest.param(f"00-{TRACE}-{SPAN}", id="three fields"),
        pytest.param(f"00-{'0' * 32}-{SPAN}-01", id="zero trace id"),
        pytest.param(f"00-{TRACE}-{'0' * 16}-01", id="zero span id"),
        pytest.param(f"ff-{TRACE}-{SPAN}-01", id="version ff"),
        pytest.param(f"{PARENT}-more", id="version 00 with more"),
        pytest.param(f"zz-{TRACE}-{SPAN}-01", id="version zz"),
        pytest.param("00-1-2-01", id="short"),
        pytest.param("", id="empty"),
        pytest.param("\udcff", id="no text"),
    ],
)
def test_parent_context_with_malformed_traceparent_starts_a_trace(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is malformed is ignored, and the baggage beside it kept."""
    monkeypatch.setenv("TRACEPARENT", value)
    monkeypatch.setenv("BAGGAGE", "build=17")
    assert not parent().is_valid
    assert baggage.get_all(parent_context()) == {"build": "17"}


def test_parent_context_with_bad_tracestate_keeps_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A TRACESTATE that makes no sense does not cost the parent."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", "not a list, = ,")
    assert f"{parent().span_id:016x}" == SPAN
    assert not parent().trace_state


def test_parent_context_with_tracestate_hands_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's TRACESTATE stays with the trace."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", "vendor=1")
    assert parent().trace_state.get("vendor") == "1"


def test_parent_context_when_a_variable_changes_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The variables are read at each compile, not once for the process."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    assert f"{parent().span_id:016x}" == SPAN
    monkeypatch.setenv("TRACEPARENT", f"00-{TRACE}-{'1' * 16}-01")
    assert f"{parent().span_id:016x}" == "1" * 16
    monkeypatch.delenv("TRACEPARENT")
    assert not parent().is_valid


def test_parent_context_keeps_what_the_current_context_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values and baggage of the program itself stay, and win over the environment's."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("BAGGAGE", "who=environment,build=17")
    token = otel_context.attach(
        baggage.set_baggage("who", "program", otel_context.set_value("own", 1))
    )
    try:
        context = parent_context()
    finally:
        otel_context.detach(token)
    assert otel_context.get_value("own", context) == 1
    assert baggage.get_all(context) == {"who": "program", "build": "17"}


class _OtherPropagator(TextMapPropagator):
    """Reads and writes a field of its own; fails when it is told to."""

    @property
    def fields(self) -> set[str]:
        return {"x-other.id"}

    def extract(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> Context:
        [value] = getter.get(carrier, "x-other.id") or [""]
        if value == "boom":
            raise RuntimeError(value)
        span = NonRecordingSpan(SpanContext(1, int(value), is_remote=True))
        return trace.set_span_in_context(span, context)

    def inject(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        span = trace.get_current_span(context).get_span_context()
        setter.set(carrier, "x-other.id", str(span.span_id))


@pytest.fixture
def other_propagator() -> Iterator[None]:
    """Configure other propagators than the default."""
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(CompositePropagator([_OtherPropagator(), W3CBaggagePropagator()]))
    yield
    propagate.set_global_textmap(before)


@pytest.mark.parametrize("has_carrier", [True, False], ids=["API's carrier", "older API"])
@pytest.mark.usefixtures("other_propagator")
def test_parent_context_uses_the_configured_propagators(
    has_carrier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever format is configured is read, under upper-case names."""
    if not has_carrier:
        monkeypatch.setattr(_context, "_carrier", None)
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("X_OTHER_ID", "42")
    assert (parent().trace_id, parent().span_id) == (1, 42)


@pytest.mark.usefixtures("other_propagator", "swallowing")
def test_parent_context_when_a_propagator_raises_starts_a_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken propagator costs the parent, not the compile."""
    monkeypatch.setenv("X_OTHER_ID", "boom")
    assert parent_context() is otel_context.get_current()
    assert "compile itself is not affected" in caplog.text


def test_parent_context_parses_unchanged_variables_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that compiles a thousand kernels parses its parent once."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    reads: list[str] = []
    getter = _context._getter()
    read = type(getter).get
    monkeypatch.setattr(
        type(getter),
        "get",
        lambda self, carrier, key: reads.append(key) or read(self, carrier, key),
    )
    monkeypatch.setattr(_context, "_inherited", _context._Inherited())
    for _ in range(5):
        assert parent().is_valid
    assert sorted(reads) == sorted(set(reads))
    assert "traceparent" in reads


@pytest.mark.parametrize("key", ["suppress_instrumentation", "the API's own"])
def test_is_suppressed_honours_both_keys(key: str) -> None:
    """Old and new ways to ask for silence both work, and only where they are current."""
    if key == "the API's own":
        key = otel_context._SUPPRESS_INSTRUMENTATION_KEY
    assert not is_suppressed()
    token = otel_context.attach(otel_context.set_value(key, True))
    try:
        assert is_suppressed()
    finally:
        otel_context.detach(token)
    assert not is_suppressed()


def test_propagators_that_do_not_exist_are_warned_about_in_one_line() -> None:
    """A wrong OTEL_PROPAGATORS, at which the API's import raises, costs a line."""
    program = (
        "from tilelang_otel._context import parent_context\n"
        "from opentelemetry import trace\n"
        "print(trace.get_current_span(parent_context()).get_span_context().is_valid)"
    )
    environment = {**os.environ, "OTEL_PROPAGATORS": "b4", "TRACEPARENT": PARENT}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "True\n")
    [line] = done.stderr.splitlines()
    assert line.startswith("OTEL_PROPAGATORS='b4' is ignored, using tracecontext,baggage: expected")


def test_guard_reraises_in_tests() -> None:
    """The tests above would hide bugs if our own errors were swallowed in them."""
    assert guard.reraise


def test_instrumentors_load_with_a_propagator_that_is_not_installed(tmp_path: Path) -> None:
    """A wrong ``OTEL_PROPAGATORS`` gives one line, and raises nothing into the program."""
    done = subprocess.run(
        [sys.executable, "-c", "import tilelang_otel; tilelang_otel.instrument(); print('ok')"],
        cwd=tmp_path,
        env={**os.environ, "OTEL_PROPAGATORS": "not-there"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert done.stderr.count("\n") == 1
    assert "OTEL_PROPAGATORS='not-there' is ignored" in done.stderr
