"""Settings of this package: keywords where given, else the environment, else defaults.

The only module that reads this package's environment variables. A bad keyword
raises; a bad variable is warned about once and leaves the default, because a
deployment's typo must not fail a compile. OpenTelemetry's own variables are
read by its SDK.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from tilelang_otel import environment_variables as names

__all__ = [
    "Settings",
    "as_text",
    "cache_directory",
    "crash_directory",
    "mark_warned",
    "read_settings",
    "reject_unknown",
    "warn_once",
    "warned",
]

_logger = logging.getLogger(__name__)

_warned: set[str] = set()

_FOREVER_S: Final = 1e9
"""More than anybody waits, and few enough for a clock's integers and for locks."""


@dataclass(frozen=True)
class Settings:
    """What a user can choose, with the defaults."""

    capture_nested: bool = True
    """Whether passes inside passes get spans."""

    include: tuple[str, ...] = ()
    """Shell patterns of the pass names that get spans; empty means all."""

    exclude: tuple[str, ...] = ()
    """Shell patterns of the pass names that get none; wins over ``include``."""

    context_span: bool = True
    """Whether a pass context gets a span of its own."""

    part_age_s: float = 10.0
    """Age in seconds at which a running compile hands its finished spans on."""

    part_spans: int = 2048
    """How many spans a running compile collects before it hands them on."""

    file: str = "tilelang-otel.jsonl"
    """Where the file exporter writes."""

    exit_timeout_s: float = 5.0
    """How many seconds process exit may wait for the exporter."""

    emit: str = "all"
    """What of a finished compile gets spans: ``all``; ``slow``: all of those that
    failed or were slow, else the compile alone; ``compile``: the compile alone."""

    slow_s: float = 5.0
    """From how many seconds on a compile is slow."""

    trace_spans: int = 100_000
    """How many spans one trace gets before compiles in it are folded."""

    background: bool | None = None
    """Whether a thread makes the spans; None: if the provider is ``configure()``'s."""

    crash_record: bool = False
    """Whether a file says what was running when the process died."""

    crash_directory: str = ""
    """Where that file is; empty: in this package's cache directory."""

    stall_limit_s: float | None = None
    """After how many seconds a pass that still runs is reported; None: never."""

    flush_on_sigterm: bool = False
    """Whether SIGTERM exports what has finished before it takes its course."""


_BOOLEANS: Final = {"true": True, "on": True, "false": False, "off": False}


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in _BOOLEANS:
        raise ValueError
    return _BOOLEANS[word]


def _extent(value: Any) -> str:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("all", "slow", "compile"):
        raise ValueError
    return word


def _patterns(value: Any) -> tuple[str, ...]:
    parts: list[Any] = value.split(",") if isinstance(value, str) else list(value)
    if not all(isinstance(part, str) for part in parts):
        raise ValueError
    return tuple(part.strip() for part in parts if part.strip())


def _seconds(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError
    return min(number, _FOREVER_S)


def _count(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError
    number = int(value)
    if number < 1:
        raise ValueError
    return number


def _path(value: Any) -> str:
    text = os.fsdecode(value)
    if not text:
        raise ValueError
    return text


@dataclass(frozen=True)
class _Source:
    """Where one setting comes from and what it accepts."""

    variable: str
    parse: Callable[[Any], Any]
    accepts: str
    unset: str = ""
    """What holds where nothing is chosen, if the default's own value does not tell."""


_SOURCES: Final[Mapping[str, _Source]] = {
    "capture_nested": _Source(names.OTEL_PYTHON_TILELANG_CAPTURE_NESTED, _boolean, "true or false"),
    "include": _Source(
        names.OTEL_PYTHON_TILELANG_INCLUDE, _patterns, "shell patterns, separated by commas", "all"
    ),
    "exclude": _Source(
        names.OTEL_PYTHON_TILELANG_EXCLUDE, _patterns, "shell patterns, separated by commas", "none"
    ),
    "context_span": _Source(names.OTEL_PYTHON_TILELANG_CONTEXT_SPAN, _boolean, "true or false"),
    "part_age_s": _Source(
        names.OTEL_PYTHON_TILELANG_PART_AGE, _seconds, "a number of seconds above 0"
    ),
    "part_spans": _Source(names.OTEL_PYTHON_TILELANG_PART_SPANS, _count, "a whole number above 0"),
    "file": _Source(names.OTEL_PYTHON_TILELANG_FILE, _path, "a path"),
    "exit_timeout_s": _Source(
        names.OTEL_PYTHON_TILELANG_EXIT_TIMEOUT, _seconds, "a number of seconds above 0"
    ),
    "emit": _Source(names.OTEL_PYTHON_TILELANG_EMIT, _extent, "all, slow or compile"),
    "slow_s": _Source(names.OTEL_PYTHON_TILELANG_SLOW, _seconds, "a number of seconds above 0"),
    "trace_spans": _Source(
        names.OTEL_PYTHON_TILELANG_TRACE_SPANS, _count, "a whole number above 0"
    ),
    "background": _Source(
        names.OTEL_PYTHON_TILELANG_BACKGROUND,
        _boolean,
        "true or false",
        "true for a provider of configure()",
    ),
    "crash_record": _Source(names.OTEL_PYTHON_TILELANG_CRASH_RECORD, _boolean, "on or off"),
    "crash_directory": _Source(
        names.OTEL_PYTHON_TILELANG_CRASH_DIRECTORY,
        _path,
        "a path",
        "this package's cache directory",
    ),
    "stall_limit_s": _Source(
        names.OTEL_PYTHON_TILELANG_STALL_LIMIT, _seconds, "a number of seconds above 0", "no limit"
    ),
    "flush_on_sigterm": _Source(
        names.OTEL_PYTHON_TILELANG_FLUSH_ON_SIGTERM, _boolean, "true or false"
    ),
}


def as_text(setting: str, value: Any) -> str:
    """Return a setting's value as one would write it into its variable.

    Args:
        setting: The setting's name in :class:`Settings`.
        value: Its value; None, where nothing is chosen, becomes empty.
    """
    if isinstance(value, bool):
        yes, no = _SOURCES[setting].accepts.split(" or ")
        return yes if value else no
    if isinstance(value, tuple):
        return ",".join(cast("tuple[str, ...]", value))
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def cache_directory() -> Path:
    """Return the folder in which this package may keep what it can do without."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tilelang-otel"


def crash_directory(settings: Settings) -> str:
    """Return the folder of crash records."""
    return settings.crash_directory or str(cache_directory() / "crash")


def warn_once(key: str, message: str) -> None:
    """Log ``message`` as a warning, the first time that ``key`` is seen.

    Args:
        key: What the warning is about, usually a variable's name.
        message: One line for the user.
    """
    if key not in _warned:
        _warned.add(key)
        _logger.warning("%s", message)


def warned() -> list[str]:
    """Return what has been warned about, for another process to be told."""
    return sorted(_warned)


def mark_warned(keys: Iterable[str]) -> None:
    """Warn no more about ``keys``: another process has done so."""
    _warned.update(keys)


def reject_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise unless all options that were given are known.

    Args:
        given: Their names.
        known: The names that there are.

    Raises:
        TypeError: One is not known. The message says what there is instead.
    """
    options = list(known)
    for name in given:
        if name in options:
            continue
        close = difflib.get_close_matches(name, options, 1)
        advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(options))}"
        raise TypeError(f"unknown option {name}: {advice}")


def read_settings(**keywords: Any) -> Settings:
    """Resolve the settings; a keyword that is None counts as not given.

    Args:
        **keywords: Fields of :class:`Settings` that override the environment.

    Returns:
        The settings in force now.

    Raises:
        TypeError: A keyword is no field of :class:`Settings`.
        ValueError: A keyword's value is not what the field accepts.
    """
    reject_unknown(keywords, _SOURCES)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        source = _SOURCES[field.name]
        given = keywords.pop(field.name, None)
        if given is not None:
            try:
                values[field.name] = source.parse(given)
            except (TypeError, ValueError, OverflowError):
                raise ValueError(f"{field.name}={given!r}: expected {source.accepts}") from None
            continue
        text = os.environ.get(source.variable, "").strip()
        if not text:
            continue
        try:
            values[field.name] = source.parse(text)
        except (TypeError, ValueError, OverflowError):
            warn_once(
                source.variable,
                f"{source.variable}={text[:80]!r} is ignored: expected {source.accepts}; "
                f"using {source.unset or as_text(field.name, field.default)}",
            )
    return Settings(**values)
