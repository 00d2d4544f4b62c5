"""Where the traces of ``run`` and ``demo`` go.

Without an exporter in OpenTelemetry's variables that is a file; with one, it is
that. Decides before anything is traced, and writes nothing.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from typing import Final

from tilelang_otel._config import read_settings
from tilelang_otel.environment_variables import OTEL_PYTHON_TILELANG_FILE

__all__ = ["FILE_EXPORTER", "Destination", "OutputError", "choose_destination"]

FILE_EXPORTER: Final = "otlp_jsonl"


class OutputError(Exception):
    """The file for the traces cannot be written. The message is for the user."""


@dataclass(frozen=True)
class Destination:
    """Where traces go, decided before anything is traced."""

    file: str | None = None
    """The absolute path of the file; None when there is none."""

    file_start_bytes: int = 0
    """How long the file was before: what comes after it is ours."""

    shown_file: str = ""
    """The file as it may be typed where the command was given."""

    targets: tuple[str, ...] = ()
    """Where exporters of OpenTelemetry's variables send to, without secrets."""

    remark: str = ""
    """What is to be said about it, for what the targets do not tell."""

    is_off: bool = False
    """Whether traces go nowhere."""

    def environment(self) -> dict[str, str]:
        """Return the variables that this process and its children need."""
        return {} if self.file is None else {OTEL_PYTHON_TILELANG_FILE: self.file}


def choose_destination(output: str | None, default_file: str | None = None) -> Destination:
    """Decide from the command line and the environment where traces go.

    Args:
        output: The file that the user asked for, which is written whatever else
            is exported to; None if there is no such wish.
        default_file: The file when there is no wish and no exporter. None means
            what ``OTEL_PYTHON_TILELANG_FILE`` says, else ``tilelang-otel.jsonl``.

    Returns:
        The destination. A default file that cannot be written here is put into
        the directory for temporary files.

    Raises:
        OutputError: ``output`` cannot be written.
    """
    from tilelang_otel._otel.environment import read_environment
    from tilelang_otel._otel.targets import exporters_in_force

    environment = read_environment()
    if environment.is_disabled:
        return Destination(remark="OTEL_SDK_DISABLED=true: nothing was traced", is_off=True)
    remark = ""
    if config_file := environment.get("OTEL_CONFIG_FILE"):
        exporters: list[tuple[str, str]] = []
        remark = f"traces are exported as OTEL_CONFIG_FILE={config_file} says"
        is_file_wanted = False
    else:
        exporters = exporters_in_force(default_exporter=FILE_EXPORTER)
        is_file_wanted = any(name == FILE_EXPORTER for name, _ in exporters)
        if not exporters:
            remark = "OTEL_TRACES_EXPORTER=none: nothing was exported"
    targets = tuple(target for name, target in exporters if name != FILE_EXPORTER)
    if output is not None:
        remark = remark if config_file else ""
        return Destination(*_open(output), targets=targets, remark=remark)
    if not is_file_wanted:
        return Destination(targets=targets, remark=remark, is_off=not (targets or config_file))
    chosen = os.environ.get(OTEL_PYTHON_TILELANG_FILE, "").strip() or default_file
    path = read_settings(file=chosen).file
    try:
        return Destination(*_open(path), targets=targets)
    except OutputError:
        path = os.path.join(tempfile.gettempdir(), os.path.basename(path))
        return Destination(*_open(path), targets=targets)


def _open(path: str) -> tuple[str, int, str]:
    """Return a file's absolute path, its length now, and how to type it."""
    path = os.path.abspath(path)
    is_new = not os.path.exists(path)
    if not is_new and not os.path.isfile(path):
        # It is read back for the tree, and a device or a pipe may have no end.
        raise OutputError(f"cannot write {path}: not a regular file")
    try:
        with open(path, "ab") as file:
            size_bytes = file.tell()
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
    if is_new:
        # Whether there is a file says whether there is a trace.
        os.unlink(path)
    return path, size_bytes, _shell_word(path)


def _shell_word(path: str) -> str:
    """Return a path as it may be typed, relative where it is below the current directory."""
    inside = os.path.join(os.getcwd(), "")
    shown = path[len(inside) :] if path.startswith(inside) else path
    return shown if sys.platform == "win32" else shlex.quote(shown)
