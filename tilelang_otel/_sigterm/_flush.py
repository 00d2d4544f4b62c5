"""What SIGTERM sets off: whatever is known of compiles is exported, while there is time.

Owns what is exported, in which order, and how long that may take. What happens to the
process is up to ``_handler``.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry import metrics, trace

from tilelang_otel import _background, semconv
from tilelang_otel._activity import latest_first
from tilelang_otel._death import Death
from tilelang_otel._frames import Failure, Record
from tilelang_otel._guard import guard
from tilelang_otel._recording import Recording

__all__ = ["Flush", "involve"]

_DEATH: Final = Death(signal.SIGTERM.name)

_involved: weakref.WeakSet[Any] = weakref.WeakSet()


def involve(provider: Any) -> None:
    """Have the spans of a tracer provider exported, too, beside the global one's.

    Args:
        provider: The provider.
    """
    _involved.add(provider)


class Flush:
    """What a signal has set off; over when it is done, or nobody is to wait any longer.

    Args:
        timeout_s: How many seconds it may take.
        is_last: Whether the process ends with it.
    """

    def __init__(self, timeout_s: float, is_last: bool) -> None:
        self.over = threading.Event()
        self.is_last = is_last
        self._began_s = time.monotonic()
        self._timeout_s = timeout_s

    def age_s(self) -> float:
        """Return how many seconds ago it began."""
        return time.monotonic() - self._began_s

    def left_s(self) -> float:
        """Return how many seconds it has left."""
        return max(self._timeout_s - self.age_s(), 0.0)

    def run(self) -> None:
        """Export what there is."""
        try:
            recordings = latest_first()
            # Asked first: one that is given up has none any more.
            providers = _tracer_providers(recordings)
            counts: list[Callable[[], None]] = []
            for recording in recordings:
                with guard:
                    if self.is_last:
                        counts.append(_give_up(recording))
                    else:
                        recording.emit_finished()
            # What is made by then can be exported, even if some more waits.
            _background.drain(self.left_s() / 2)
            self._export(providers)
            # The signal may have interrupted whoever has the locks of the metrics.
            for count in counts:
                with guard:
                    count()
            self._export([metrics.get_meter_provider()])
        finally:
            self.over.set()

    def _export(self, providers: Sequence[Any]) -> None:
        for provider in providers:
            # Exporters speak for themselves. Not all providers have one.
            with contextlib.suppress(Exception):
                provider.force_flush(int(self.left_s() * 1000))


def _give_up(recording: Recording) -> Callable[[], None]:
    """Make error spans of what is open; return what counts them."""
    for record in (recording.root, recording.current):
        if record is not None:
            _mark(record)
    return recording.give_up(Failure(semconv.ERROR_TYPE_PROCESS_DIED, _DEATH.message))


def _mark(record: Record) -> None:
    """Say which signal it was. Attributes of a pass may be those of other passes, too."""
    record.attributes = {**(record.attributes or {}), **_DEATH.attributes}
    if record.span is not None:
        record.span.set_attributes(_DEATH.attributes)


def _tracer_providers(recordings: Sequence[Recording]) -> list[Any]:
    """Return what has spans, each once."""
    active = [recording.provider for recording in recordings]
    everybody = [*active, trace.get_tracer_provider(), *_involved]
    return list({id(provider): provider for provider in everybody}.values())
