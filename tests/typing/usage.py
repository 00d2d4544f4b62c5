"""Typical calls, for the type checker alone: nobody runs this."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import TracerProvider
from typing_extensions import assert_type

import tilelang_otel
from tilelang_otel import OTelPassObserver, TileLangInstrumentor, TVMInstrumentor
from tilelang_otel.events import (
    IncompletePass,
    PassEvent,
    PassEventObserver,
    StackedPassInstrument,
    active_stacked_pass_instruments,
    current_pass_phase,
    pass_phase,
)


def configure_and_instrument() -> None:
    provider = tilelang_otel.configure()
    assert_type(provider, TracerProvider)
    tilelang_otel.configure(default_exporter="otlp_jsonl", exit_timeout_s=2)
    tilelang_otel.instrument(provider, exclude=["tirx.*"], part_age_s=1.5)
    tilelang_otel.instrument(include="tirx.*,s_tir.*", capture_nested=False)
    tilelang_otel.uninstrument()
    assert_type(tilelang_otel.flush(timeout_s=1.0), bool)
    TVMInstrumentor().instrument(tracer_provider=provider)
    TileLangInstrumentor().uninstrument()


def by_hand(mod: Any, info: Any) -> None:
    instrument = StackedPassInstrument(
        OTelPassObserver(context_span=False, part_spans=100),
        capture_nested=False,
        capture_predicate=lambda name, depth: depth < 3 and name != "sequential",
        sequence_allocator=lambda: 1,
        phase_provider=current_pass_phase,
    )
    with pass_phase("lower"), pass_phase(None):
        instrument.run_before_pass(mod, info)
        instrument.run_after_pass(mod, info)
    assert_type(instrument.pending_events, tuple[PassEvent, ...])
    assert_type(instrument.abort(), tuple[IncompletePass, ...])
    assert_type(active_stacked_pass_instruments(), tuple[StackedPassInstrument, ...])


class Mine(PassEventObserver):
    def pass_started(self, mod: Any, event: PassEvent) -> int:
        return event.sequence
