"""The crash record: what a process was compiling, for the case that it dies.

Owns the one file that a process has while it compiles with the record on. It is
written while a compile runs, by ``_writer``; a process that ends as it should removes
it, and what another has left behind is found by ``_search`` and read by ``_reader``.
Which spans come of that is up to ``_sdk.recovery``.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilelang_otel._config import warn_once
from tilelang_otel._crash._files import IS_SUPPORTED, DeadFile, forget_own
from tilelang_otel._crash._reader import DeadCompile, DeadProcess, pid_of, read
from tilelang_otel._crash._run_folders import RunFolder
from tilelang_otel._crash._search import dead_files, remove_dead_runs
from tilelang_otel._crash._writer import CompileLog, CrashRecord

__all__ = [
    "CompileLog",
    "CrashRecord",
    "DeadCompile",
    "DeadFile",
    "DeadProcess",
    "RunFolder",
    "dead_files",
    "exported",
    "for_process",
    "pid_of",
    "read",
    "remove_dead_runs",
]


class _Process:
    """The record of this process, once it is there, or that it can have none."""

    record: CrashRecord | None = None
    is_settled = False
    lock = threading.Lock()


def for_process(directory: str, resource: Callable[[], Mapping[str, Any]]) -> CrashRecord | None:
    """Return the crash record of this process, which is made when it is first needed.

    Args:
        directory: Where its file is.
        resource: Returns what the tracer provider says of this process.

    Returns:
        The record; None where there can be none, of which is warned once.
    """
    if not _Process.is_settled:
        with _Process.lock:
            if not _Process.is_settled:
                _Process.record = _open(directory, resource)
                _Process.is_settled = True
    return _Process.record


def exported(span_ids: Iterable[int]) -> None:
    """Have no record of spans that an exporter is done with. Never raises."""
    if _Process.record is not None:
        _Process.record.exported(span_ids)


def _open(directory: str, resource: Callable[[], Mapping[str, Any]]) -> CrashRecord | None:
    if not IS_SUPPORTED:
        warn_once("crash record", "there is no crash record on this system: it has no file locks")
        return None
    try:
        record = CrashRecord(directory, os.getpid(), resource())
    except OSError as error:
        reason = error.strerror or error
        warn_once("crash record", f"there is no crash record in {directory}: {reason}")
        return None
    atexit.register(_close)
    return record


def _close() -> None:
    if _Process.record is not None:
        _Process.record.close()


def _forked() -> None:
    record, _Process.record = _Process.record, None
    _Process.is_settled = False
    _Process.lock = threading.Lock()
    forget_own()
    if record is not None:
        # The file is the parent's. A child that compiles has one of its own.
        record.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
