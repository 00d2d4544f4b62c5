"""The observer in many real pass contexts at once, and under hooks that others call."""

from __future__ import annotations

import threading
from typing import Any

from opentelemetry import trace

from tests.support.require import require_tvm
from tests.support.spans import SpanMemory, assert_sound, outline
from tests.support.threads import in_threads
from tests.support.tvm_modules import empty_module, python_pass, raising, tolerant

require_tvm()

from tvm.ir import transform  # noqa: E402

from tilelang_otel import OTelPassObserver  # noqa: E402
from tilelang_otel.events import (  # noqa: E402
    StackedPassInstrument,
    active_stacked_pass_instruments,
)


def _identity(name: str = "Id") -> Any:
    return python_pass(name, lambda mod: mod)


# -- one instrument, many contexts ----------------------------------------------------------


def test_instrument_entered_again_inside_a_pass_loses_nothing(memory: SpanMemory) -> None:
    """The outer pass still closes, and numbering goes on where it was."""
    instrument = StackedPassInstrument(OTelPassObserver(memory.provider))

    def outer(mod: Any) -> Any:
        with transform.PassContext(instruments=[instrument]):
            return _identity("Inner")(mod)

    with transform.PassContext(instruments=[instrument]):
        python_pass("Outer", outer)(empty_module())
        _identity("Next")(empty_module())
    assert outline(memory.spans, "tvm.pass.sequence") == [
        "PassContext",
        "  Outer 0",
        "    Inner 0",
        "  Next 1",
    ]
    assert_sound(memory.spans)


def test_instrument_listed_twice_stays_balanced(memory: SpanMemory) -> None:
    """Each pass is seen twice; all spans end, and nothing is current."""
    instrument = StackedPassInstrument(OTelPassObserver(memory.provider))
    with transform.PassContext(instruments=[instrument, instrument]):
        tolerant("Tol", raising("Boom", ValueError("boom")), _identity())(empty_module())
    names = sorted(span.name for span in memory.spans)
    assert names == ["Boom", "Boom", "Id", "Id", "PassContext", "Tol", "Tol"]
    assert [span.name for span in memory.spans if not span.status.is_ok] == ["Boom", "Boom"]
    assert_sound(memory.spans)


def test_two_instruments_in_one_context_leave_no_span_current(memory: SpanMemory) -> None:
    """TVM exits first in, first out: whoever attaches in callbacks restores the wrong span."""
    other = SpanMemory()
    with memory.provider.get_tracer("program").start_as_current_span("request") as request:
        observers = OTelPassObserver(memory.provider), OTelPassObserver(other.provider)
        instruments = [StackedPassInstrument(observer) for observer in observers]
        with transform.PassContext(instruments=instruments):
            assert len(active_stacked_pass_instruments()) == 2
            _identity()(empty_module())
            assert trace.get_current_span() is request
        assert active_stacked_pass_instruments() == ()
        assert trace.get_current_span() is request
    assert outline(memory.spans) == ["request", "  PassContext", "    Id"]
    assert outline(other.spans) == ["PassContext", "  Id"]


def test_one_instrument_in_two_threads_keeps_them_apart(memory: SpanMemory) -> None:
    """Two compiles at once: no cross-thread parents, sequences from zero in both."""
    instrument = StackedPassInstrument(OTelPassObserver(memory.provider))
    together = threading.Barrier(2, timeout=20)

    def compile_(number: int) -> None:
        def inner(mod: Any) -> Any:
            together.wait()
            return _identity(f"inner {number}")(mod)

        with transform.PassContext(instruments=[instrument]):
            together.wait()
            python_pass(f"outer {number}", inner)(empty_module())
            together.wait()

    in_threads(2, compile_)
    lines = outline(memory.spans, "tvm.pass.sequence")
    expected = [["PassContext", f"  outer {n} 0", f"    inner {n} 1"] for n in range(2)]
    assert lines in (expected[0] + expected[1], expected[1] + expected[0])
    assert_sound(memory.spans)


# -- hooks that others call ---------------------------------------------------------------------


def test_subclass_that_extends_the_hooks_still_tells_dead_passes_apart(
    memory: SpanMemory,
) -> None:
    """Its hooks are called by TVM as well, one Python frame further out."""
    seen: list[str] = []

    class Extended(StackedPassInstrument):
        def run_before_pass(self, mod: Any, info: Any) -> None:
            seen.append(info.name)
            super().run_before_pass(mod, info)

        def run_after_pass(self, mod: Any, info: Any) -> None:
            super().run_after_pass(mod, info)

        def should_run(self, mod: Any, info: Any) -> Any:
            return info.name != "Skipped"

    with transform.PassContext(instruments=[Extended(OTelPassObserver(memory.provider))]):
        tol = tolerant("Tol", raising("Boom", ValueError("boom")), _identity())
        transform.Sequential([tol, _identity("Skipped")], name="Seq")(empty_module())
    assert outline(memory.spans) == ["PassContext", "  Seq", "    Tol", "      Boom!", "      Id"]
    assert seen == ["Seq", "Tol", "Boom", "Id"]


def test_hooks_called_by_hand_pair_by_name_wherever_they_are_called_from(
    memory: SpanMemory,
) -> None:
    """Any object with a name stands for a pass, and no context is needed."""
    instrument = StackedPassInstrument(OTelPassObserver(memory.provider))

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    def start(name: str) -> None:
        instrument.run_before_pass(None, Named(name))

    for name in ("A", "B"):
        start(name)
    assert [event.name for event in instrument.pending_events] == ["A", "B"]
    for name in ("B", "A"):
        instrument.run_after_pass(None, Named(name))
    assert instrument.pending_events == ()
    assert outline(memory.spans) == ["A", "  B"]
