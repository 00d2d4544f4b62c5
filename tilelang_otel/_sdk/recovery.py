"""Spans of processes that have died, made of the crash records that they left.

Owns which files are taken, that each is turned into spans once, and what becomes of a
receiver that is down. What a file says is up to ``_crash``, how it becomes spans to
``_sdk.dead_spans``.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk.trace import SpanProcessor

from tilelang_otel import _crash
from tilelang_otel._death import Death
from tilelang_otel._guard import guard
from tilelang_otel._sdk.dead_spans import FLUSH_TIMEOUT_MS, emit_compile

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
    deaths: Mapping[int, Death] | None = None,
    ended_ns: int | None = None,
) -> Recovered:
    """Turn the crash records of dead processes into spans, and remove them.

    A file whose spans cannot be delivered stays for the next time. Files of processes
    that live, and those that somebody else recovers now, are left alone; so are the
    folders of runs that live.

    Args:
        directory: Where the files are, and folders of runs; need not exist.
        provider: A tracer provider of the SDK, whose processors get the spans.
        deaths: How processes died, by their ids, where that is known.
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
            process = _read(file, deaths or {}, ended_ns)
            if process is not None and process.compiles:
                if found.undelivered:
                    # The same receiver would be waited for in vain, or get spans twice.
                    found.undelivered += 1
                    continue
                for compile_ in process.compiles:
                    found.spans += emit_compile(compile_, process.resource, provider, processor)
                if provider.force_flush(FLUSH_TIMEOUT_MS) is False:
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


def _read(
    file: _crash.DeadFile, deaths: Mapping[int, Death], ended_ns: int | None
) -> _crash.DeadProcess | None:
    return _crash.read(
        file.content,
        int(file.modified_s * 1e9) if ended_ns is None else ended_ns,
        ended_ns is not None,
        deaths.get(_crash.pid_of(file.content)),
    )
