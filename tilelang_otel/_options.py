"""What may be chosen by keyword where compiles are traced: one list for all who take it.

What the choices mean, and the environment variables behind them, are up to ``_config``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from tilelang_otel._config import Settings, read_settings

__all__ = ["Options", "read_options"]


class Options(TypedDict, total=False):
    """What may be chosen by keyword where compiles are traced.

    An option that is None, or not given, is taken from its environment variable,
    ``OTEL_PYTHON_TILELANG_`` and the words below, else the default holds.
    """

    capture_nested: bool | None
    """Whether passes inside passes get spans. Default true; ``CAPTURE_NESTED``."""

    include: Iterable[str] | str | None
    """Shell patterns of the pass names that get spans. Default all; ``INCLUDE``."""

    exclude: Iterable[str] | str | None
    """Shell patterns of those that get none; wins over ``include``. ``EXCLUDE``."""

    context_span: bool | None
    """Whether the outermost pass context gets a span of its own, above the passes, where
    no compile is. Default true; ``CONTEXT_SPAN``."""

    part_age_s: float | None
    """Age in seconds at which a running compile hands its finished spans on.
    Default 10; ``PART_AGE``."""

    part_spans: int | None
    """How many spans a running compile collects before it hands them on.
    Default 2048; ``PART_SPANS``."""

    emit: str | None
    """``all``; ``slow``: all spans of compiles that failed or were slow, one for each
    other compile; ``compile``: one for each compile. Default all; ``EMIT``."""

    slow_s: float | None
    """From how many seconds on a compile is slow. Default 5; ``SLOW``."""

    trace_spans: int | None
    """How many spans one trace gets from this process before compiles in it get one
    each, unless they fail. Default 100,000; ``TRACE_SPANS``."""

    background: bool | None
    """Whether a thread of its own makes the spans. Default: where ``configure()`` has
    made the tracer provider; ``BACKGROUND``."""

    crash_record: bool | None
    """Whether a file says what was running when the process died. Default false;
    ``CRASH_RECORD``."""

    crash_directory: str | None
    """Where that file is. Default: this package's cache directory;
    ``CRASH_DIRECTORY``."""

    stall_limit_s: float | None
    """After how many seconds a pass that still runs is reported. Default never;
    ``STALL_LIMIT``."""

    flush_on_sigterm: bool | None
    """Whether SIGTERM exports what has finished before it takes its course.
    Default false; ``FLUSH_ON_SIGTERM``."""


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
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise TypeError(f"unknown option {', '.join(unknown)}")
    return read_settings(**options)
