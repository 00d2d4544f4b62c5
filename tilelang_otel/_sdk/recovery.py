"""Spans of processes that have died, made of the crash records that they left.

Owns which files are taken, that each is turned into spans once, and where these go: to
the processors of a tracer provider, with the ids and the resource that they had. What a
file says is up to ``_crash``, how a record becomes a span to ``_spans``.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tilelang_otel import _crash, semconv
from tilelang_otel._guard import guard
from tilelang_otel._providers import facts_of
from tilelang_otel._spans import emit
from tilelang_otel.version import __version__

__all__ = [
    "Impatient",
    "Recovered",
    "claim",
    "describe",
    "processor_of",
    "recover",
    "start_recovery",
]

_logger = logging.getLogger(__name__)

_FLUSH_TIMEOUT_MS: Final = 30_000

_EXIT_S: Final = 5.0
"""How long the exit of the process waits for a recovery that goes on."""


@dataclass
class Recovered:
    """What was made of crash records."""

    processes: int = 0
    """How many had something left."""

    spans: int = 0

    undelivered: int = 0
    """How many files were left where they are, as their spans could not be delivered."""


def recover(
    directory: str,
    provider: Any,
    *,
    signals: Mapping[int, str] | None = None,
    ended_ns: int | None = None,
) -> Recovered:
    """Turn the crash records of dead processes into spans, and remove them.

    A file whose spans cannot be delivered stays for the next time. Files of processes
    that live, and those that somebody else recovers now, are left alone; so are the
    folders of runs that live.

    Args:
        directory: Where the files are, and folders of runs; need not exist.
        provider: A tracer provider of the SDK, whose processors get the spans.
        signals: Names of the signals that processes died of, by their ids, where known.
        ended_ns: When they died, in nanoseconds since the epoch; None if that is not
            known, and the files have to tell when each was last seen alive.

    Returns:
        What became of them.
    """
    found = Recovered()
    processor = processor_of(provider)
    if processor is None:
        return found
    for file in _crash.dead_files(directory):
        with guard:
            process = _read(file, signals or {}, ended_ns)
            if process is not None and process.compiles:
                if found.undelivered:
                    # The same receiver would be waited for in vain, or get spans twice.
                    found.undelivered += 1
                    continue
                for compile_ in process.compiles:
                    found.spans += _emit(compile_, process, provider, processor, signals or {})
                if provider.force_flush(_FLUSH_TIMEOUT_MS) is False:
                    found.undelivered += 1
                    continue
                found.processes += 1
            file.mark_recovered()
            file.remove()
    _crash.remove_dead_runs(directory)
    return found


def start_recovery(provider: Any, directory: str) -> None:
    """Recover what is left of dead processes, beside the program. Once; never raises.

    Args:
        provider: As for :func:`recover`.
        directory: As for :func:`recover`.
    """
    if processor_of(provider) is None or not claim(directory):
        # Without the one, there may be another provider by the next time.
        return

    def work() -> None:
        with guard:
            found = recover(directory, provider)
            if found.processes:
                _logger.info("%s", describe(found))

    with guard:
        thread = threading.Thread(target=work, name="tilelang-otel-recovery", daemon=True)
        thread.start()
        # What is cut off halfway would come twice: the file stays.
        atexit.register(thread.join, _EXIT_S)


def claim(directory: str) -> bool:
    """Keep :func:`start_recovery` from a directory; return whether it was not kept before."""
    with _Started.lock:
        is_first = directory not in _Started.directories
        _Started.directories.add(directory)
        return is_first


def describe(found: Recovered) -> str:
    """Return in a sentence what was recovered."""
    spans = "1 span" if found.spans == 1 else f"{found.spans} spans"
    processes = "1 process that has" if found.processes == 1 else f"{found.processes} processes"
    have = "" if found.processes == 1 else " that have"
    return f"recovered {spans} of {processes}{have} died"


def processor_of(provider: Any) -> SpanProcessor | None:
    """Return what a provider hands its finished spans to; None where it has no such thing."""
    # There is no public way to hand on a span that somebody else has started.
    processor = getattr(provider, "_active_span_processor", None)
    return processor if isinstance(processor, SpanProcessor) else None


class Impatient:
    """A tracer provider that is waited for in vain no more than once.

    Args:
        provider: The provider.
        flush: Exports what has ended, and returns whether it arrived.
    """

    def __init__(self, provider: Any, flush: Callable[[], bool]) -> None:
        self._active_span_processor = processor_of(provider)
        self._flush = flush
        self._is_working = True

    def force_flush(self, timeout_millis: int) -> bool:
        """Export what has ended, in whatever time that is given."""
        self._is_working = self._is_working and self._flush()
        return self._is_working


class _Started:
    """Where recovery was begun already, in this process."""

    directories: set[str] = set()  # noqa: RUF012 - of the class on purpose
    lock = threading.Lock()


class _Ids(IdGenerator):
    """Gives the ids that spans had, and new ones to those that had none."""

    def __init__(self, trace_id: int, span_ids: Iterator[int]) -> None:
        self._trace_id = trace_id
        self._span_ids = span_ids
        self._random = RandomIdGenerator()

    def generate_trace_id(self) -> int:
        """Return the compile's own."""
        return self._trace_id

    def generate_span_id(self) -> int:
        """Return that of the next record."""
        return next(self._span_ids, 0) or self._random.generate_span_id()


class _HandOn(SpanProcessor):
    """Gives spans to another provider's processors, which do not ask who has started them."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._processor = processor

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Hand a started span on."""
        self._processor.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand a finished span on."""
        self._processor.on_end(span)


def _read(
    file: _crash.DeadFile, signals: Mapping[int, str], ended_ns: int | None
) -> _crash.DeadProcess | None:
    signal = signals.get(_crash.pid_of(file.content), "")
    return _crash.read(
        file.content,
        int(file.modified_s * 1e9) if ended_ns is None else ended_ns,
        ended_ns is not None,
        f" of {signal}" if signal else "",
    )


def _emit(
    compile_: _crash.DeadCompile,
    process: _crash.DeadProcess,
    provider: Any,
    processor: SpanProcessor,
    signals: Mapping[int, str],
) -> int:
    """Make the spans of one compile; return how many."""
    root = compile_.root
    signal = signals.get(process.pid)
    if signal is not None:
        for record in {id(r): r for r in (*compile_.died_in, root) if _has_died(r)}.values():
            record.attributes = {
                **(record.attributes or {}),
                semconv.TILELANG_PROCESS_SIGNAL: signal,
            }
    ids = _Ids(
        compile_.trace_id,
        iter([compile_.span_id, *(compile_.span_ids.get(id(r), 0) for r in compile_.records)]),
    )
    own = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource(process.resource),
        id_generator=ids,
        shutdown_on_exit=False,
    )
    own.add_span_processor(_HandOn(processor))
    tracer = own.get_tracer(semconv.SCOPE_NAME, __version__, schema_url=semconv.SCHEMA_URL)
    context = None
    if compile_.parent_span_id:
        parent = SpanContext(
            compile_.trace_id,
            compile_.parent_span_id,
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        context = trace.set_span_in_context(NonRecordingSpan(parent))
    offset_ns = compile_.wall_offset_ns
    # Started first, so that the others are below it, and ended last, as it always is.
    end_ns, root.end_ns = root.end_ns, 0
    emit([root], tracer, context, offset_ns)
    root.end_ns = end_ns
    room = max(facts_of(provider).queue_spans // 2, 1)
    for start in range(0, len(compile_.records), room):
        emit(compile_.records[start : start + room], tracer, context, offset_ns)
        provider.force_flush(_FLUSH_TIMEOUT_MS)
    emit([root], tracer, context, offset_ns)
    return 1 + len(compile_.records)


def _has_died(record: Any) -> bool:
    failure = record.failure
    return failure is not None and failure.type == semconv.ERROR_TYPE_PROCESS_DIED
