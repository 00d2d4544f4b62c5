"""What is switched on for production: what is emitted, and what happens when it goes wrong.

Owns the state of the crash records and the words for these settings. What each
setting is worth and where it comes from is up to ``_doctor.facts``.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilelang_otel import _crash
from tilelang_otel._config import Settings, crash_directory
from tilelang_otel._otel.environment import OtelEnvironment
from tilelang_otel.cli._drawing.text import count
from tilelang_otel.environment_variables import OTEL_PYTHON_TILELANG_CRASH_DIRECTORY

__all__ = ["CrashRecords", "advise_on_crash_records", "describe_production", "find_crash_records"]

_SPANS: Final = {
    "all": "all spans of every compile",
    "compile": "one span for each compile",
}


@dataclass(frozen=True)
class CrashRecords:
    """The crash records of the processes here."""

    is_on: bool
    """Whether processes that are not run by ``tilelang-otel run`` keep one."""

    directory: str

    problem: str
    """Why none can be kept there; empty if one can."""

    waiting: int
    """How many processes have died and left theirs."""


def find_crash_records(settings: Settings) -> CrashRecords:
    """Look at the folder of crash records, and leave it as it is."""
    directory = crash_directory(settings)
    return CrashRecords(
        settings.crash_record,
        directory,
        _problem(directory),
        sum(1 for _ in _crash.dead_files(directory)),
    )


def _problem(directory: str) -> str:
    if os.name == "nt":
        return "this system has no file locks"
    folder, missing = Path(directory).absolute(), None
    try:
        # It is made when it is needed, with all that is above it.
        while not folder.exists():
            folder, missing = folder.parent, folder
        if missing is None:
            _lock_a_file(folder)
            return ""
        missing.mkdir(mode=0o700)
        try:
            _lock_a_file(missing)
        finally:
            with contextlib.suppress(OSError):  # somebody needs it by now
                missing.rmdir()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _lock_a_file(folder: Path) -> None:
    import fcntl

    with tempfile.TemporaryFile(dir=folder) as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def describe_production(
    settings: Settings, records: CrashRecords, environment: OtelEnvironment
) -> list[tuple[str, str]]:
    """Return what is on, and what is not, in words."""
    spans = _SPANS.get(
        settings.emit,
        f"all of compiles that failed or took {settings.slow_s:g} s, else one for each compile",
    )
    stall = settings.stall_limit_s
    state = "on" if records.is_on else "off, but on under `tilelang-otel run`"
    metrics = () if environment.is_disabled else environment.exporters("metrics")
    return [
        ("spans", f"{spans}; at most {settings.trace_spans:,} in a trace"),
        ("metrics", ", ".join(metrics) or "none, unless the program has a meter provider"),
        ("crash record", f"{state}; in {records.directory}"),
        (
            "crashes",
            f"{count(records.waiting, 'dead process', 'dead processes')} to recover there",
        ),
        ("hanging", f"passes of {stall:g} s are reported" if stall else "passes are not watched"),
        (
            "SIGTERM",
            "exports what has finished first" if settings.flush_on_sigterm else "exports nothing",
        ),
    ]


def advise_on_crash_records(records: CrashRecords) -> list[str]:
    """Return a line for each thing to do about them."""
    lines: list[str] = []
    if records.is_on and records.problem:
        lines.append(
            f"no crash record can be kept in {records.directory}: {records.problem}; "
            f"choose another folder with {OTEL_PYTHON_TILELANG_CRASH_DIRECTORY}"
        )
    if records.waiting:
        lines.append(
            f"{count(records.waiting, 'dead process', 'dead processes')} left a crash record in "
            f"{records.directory}: `tilelang-otel recover` exports what was running"
        )
    return lines
