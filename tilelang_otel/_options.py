"""What may be chosen by keyword where compiles are traced: one list for all who take it.

What the choices mean, and the environment variables behind them, are up to ``_config``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from tilelang_otel._config import Settings, read_settings, reject_unknown

__all__ = ["Options", "read_options"]


class Options(TypedDict, total=False):
    """What may be chosen by keyword where compiles are traced.

    An option that is None, or not given, is taken from its environment variable,
    ``OTEL_PYTHON_TILELANG_`` and the words below, else the default holds.

    Attributes:
        capture_nested: Whether passes inside passes get spans. Default true;
            ``CAPTURE_NESTED``.
        include: Shell patterns of the pass names that get spans. Default all;
            ``INCLUDE``.
        exclude: Shell patterns of those that get none; wins over ``include``.
            ``EXCLUDE``.
        context_span: Whether the outermost pass context gets a span of its own, above
            the passes, where no compile is. Default true; ``CONTEXT_SPAN``.
        part_age_s: Age in seconds at which a running compile hands its finished spans
            on. Default 10; ``PART_AGE``.
        part_spans: How many spans a running compile collects before it hands them on.
            Default 2048; ``PART_SPANS``.
        emit: ``all``; ``slow``: all spans of compiles that failed or were slow, one for
            each other compile; ``compile``: one for each compile. Default all;
            ``EMIT``.
        slow_s: From how many seconds on a compile is slow. Default 5; ``SLOW``.
        trace_spans: How many spans one trace gets from this process before compiles in
            it get one each, unless they fail. Default 100,000; ``TRACE_SPANS``.
        background: Whether a thread of its own makes the spans. Default: where
            ``configure()`` has made the tracer provider; ``BACKGROUND``.
        crash_record: Whether a file says what was running when the process died.
            Default false; ``CRASH_RECORD``.
        crash_directory: Where that file is. Default: this package's cache directory;
            ``CRASH_DIRECTORY``.
        stall_limit_s: After how many seconds a pass that still runs is reported.
            Default never; ``STALL_LIMIT``.
        flush_on_sigterm: Whether SIGTERM exports what has finished before it takes its
            course. Default false; ``FLUSH_ON_SIGTERM``.
    """

    capture_nested: bool | None
    include: Iterable[str] | str | None
    exclude: Iterable[str] | str | None
    context_span: bool | None
    part_age_s: float | None
    part_spans: int | None
    emit: str | None
    slow_s: float | None
    trace_spans: int | None
    background: bool | None
    crash_record: bool | None
    crash_directory: str | None
    stall_limit_s: float | None
    flush_on_sigterm: bool | None


def read_options(options: Mapping[str, Any]) -> Settings:
    """Resolve the settings where compiles are traced.

    Args:
        options: Those of :class:`Options` that were given.

    Returns:
        The settings in force now.

    Raises:
        TypeError: There is no such option.
        ValueError: An option has a value that it does not accept.
    """
    reject_unknown(options, Options.__annotations__)
    return read_settings(**options)
