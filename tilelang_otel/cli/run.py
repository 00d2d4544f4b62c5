"""``tilelang-otel run``: a program as Python would run it, with its compiles traced.

Python itself runs it: nothing but a start-up hook, found through ``PYTHONPATH``,
tells it from a program that is not traced. Processes that the program starts
inherit the hook. What the hook does is up to ``_running.traced_program``; where
traces go, to ``_running.destination``. The program runs as a child, for the case
that it dies (``_running.parent``, ``_running.aftermath``); without a crash record it
takes the place of this process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from tilelang_otel.cli._running.destination import Destination, OutputError, choose_destination
from tilelang_otel.cli._running.traced_program import environment_for

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

    from tilelang_otel.cli._running.aftermath import Leavings

__all__ = ["add_parser", "main"]

_BOOTSTRAP: Final = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "_running", "bootstrap"
)

_USAGE = "tilelang-otel run [-h] [--output FILE] (-m MODULE | SCRIPT) [ARGS ...]"

_DESCRIPTION = """\
Run a program as Python would, and trace what it compiles with TVM or TileLang.

Without an exporter in the OTEL_* variables, traces are appended to a file, and
printed as a tree when the program ends. With one, they are exported there. If the
program dies, so is what it was compiling. What follows SCRIPT or MODULE belongs to
the program."""

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
    """Run the program, and be like it in everything that can be seen from outside.

    Args:
        args: What the parser of :func:`add_parser` made of the command line.

    Returns:
        The program's exit code, or 2 if it cannot be started. Of the signal that
        the program died of, this process dies too.
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
    if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by a shell
        sys.stdout.flush()
    if sys.platform == "win32":
        return _wait(command, _environment(destination, 0))
    code = None if destination.is_off else _stay(command, destination)
    if code is None:
        os.execve(command[0], command, _environment(destination, os.getpid()))
    return code


def _interpreter_flags() -> list[str]:
    library: Any = subprocess  # what multiprocessing calls for the same purpose has no public name
    return library._args_from_interpreter_flags()


def _python_path() -> str:
    others = os.environ.get("PYTHONPATH")
    return os.pathsep.join([_BOOTSTRAP, others] if others else [_BOOTSTRAP])


def _environment(
    destination: Destination, pid: int, leavings: Leavings | None = None
) -> dict[str, str]:
    reported = "" if leavings is None else leavings.folder.reported
    return {
        **os.environ,
        **environment_for(destination, pid, reported),
        **({} if leavings is None else leavings.environment()),
        "PYTHONPATH": _python_path(),
    }


def _stay(command: list[str], destination: Destination) -> int | None:
    """Run the program as a child; return its exit code, or None if it was not started."""
    from tilelang_otel.cli._running.aftermath import look_after, make_leavings
    from tilelang_otel.cli._running.parent import Child, die_of

    leavings = make_leavings()
    if leavings is None:
        return None
    try:
        child = Child(command, lambda pid: _environment(destination, pid, leavings))
    except OSError:
        leavings.remove()
        return None
    status = child.wait()
    if look_after(leavings, destination, child.pid, status):
        # There is more to do: the signal comes at the very end.
        return status % 256
    if status < 0:
        die_of(-status)
    return status


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
