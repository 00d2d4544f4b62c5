"""The benchmarks' gates on a real TVM: they hold, and they notice when something does not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

from tests.support.require import require_tvm

require_tvm()

from tests.benchmarks import compiles  # noqa: E402
from tests.benchmarks.counts import check_spans, measure_pass_costs  # noqa: E402
from tests.benchmarks.emission import measure_emission  # noqa: E402
from tests.benchmarks.latency import measure_latency  # noqa: E402
from tests.benchmarks.memory import measure_memory  # noqa: E402
from tests.benchmarks.variants import Discard, Variant  # noqa: E402
from tilelang_otel import OTelPassObserver, semconv  # noqa: E402
from tilelang_otel.events import StackedPassInstrument  # noqa: E402

_NOTHING = Variant("nothing", "nothing")


class _Forgetful(Discard):
    """Loses the span of a pass."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return super().export(
            [s for s in spans if (s.attributes or {}).get(semconv.TVM_PASS_SEQUENCE) != 5]
        )


class _Leaky(OTelPassObserver):
    """Keeps every event."""

    def __init__(self, provider: TracerProvider) -> None:
        super().__init__(provider)
        self.kept: list[Any] = []

    def pass_started(self, mod: Any, event: Any) -> Any:
        self.kept.append(event)
        return super().pass_started(mod, event)


def _variant(exporter: Discard, observer: type[OTelPassObserver] = OTelPassObserver) -> Variant:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument = StackedPassInstrument(observer(provider))
    return Variant("discard", "ours", [instrument], exporter=exporter)


def test_counts_of_a_real_run_hold() -> None:
    """Every span is emitted and arrives, recording a pass is bounded, nothing stays behind."""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--counts"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=200,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "counts are as they must be" in run.stdout
    assert run.stderr == ""


def test_check_spans_with_all_spans_holds() -> None:
    """As many pass spans as TVM says there are passes."""
    [check] = check_spans([_variant(Discard())], compiles.small(), "small")
    assert check.holds, check
    assert int(check.expected) > 50


def test_check_spans_with_a_lost_span_fails() -> None:
    """A span that is missing is noticed."""
    [check] = check_spans([_variant(_Forgetful())], compiles.small(), "small")
    assert not check.holds
    assert int(check.got) < int(check.expected)


def test_measure_pass_costs_with_a_leak_finds_it() -> None:
    """What an observer keeps is counted, during the context and after it."""
    leaky = _variant(Discard(), _Leaky)
    costs = measure_pass_costs([_NOTHING, _variant(Discard()), replace(leaky, key="leaky")])
    assert costs["discard"].left < 10
    assert costs["leaky"].left >= 100
    assert costs["leaky"].blocks > costs["discard"].blocks


def test_measure_memory_with_a_leak_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays behind of each compile is counted."""
    monkeypatch.setattr("tests.benchmarks.memory.COMPILES", 300)
    leaky = _variant(Discard(), _Leaky)
    found = measure_memory([_variant(Discard()), replace(leaky, key="leaky")])
    assert (found["discard"].ours, found["discard"].objects < 30) == (0, True)
    assert found["leaky"].ours >= 20 * 100


def test_measure_emission_emits_each_span_once_a_way() -> None:
    """Bare and ours make the same spans, so that their times can be compared."""
    found = measure_emission(compiles.small(), rounds=2)
    assert found.spans > 50
    assert 0 < found.bare_us.low <= found.ours_us.high * 10


def test_measure_latency_compares_with_nothing_of_the_same_round() -> None:
    """Nothing itself is exactly once itself."""
    variants = [_NOTHING, _variant(Discard())]
    found = measure_latency(variants, compiles.cheap_passes(5), rounds=3)
    assert found["nothing"].ratio.median == found["nothing"].cpu_ratio.median == 1
    assert found["discard"].ratio.low > 0
