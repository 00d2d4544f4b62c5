"""Spans into a file, as OTLP JSON Lines.

Owns the ``otlp_jsonl`` exporter: how spans become one line, and how a line gets
into a file that other processes append to as well. What an OTLP message
contains is up to OpenTelemetry's encoder; reading such files back is up to
``cli._trace_file``.

The format is that of OpenTelemetry's file exporter: every line is one
``TracesData`` object in OTLP's JSON, which is protobuf's own JSON except that
trace and span ids are in hexadecimal and enums are numbers.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import time
from collections.abc import Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]  # fmt: skip
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tilelang_otel._config import read_settings, warn_once
from tilelang_otel.environment_variables import OTEL_PYTHON_TILELANG_FILE

try:
    import fcntl
except ImportError:  # Windows: one append is all the protection there is
    fcntl = None

__all__ = ["OTLPJSONLinesSpanExporter", "encode_line"]

# A lock is held for the length of one write. Whoever holds it longer is
# stopped or dead, and must not stop everybody else.
_LOCK_TIMEOUT_S = 2.0
_LOCK_POLL_S = 0.001


class OTLPJSONLinesSpanExporter(SpanExporter):
    """Append spans to a file, one ``TracesData`` object a line.

    Several processes and threads may append to one file: a line is never torn,
    and what a killed process left unfinished does not spoil the next line. The
    file is opened for every batch, so a fork shares nothing, and a file that
    was moved away is made anew.

    Args:
        path: Where to append; relative to the directory that is current now.
            None means what ``OTEL_PYTHON_TILELANG_FILE`` says, by default
            ``tilelang-otel.jsonl``. The file is created, its directory is not.

    Raises:
        ValueError: ``path`` is empty or not a path.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = os.path.abspath(read_settings(file=path).file)
        self._is_shut_down = False
        self._reason = ""

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self._path

    @property
    def failure_reason(self) -> str:
        """Why the file could not be written, at the last try; empty if it could."""
        return self._reason

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append ``spans`` as one line. Never raises.

        Args:
            spans: Ended spans. One that OTLP cannot express is left out.

        Returns:
            FAILURE after :meth:`shutdown`, when a span had to be left out, and
            when the file cannot be written; the last is warned about once.
        """
        if self._is_shut_down:
            return SpanExportResult.FAILURE
        line, lost = _encode(spans)
        try:
            if line:
                _append(self._path, line)
                self._reason = ""
        except OSError as error:
            self._reason = error.strerror or str(error)
            warn_once(
                f"write {self._path}",
                f"traces cannot be written to {self._path}: {self._reason}; they are "
                f"lost until that is mended. {OTEL_PYTHON_TILELANG_FILE} chooses another file",
            )
            return SpanExportResult.FAILURE
        return SpanExportResult.FAILURE if lost else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Write nothing from now on."""
        self._is_shut_down = True

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return True: nothing is held back."""
        return True


def encode_line(spans: Sequence[ReadableSpan]) -> bytes:
    """Return ``spans`` as one line of OTLP JSON, with its line end.

    Args:
        spans: Ended spans.

    Returns:
        ASCII text, so that no reader can see a line end inside it.

    Raises:
        Exception: OTLP cannot express a span, e.g. one with a negative time.
    """
    data: Any = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource_spans in data.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                _ids_to_hex(span)
                for link in span.get("links", ()):
                    _ids_to_hex(link)
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _ids_to_hex(item: dict[str, Any]) -> None:
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in item:
            item[key] = base64.b64decode(item[key]).hex()


def _encode(spans: Sequence[ReadableSpan]) -> tuple[bytes, int]:
    """Return one line and how many of ``spans`` are not in it."""
    if not spans:
        return b"", 0
    try:
        return encode_line(spans), 0
    except Exception as error:  # noqa: BLE001 - whatever a span holds, the others are written
        if len(spans) == 1:
            warn_once(
                "encode span",
                f"span {spans[0].name!r:.80} is left out of the trace file, and so may others "
                f"be: OTLP cannot express it ({error})"[:400],
            )
            return b"", 1
    good = [span for span in spans if not _encode([span])[1]]
    return (encode_line(good) if good else b""), len(spans) - len(good)


def _append(path: str, line: bytes) -> None:
    """Append ``line``, whole or not at all.

    Raises:
        OSError: It is not in the file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    file = os.open(path, flags, 0o666)
    try:
        is_locked = _lock(file)
        try:
            _write_line(file, line, is_locked)
        finally:
            # Not left to close(): a child that was forked meanwhile holds the
            # same open file, and with it the lock.
            if is_locked and fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    """Take the file's lock; return False if it is not to be had."""
    if fcntl is None:
        return False
    deadline_s = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_LOCK_POLL_S)
        except OSError:  # a file system without locks
            return False
        else:
            return True


def _write_line(file: int, line: bytes, is_locked: bool) -> None:
    status = os.fstat(file)
    is_regular = stat.S_ISREG(status.st_mode)
    if is_regular and is_locked and status.st_size and not _ends_line(file, status.st_size):
        line = b"\n" + line
    written = 0
    try:
        while written < len(line):
            written += os.write(file, line[written:])
    except OSError:
        if is_regular and is_locked and written:
            os.ftruncate(file, status.st_size)
        raise


def _ends_line(file: int, size_bytes: int) -> bool:
    os.lseek(file, size_bytes - 1, os.SEEK_SET)
    return os.read(file, 1) == b"\n"
