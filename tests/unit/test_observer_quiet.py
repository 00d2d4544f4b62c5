"""When nothing is to be recorded, nothing is done: not even a name is read. No compiler."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import sampling
from opentelemetry.trace import NonRecordingSpan, NoOpTracerProvider, SpanContext, TraceFlags

from tests.support.fake_tvm import pass_context, run
from tests.support.observers import MODES, observed
from tests.support.spans import SpanMemory, Ticks, outline
from tilelang_otel import OTelPassObserver
from tilelang_otel.events import PassEvent

pytestmark = pytest.mark.parametrize("mode", MODES)


class _Unreadable:
    """A pass, or a module, that nobody may look at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was read")


def _compile_unseen(callbacks: Any) -> None:
    """Run passes that fail the test when anything of them is looked at."""
    with pass_context(callbacks):
        for hook in (callbacks.before, callbacks.before, callbacks.after, callbacks.after):
            hook(_Unreadable(), _Unreadable())
        with pass_context(callbacks):
            callbacks.before(_Unreadable(), _Unreadable())


def test_unsampled_compile_reads_neither_names_nor_the_clock(mode: str) -> None:
    """One decision for the whole compile, and callbacks that return at once."""
    memory = SpanMemory(sampling.ALWAYS_OFF)
    clock = Ticks()
    callbacks = observed(memory.provider, mode, monotonic_ns=clock)
    _compile_unseen(callbacks)
    assert clock.readings == 1
    assert memory.spans == ()


def test_unsampled_parent_decides_for_the_compile(mode: str) -> None:
    """A parent that is not sampled has no sampled children, with the default sampler."""
    memory = SpanMemory()
    callbacks = observed(memory.provider, mode)
    parent = NonRecordingSpan(SpanContext(7, 7, is_remote=True, trace_flags=TraceFlags(0)))
    with trace.use_span(parent):
        _compile_unseen(callbacks)
    with trace.use_span(parent):
        _compile_unseen(observed(memory.provider, mode, context_span=False))
    assert memory.spans == ()


def test_sampling_is_decided_anew_for_each_compile(mode: str) -> None:
    """An unsampled compile does not silence the next one."""

    class EverySecond(sampling.Sampler):
        calls = 0

        def should_sample(self, *args: Any, **kwargs: Any) -> sampling.SamplingResult:
            self.calls += 1
            sampler = sampling.ALWAYS_ON if self.calls % 2 == 0 else sampling.ALWAYS_OFF
            return sampler.should_sample(*args, **kwargs)

        def get_description(self) -> str:
            return "every second"

    memory = SpanMemory(sampling.ParentBased(EverySecond()))
    callbacks = observed(memory.provider, mode)
    for name in ("A", "B", "C", "D"):
        with pass_context(callbacks):
            run(callbacks, name)
    assert outline(memory.spans) == ["PassContext", "  B", "PassContext", "  D"]


def test_noop_provider_gets_no_work(mode: str) -> None:
    """Where the application has switched telemetry off, nothing is recorded."""
    _compile_unseen(observed(NoOpTracerProvider(), mode))
    _compile_unseen(observed(NoOpTracerProvider(), mode, context_span=False))


@pytest.mark.parametrize("key", ["contextmanager", "suppress_instrumentation"])
def test_suppressed_compile_gets_no_work(mode: str, key: str, memory: SpanMemory) -> None:
    """Both keys that OpenTelemetry has used are honoured."""
    callbacks = observed(memory.provider, mode)
    if key == "contextmanager":
        with suppress_instrumentation():
            _compile_unseen(callbacks)
    else:
        token = otel_context.attach(otel_context.set_value(key, True))
        try:
            _compile_unseen(callbacks)
        finally:
            otel_context.detach(token)
    with pass_context(callbacks):
        run(callbacks, "A")
    assert outline(memory.spans) == ["PassContext", "  A"]


def test_global_provider_set_later_is_used(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An observer made before the application sets its provider records once it is there."""
    memory = SpanMemory()
    callbacks = observed(None, mode)
    with pass_context(callbacks):
        run(callbacks, "Early")
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", memory.provider)
    with pass_context(callbacks):
        run(callbacks, "Late")
    assert outline(memory.spans) == ["PassContext", "  Late"]


def test_observer_without_provider_or_sdk_reads_no_names(mode: str) -> None:
    """A program without any telemetry set-up pays next to nothing."""
    _compile_unseen(observed(None, mode))


def test_events_of_an_unsampled_compile_by_hand_are_ignored(mode: str) -> None:
    """An instrument that does not know of refusals may tell everything."""
    memory = SpanMemory(sampling.ALWAYS_OFF)
    observer = OTelPassObserver(memory.provider)
    event = PassEvent("A", 0, 0, None, None)
    observer.enter_pass_context()
    state = observer.pass_started(_Unreadable(), event)
    observer.pass_finished(_Unreadable(), event, state)
    observer.exit_pass_context()
    assert state is None
    assert memory.spans == ()
