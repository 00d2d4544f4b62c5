"""The ``tilelang-otel`` command: picks a subcommand and does what all of them need.

Every subcommand is a module of its own with ``add_parser(subparsers)`` and
``main(args) -> int``, imported only when it is asked for. Arguments and output
are up to these modules; so is whatever a program does that ``run`` runs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tilelang_otel.version import __version__

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

__all__ = ["main"]

EXIT_INTERRUPTED: Final = 130
"""What a shell reports for a program that Ctrl-C ended."""

EXIT_BROKEN_PIPE: Final = 141
"""What a shell reports for a program whose reader went away."""


class _Command(Protocol):
    """What a subcommand's module offers."""

    def add_parser(self, subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
        """Add the subcommand and its arguments."""
        ...

    def main(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""
        ...


@dataclass(frozen=True)
class _Entry:
    """A subcommand as it is known before its module is imported."""

    module: str
    help: str
    needs: tuple[str, ...]
    """Modules from the ``cli`` extra that it cannot work without."""


_SDK = ("rich", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.common")

_COMMANDS: Final = {
    "run": _Entry("run", "run a program and trace what it compiles", _SDK),
    "demo": _Entry("demo", "compile a small model and show its trace", _SDK),
    "show": _Entry("show", "show trace files as trees", ("rich",)),
    "doctor": _Entry("doctor", "check that traces would arrive", _SDK),
    "recover": _Entry("recover", "export what processes were compiling when they died", _SDK),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; None means the process's own.

    Returns:
        The exit code: the subcommand's, 1 if something is not installed, 130
        after Ctrl-C, 141 when nobody reads the output any more.

    Raises:
        SystemExit: The arguments are wrong, or asked for help or the version.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), "")
    entry = _COMMANDS.get(chosen)
    missing = [name for name in entry.needs if not _is_installed(name)] if entry else []
    if missing:
        print(
            f"tilelang-otel {chosen}: {missing[0]} is not installed; "
            "pip install 'tilelang-otel[cli]'",
            file=sys.stderr,
        )
        return 1
    try:
        command = _import(entry) if entry else None
        args = _parser(chosen, command).parse_args(arguments)
        if command is None:  # unreachable: argparse has refused it
            return 2
        code = command.main(args)
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by a shell
            sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    return code


def _import(entry: _Entry) -> _Command:
    command: _Command = importlib.import_module(f"tilelang_otel.cli.{entry.module}")  # pyright: ignore[reportAssignmentType]
    return command


def _parser(chosen: str, command: _Command | None) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of the chosen subcommand only."""
    parser = argparse.ArgumentParser(
        prog="tilelang-otel",
        description="OpenTelemetry traces of what a TVM or TileLang compilation does.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, entry in _COMMANDS.items():
        if name == chosen and command is not None:
            command.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=entry.help)
    return parser


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def _discard_stdout() -> None:
    # What is left in the buffer would fail again when the interpreter exits.
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
    except (OSError, ValueError):
        return
