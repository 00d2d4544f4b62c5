"""Metrics of compiles, counted from the records that spans are made of.

Owns the instruments, which of them a record counts in, and how many names are told
apart. Metrics see every finished record: also of compiles that are not sampled, and
those that get no span of their own. Names, units and attributes are ``semconv``'s;
when records are counted, and in which thread, is up to ``_emission``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import Meter, MeterProvider, NoOpMeter

from tilelang_otel import semconv
from tilelang_otel._frames import Frame, Record
from tilelang_otel._guard import guard
from tilelang_otel._scrub import clean_name
from tilelang_otel.version import __version__

__all__ = ["Instruments", "Metrics"]

_BUCKETS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
"""For what compilers do: 100 µs to 10 min."""

_OWN_BUCKETS_S: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
)
"""For what we do: 10 µs to 1 s."""

_LOOKUPS: Final = frozenset({"memory", "disk", "miss"})
"""Results of a cache that was asked; ``disabled`` is not one."""

_turn = threading.RLock()
"""Held while an instrument counts, and while the process forks. The SDK has plain locks
around its sums: a child that was forked from another thread at that moment would wait
for one for ever, in the middle of a compile."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release
    )


class _Names:
    """Lets the first values of an attribute through, so that there is an end to series.

    Args:
        limit: How many values are told apart.
        rest: What the others are called.
    """

    def __init__(self, limit: int, rest: str = semconv.METRIC_OTHER) -> None:
        self._limit = limit
        self._rest = rest
        self._known: dict[str, str] = {}

    def __call__(self, value: Any) -> str:
        name = clean_name(str(value))
        known = self._known
        if name not in known:
            with _turn:
                if len(known) < self._limit:
                    known[name] = name
        return known.get(name, self._rest)


_limits: Final[Mapping[str, _Names]] = {
    semconv.TVM_PASS_NAME: _Names(512),
    semconv.TVM_PASS_PHASE: _Names(64),
    semconv.TILELANG_WORK_NAME: _Names(64),
    semconv.TILELANG_KERNEL_NAME: _Names(100),
    semconv.TVM_TARGET_KIND: _Names(32),
    semconv.TILELANG_EXECUTION_BACKEND: _Names(32),
    semconv.TILELANG_CACHE_RESULT: _Names(16),
    semconv.TILELANG_COMPILE_TRIGGER: _Names(16),
    semconv.ERROR_TYPE: _Names(64, semconv.ERROR_TYPE_OTHER),
}
"""Of the process, as series are: whoever compiles with two providers has one limit."""

_COMPILE_ATTRIBUTES: Final = (
    semconv.TILELANG_KERNEL_NAME,
    semconv.TVM_TARGET_KIND,
    semconv.TILELANG_EXECUTION_BACKEND,
    semconv.TILELANG_CACHE_RESULT,
    semconv.TILELANG_COMPILE_TRIGGER,
)

_RUNTIME_ATTRIBUTES: Final = (
    semconv.TILELANG_KERNEL_NAME,
    semconv.TVM_TARGET_KIND,
    semconv.TILELANG_CACHE_RESULT,
)


class Metrics:
    """The instruments of whichever meter provider is in force.

    Args:
        meter_provider: Where metrics go; None means the global one, looked up at
            each compile.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        self._meter_provider = meter_provider
        self._cached: tuple[MeterProvider, Instruments | None] | None = None

    def current(self) -> Instruments | None:
        """Return what to count in; None if nobody takes metrics. Never raises."""
        with guard:
            provider = self._meter_provider or metrics.get_meter_provider()
            cached = self._cached
            if cached is None or cached[0] is not provider:
                meter = _meter_of(provider)
                cached = self._cached = (provider, meter and Instruments(meter))
            return cached[1]
        return None


def _meter_of(provider: MeterProvider) -> Meter | None:
    """Return this package's meter; None where nothing is taken, as by a disabled SDK."""
    # What stands for a provider that is yet to come has no public name.
    if type(provider).__name__ == "_ProxyMeterProvider":
        return None
    meter = provider.get_meter(semconv.SCOPE_NAME, __version__, semconv.SCHEMA_URL)
    return None if isinstance(meter, NoOpMeter) else meter


class Instruments:
    """What is counted and timed. None of the methods raises.

    Args:
        meter: Makes the instruments.
    """

    def __init__(self, meter: Meter) -> None:
        self._passes = meter.create_histogram(
            semconv.METRIC_PASS_DURATION,
            "s",
            "How long passes took, with what ran inside them.",
            explicit_bucket_boundaries_advisory=_BUCKETS_S,
        )
        self._compiles = meter.create_histogram(
            semconv.METRIC_COMPILE_DURATION,
            "s",
            "How long compiles took, cache hits among them.",
            explicit_bucket_boundaries_advisory=_BUCKETS_S,
        )
        self._active = meter.create_up_down_counter(
            semconv.METRIC_COMPILE_ACTIVE, "{compile}", "Compiles that are running."
        )
        self._failures = meter.create_counter(
            semconv.METRIC_COMPILE_FAILURES, "{compile}", "Compiles that failed."
        )
        self._lookups = meter.create_counter(
            semconv.METRIC_CACHE_LOOKUPS, "{lookup}", "Answers of the kernel cache."
        )
        self._stalls = meter.create_counter(
            semconv.METRIC_COMPILE_STALLS, "{stall}", "Work that ran for longer than the limit."
        )
        self._after_warmup = meter.create_counter(
            semconv.METRIC_COMPILE_AFTER_WARMUP,
            "{compile}",
            "Compiles after the warm-up that no cache answered.",
        )
        self._own = meter.create_histogram(
            semconv.METRIC_TELEMETRY_DURATION,
            "s",
            "What telemetry took of a compile's thread, callbacks of passes aside.",
            explicit_bucket_boundaries_advisory=_OWN_BUCKETS_S,
        )

    def compile_began(self) -> None:
        """Count one more running compile."""
        with guard, _turn:
            self._active.add(1)

    def compile_ended(self) -> None:
        """Count one running compile less."""
        with guard, _turn:
            self._active.add(-1)

    def finished(
        self, records: Iterable[Record], context_of: Callable[[Record], Context | None]
    ) -> None:
        """Count finished records: passes and compiles; what else a compile does is no metric.

        Args:
            records: Each record is given once.
            context_of: Returns the context with the span that an exemplar links a
                record to; None where there is none.
        """
        rest = iter(records)
        while True:
            # Gone on with after a record that fails: it must not cost the others.
            with guard:
                for record in rest:
                    if isinstance(record, Frame):
                        self._pass(record, context_of(record))
                    elif record.scope_kind == semconv.SPAN_COMPILE:
                        self._compile(record, context_of(record))
                return

    def stalled(self, record: Record) -> None:
        """Count a piece of work that has been running for longer than the limit.

        Args:
            record: A pass, or other work.
        """
        with guard:
            is_pass = isinstance(record, Frame)
            key = semconv.TVM_PASS_NAME if is_pass else semconv.TILELANG_WORK_NAME
            self._count(self._stalls, {key: _limits[key](record.name)})

    def compiled_at_runtime(self, attributes: Mapping[str, Any]) -> None:
        """Count a compile that nobody wanted.

        Args:
            attributes: What is known of it.
        """
        with guard:
            self._count(self._after_warmup, _known(attributes, _RUNTIME_ATTRIBUTES))

    def telemetry(self, duration_s: float) -> None:
        """Take note of what we have cost a compile.

        Args:
            duration_s: In seconds; without the callbacks of passes.
        """
        with guard, _turn:
            self._own.record(duration_s)

    def _pass(self, frame: Frame, context: Context | None) -> None:
        attributes = {semconv.TVM_PASS_NAME: _limits[semconv.TVM_PASS_NAME](frame.name)}
        if frame.phase is not None:
            attributes[semconv.TVM_PASS_PHASE] = _limits[semconv.TVM_PASS_PHASE](frame.phase)
        if frame.failure is not None:
            attributes[semconv.ERROR_TYPE] = _limits[semconv.ERROR_TYPE](frame.failure.type)
        with _turn:
            self._passes.record(_duration_s(frame), attributes, context)

    def _compile(self, record: Record, context: Context | None) -> None:
        known = record.attributes or {}
        attributes = _known(known, _COMPILE_ATTRIBUTES)
        if record.failure is not None:
            attributes[semconv.ERROR_TYPE] = _limits[semconv.ERROR_TYPE](record.failure.type)
        with _turn:
            self._compiles.record(_duration_s(record), attributes, context)
        result = known.get(semconv.TILELANG_CACHE_RESULT)
        if result in _LOOKUPS:
            self._count(self._lookups, {semconv.TILELANG_CACHE_RESULT: result}, context)
        if record.failure is not None:
            failed = (semconv.ERROR_TYPE, semconv.TILELANG_KERNEL_NAME)
            self._count(
                self._failures,
                {key: attributes[key] for key in failed if key in attributes},
                context,
            )

    def _count(
        self, counter: metrics.Counter, attributes: dict[str, str], context: Context | None = None
    ) -> None:
        with _turn:
            counter.add(1, attributes, context)


def _known(attributes: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    return {name: _limits[name](attributes[name]) for name in names if name in attributes}


def _duration_s(record: Record) -> float:
    return max(record.end_ns - record.start_ns, 0) / 1e9
