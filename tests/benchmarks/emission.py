"""What making a span of a record costs, beside the SDK's own part in that."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Tracer, set_span_in_context

from tests.benchmarks.compiles import Compile
from tests.benchmarks.statistics import Spread, interleaved, spread_of
from tests.benchmarks.variants import discarding_provider
from tilelang_otel import OTelPassObserver, _emission, _spans
from tilelang_otel._frames import Frame, Record

__all__ = ["Emission", "measure_emission"]


@dataclass(frozen=True)
class Emission:
    """Microseconds a span, and how often the SDK's own cost that is."""

    spans: int
    """How many spans one compile has."""
    bare_us: Spread
    """``start_span`` and ``end``, with attributes, parents and times at hand."""
    ours_us: Spread
    """From records whose names are yet to be read from TVM, as they are."""
    ours_ratio: Spread
    named_us: Spread
    """The same, had the names been read."""
    named_ratio: Spread


@dataclass
class _Compile:
    """What one compile handed over to be emitted."""

    records: list[Record]
    root: Record
    tracer: Tracer
    wall_offset_ns: int


def measure_emission(
    compile_it: Compile, rounds: int, on_round: Callable[[int], None] | None = None
) -> Emission:
    """Emit the records of a real compile again and again, in turn with bare spans.

    CPU time of this thread, so that other programs on the machine do not count.

    Args:
        compile_it: The compile.
        rounds: How often.
        on_round: Told each round's number.
    """
    provider, _ = discarding_provider()
    compiled = _record(compile_it, OTelPassObserver(provider))
    bare = _bare_spans(compiled)
    ways: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "bare": (lambda: None, bare),
        "ours": (lambda: _reset(compiled, has_names=False), lambda: _emit(compiled)),
        "named": (lambda: _reset(compiled, has_names=True), lambda: _emit(compiled)),
    }
    times: dict[str, list[float]] = {key: [] for key in ways}
    for key in interleaved(list(ways), rounds, on_round):
        prepare, run = ways[key]
        prepare()
        gc.collect(1)
        start_ns = time.thread_time_ns()
        run()
        end_ns = time.thread_time_ns()
        provider.force_flush()
        times[key].append((end_ns - start_ns) / 1e3 / len(compiled.records))
    return Emission(
        spans=len(compiled.records),
        bare_us=spread_of(times["bare"]),
        ours_us=spread_of(times["ours"]),
        ours_ratio=_ratios(times["ours"], times["bare"]),
        named_us=spread_of(times["named"]),
        named_ratio=_ratios(times["named"], times["bare"]),
    )


def _record(compile_it: Compile, observer: OTelPassObserver) -> _Compile:
    """Compile once, and keep what was to be emitted."""
    from tvm.ir import transform  # pyright: ignore[reportMissingImports]

    from tilelang_otel.events import StackedPassInstrument

    kept: list[tuple[list[Record], Tracer, int]] = []

    def keep(
        records: Any, tracer: Tracer, context: Context | None, offset_ns: int, log: None
    ) -> list[Record]:
        kept.append((list(records), tracer, offset_ns))
        return []

    context = transform.PassContext(instruments=[StackedPassInstrument(observer)])
    with mock.patch.object(_emission, "emit", keep), context:
        compile_it()
    [([*records, root], tracer, wall_offset_ns)] = kept
    return _Compile(records, root, tracer, wall_offset_ns)


def _emit(compiled: _Compile) -> None:
    _spans.emit(compiled.records, compiled.tracer, None, compiled.wall_offset_ns)


def _reset(compiled: _Compile, has_names: bool) -> None:
    """Make the records as they were before they were emitted."""
    for record in compiled.records:
        record.span = record.span_context = None
        record.is_sent = False
        if isinstance(record, Frame) and not has_names:
            record.known_name = None


def _bare_spans(compiled: _Compile) -> Callable[[], None]:
    """Return the SDK's part of emitting the same: all arguments are at hand."""
    _emit(compiled)
    offset_ns = compiled.wall_offset_ns
    calls: list[tuple[str, Context, Any, int, int]] = []
    for record in compiled.records:
        parent = record.parent
        assert parent is not None
        calls.append(
            (
                record.name,
                set_span_in_context(parent.span),
                dict(record.span.attributes),
                record.start_ns + offset_ns,
                record.end_ns + offset_ns,
            )
        )
    start_span = compiled.tracer.start_span

    def run() -> None:
        for name, context, attributes, start_ns, end_ns in calls:
            start_span(name, context, SpanKind.INTERNAL, attributes, None, start_ns, False).end(
                end_ns
            )

    return run


def _ratios(values: list[float], base: list[float]) -> Spread:
    return spread_of([value / of for value, of in zip(values, base, strict=True)])
