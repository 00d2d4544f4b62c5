"""``tilelang-otel run``: a program as Python would run it, with its compiles traced.

Python itself runs it, in this process: nothing but a start-up hook, found
through ``PYTHONPATH``, tells it from a program that is not traced. Processes
that the program starts inherit the hook. What the hook does is up to
``_running.traced_program``; where traces go, to ``_running.destination``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tilelang_otel.cli._running.destination import OutputError, choose_destination
from tilelang_otel.cli._running.traced_program import environment_for

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

__all__ = ["add_parser", "main"]

_BOOTSTRAP: Final = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "_running", "bootstrap"
)

_USAGE = "tilelang-otel run [-h] [--output FILE] (-m MODULE | SCRIPT) [ARGS ...]"

_DESCRIPTION = """\
Run a program as Python would, and trace what it compiles with TVM or TileLang.

Without an exporter in the OTEL_* variables, traces are appended to a file, and
printed as a tree when the program ends. With one, they are exported there. What
follows SCRIPT or MODULE belongs to the program."""

_EPILOG = """\
exit code: the program's, or 2 if there is no such program or FILE cannot be
written."""


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments to the command line."""
    parser = subparsers.add_parser(
        "run",
        help="run a program and trace what it compiles",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--output", metavar="FILE", help="append traces to FILE, whatever else is exported to"
    )
    # What follows it is the program's, so argparse has to leave it alone; its help would be "...".
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT | -m MODULE",
        help="what to run, as python would be told",
    )


def main(args: argparse.Namespace) -> int:
    """Replace this process by the program.

    Args:
        args: What the parser of :func:`add_parser` made of the command line.

    Returns:
        2 if the program cannot be started. Where a process cannot be replaced
        (Windows), the program's exit code; elsewhere this does not return.
    """
    module: list[str] | None = args.module
    program: list[str] = args.program
    if module is not None:
        # What follows a "--" has become part of the other argument.
        program = ["-m", *module, *program]
    elif program[:1] == ["--"]:
        program = program[1:]
    if len(program) < (1 if module is None else 2):
        return _complain(f"what is to be run?\nusage: {_USAGE}")
    if module is None and not os.path.exists(program[0]):
        return _complain(f"there is no file {program[0]}")
    if not sys.executable:
        return _complain("this Python does not know where it is installed")
    try:
        destination = choose_destination(args.output)
    except OutputError as error:
        return _complain(str(error))
    command = [sys.executable, *_interpreter_flags(), *program]
    is_replaced = os.name != "nt"
    environment = {
        **os.environ,
        **environment_for(destination, os.getpid() if is_replaced else 0),
        "PYTHONPATH": _python_path(),
    }
    if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by a shell
        sys.stdout.flush()
    if is_replaced:
        _replace(command, environment)
    return _wait(command, environment)


def _interpreter_flags() -> list[str]:
    library: Any = subprocess  # what multiprocessing calls for the same purpose has no public name
    return library._args_from_interpreter_flags()


def _python_path() -> str:
    others = os.environ.get("PYTHONPATH")
    return os.pathsep.join([_BOOTSTRAP, others] if others else [_BOOTSTRAP])


def _replace(command: list[str], environment: dict[str, str]) -> NoReturn:
    os.execve(command[0], command, environment)


def _wait(command: list[str], environment: dict[str, str]) -> int:
    with subprocess.Popen(command, env=environment) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                # The program got it too, and decides what becomes of it.
                continue


def _complain(message: str) -> int:
    print(f"tilelang-otel run: {message}", file=sys.stderr)
    return 2
