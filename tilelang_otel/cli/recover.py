"""``tilelang-otel recover``: spans of what processes were compiling when they died.

What they left is found in the folder of crash records; where the spans go is what the
``OTEL_*`` variables say.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

__all__ = ["add_parser", "main"]

_DESCRIPTION = """\
Turn the crash records of dead processes into spans, export them as the OTEL_*
variables say, and remove the records. Those of living processes are left alone."""

_EPILOG = """\
exit code: 0, also when there was nothing to recover; 1 if what there was could
not be delivered, and stays for the next time; 2 if DIR is no directory that can
be read."""


_NAME_ANOTHER: Final = "name the one with the crash records by --directory"


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments to the command line."""
    parser = subparsers.add_parser(
        "recover",
        help="export what processes were compiling when they died",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="where the records are (default: OTEL_PYTHON_TILELANG_CRASH_DIRECTORY, else the "
        "cache directory)",
    )


def main(args: argparse.Namespace) -> int:
    """Recover what there is.

    Args:
        args: What the parser of :func:`add_parser` made of the command line.

    Returns:
        0, 1 if something could not be delivered, or 2 if there is no such directory.
    """
    from tilelang_otel._config import crash_directory, read_settings
    from tilelang_otel._sdk.recovery import Impatient, claim, describe, processor_of, recover
    from tilelang_otel.provider import configure, flush

    directory = crash_directory(read_settings()) if args.directory is None else args.directory
    problem = _problem(directory, is_asked_for=args.directory is not None)
    if problem:
        _complain(problem)
        return 2
    # Not in the background: this command says what came of it.
    claim(directory)
    provider = configure()
    if processor_of(provider) is None:
        return _complain("nothing is recovered: traces are not exported (see above)")
    found = recover(directory, Impatient(provider, flush))
    if found.undelivered:
        return _complain(
            "1 crash record could not be delivered, and stays"
            if found.undelivered == 1
            else f"{found.undelivered} crash records could not be delivered, and stay"
        )
    if not found.processes:
        print(f"tilelang-otel recover: nothing to recover in {directory}")
        return 0
    print(f"tilelang-otel recover: {describe(found)}, exported {_where_to()}")
    return 0


def _where_to() -> str:
    from tilelang_otel._otel.environment import read_environment
    from tilelang_otel._otel.targets import exporters_in_force

    if config_file := read_environment().get("OTEL_CONFIG_FILE"):
        return f"as OTEL_CONFIG_FILE={config_file} says"
    return "to " + " and ".join(target for _, target in exporters_in_force())


def _problem(directory: str, is_asked_for: bool) -> str:
    """Return why nothing can be looked for in a directory; empty if it can.

    Args:
        directory: The directory.
        is_asked_for: Whether it is to be there: one that is made by the first process
            that compiles need not be.
    """
    try:
        os.listdir(directory)
    except FileNotFoundError:
        if is_asked_for:
            return f"there is no directory {directory or repr('')}: {_NAME_ANOTHER}"
    except NotADirectoryError:
        return f"{directory} is not a directory: {_NAME_ANOTHER}"
    except OSError as error:
        return f"{directory} cannot be read ({error.strerror}): change that, or {_NAME_ANOTHER}"
    return ""


def _complain(message: str) -> int:
    print(f"tilelang-otel recover: {message}", file=sys.stderr)
    return 1
