"""The ways of watching a compile that are compared.

Owns how each is put on and taken off, and where its spans go. Each is given
as the instruments of a pass context, but for zero-code, which is switched on
around one.
"""

from __future__ import annotations

import atexit
import importlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer, set_span_in_context

import tilelang_otel
from tilelang_otel import _background, semconv

__all__ = ["Discard", "Variant", "discarding_provider", "make_variants"]


class Discard(SpanExporter):
    """Counts spans and forgets them."""

    def __init__(self) -> None:
        self.spans = 0
        self.passes = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Count ``spans``, and those among them that are passes."""
        self.spans += len(spans)
        self.passes += sum(semconv.TVM_PASS_NAME in (span.attributes or {}) for span in spans)
        return SpanExportResult.SUCCESS


@dataclass
class Variant:
    """One way of watching."""

    key: str
    title: str
    instruments: list[Any] = field(default_factory=list[Any])
    flush: Callable[[], object] = lambda: None
    """Waits until its spans have been exported."""
    switched_on: Callable[[], AbstractContextManager[object]] = nullcontext
    exporter: Discard | None = None

    @contextmanager
    def context(self) -> Iterator[Any]:
        """Yield a pass context that is watched and not entered yet."""
        transform: Any = importlib.import_module("tvm.ir.transform")
        with self.switched_on():
            yield transform.PassContext(instruments=self.instruments)


def discarding_provider() -> tuple[TracerProvider, Discard]:
    """Return a provider as applications have it, but for where its spans go: nowhere."""
    exporter = Discard()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider, exporter


def make_variants() -> list[Variant]:
    """Return all of them, the one that does nothing first.

    The one that sends uses the global tracer provider.
    """
    instrument: Any = importlib.import_module("tvm.ir.instrument")
    return [
        Variant("nothing", "nothing"),
        Variant("noop", "Python no-op callbacks", [_noop_instrument()]),
        Variant(
            "cpp_timing", "TVM's PassTimingInstrument (C++)", [instrument.PassTimingInstrument()]
        ),
        _unsampled(),
        _recorded("discard", "ours, SDK, spans discarded"),
        _recorded("background", "the same, spans made in the background", background=True),
        _recorded(
            "crash",
            "ours, with the crash record",
            crash_record=True,
            crash_directory=_temporary_directory(),
        ),
        Variant("otlp", "ours, OTLP to a receiver", [_ours(None)], tilelang_otel.flush),
        Variant(
            "otlp_inline",
            "the same, spans made inline",
            [_ours(None, background=False)],
            tilelang_otel.flush,
        ),
        _zero_code(),
        _naive(),
    ]


def _ours(provider: TracerProvider | None, **options: Any) -> Any:
    events: Any = importlib.import_module("tilelang_otel.events")
    return events.StackedPassInstrument(tilelang_otel.OTelPassObserver(provider, **options))


def _unsampled() -> Variant:
    exporter = Discard()
    provider = TracerProvider(sampler=sampling.ALWAYS_OFF, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Variant(
        "unsampled",
        "ours, not sampled",
        [_ours(provider)],
        provider.force_flush,
        exporter=exporter,
    )


def _temporary_directory() -> str:
    directory = tempfile.mkdtemp(prefix="tilelang-otel-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _recorded(key: str, title: str, **options: Any) -> Variant:
    provider, exporter = discarding_provider()

    def flush() -> bool:
        return _background.drain(60) and provider.force_flush()

    return Variant(key, title, [_ours(provider, **options)], flush, exporter=exporter)


def _zero_code() -> Variant:
    provider, exporter = discarding_provider()

    @contextmanager
    def switched_on() -> Iterator[None]:
        tilelang_otel.instrument(provider)
        try:
            yield
        finally:
            tilelang_otel.uninstrument()

    return Variant(
        "zero_code",
        "ours, zero-code, discarded",
        [],
        provider.force_flush,
        switched_on,
        exporter,
    )


def _naive() -> Variant:
    provider, exporter = discarding_provider()
    instrument = _naive_instrument(provider.get_tracer("naive"))
    return Variant(
        "naive",
        "naive live spans, discarded",
        [instrument],
        provider.force_flush,
        exporter=exporter,
    )


def _noop_instrument() -> Any:
    base: Any = importlib.import_module("tvm.ir.instrument").PassInstrument

    class NoOp(base):
        __slots__ = ("__dict__",)

        def run_before_pass(self, mod: Any, info: Any) -> None:
            pass

        def run_after_pass(self, mod: Any, info: Any) -> None:
            pass

    return NoOp()


def _naive_instrument(tracer: Tracer) -> Any:
    """Return what one would write first: a span starts and ends in the callbacks."""
    base: Any = importlib.import_module("tvm.ir.instrument").PassInstrument

    class Naive(base):
        __slots__ = ("__dict__",)

        def __init__(self) -> None:
            self.open: list[tuple[int, Any]] = []
            self.sequence = 0
            super().__init__()

        def enter_pass_ctx(self) -> None:
            self.sequence = 0
            self.open.append((-1, tracer.start_span("PassContext")))

        def exit_pass_ctx(self) -> None:
            while self.open:
                self.open.pop()[1].end()

        def run_before_pass(self, mod: Any, info: Any) -> None:
            above, parent = self.open[-1]
            attributes: dict[str, Any] = {
                semconv.TVM_PASS_NAME: info.name,
                semconv.TVM_PASS_SEQUENCE: self.sequence,
                semconv.TVM_PASS_DEPTH: len(self.open) - 1,
            }
            if above >= 0:
                attributes[semconv.TVM_PASS_PARENT_SEQUENCE] = above
            span = tracer.start_span(info.name, set_span_in_context(parent), attributes=attributes)
            self.open.append((self.sequence, span))
            self.sequence += 1

        def run_after_pass(self, mod: Any, info: Any) -> None:
            self.open.pop()[1].end()

    return Naive()
