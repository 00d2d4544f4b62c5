"""``tilelang-otel recover``: spans of what processes were compiling when they died.

What they left is found in the folder of crash records; where the spans go is what the
``OTEL_*`` variables say.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

__all__ = ["add_parser", "main"]

_DESCRIPTION = """\
Turn the crash records of dead processes into spans, export them as the OTEL_*
variables say, and remove the records. Those of living processes are left alone."""

_EPILOG = """\
exit code: 0, also when there was nothing to recover; 1 if what there was could
not be delivered, and stays for the next time."""


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
        0, or 1 if something could not be delivered.
    """
    from tilelang_otel._config import crash_directory, read_settings
    from tilelang_otel._sdk.recovery import claim, describe, processor_of, recover
    from tilelang_otel.provider import configure

    directory = args.directory or crash_directory(read_settings())
    # Not in the background: this command says what came of it.
    claim(directory)
    provider = configure()
    if processor_of(provider) is None:
        return _complain("nothing is recovered: traces are not exported (see above)")
    found = recover(directory, provider)
    if found.undelivered:
        return _complain(
            "1 crash record could not be delivered, and stays"
            if found.undelivered == 1
            else f"{found.undelivered} crash records could not be delivered, and stay"
        )
    if not found.processes:
        print(f"tilelang-otel recover: nothing to recover in {directory}")
        return 0
    print(f"tilelang-otel recover: {describe(found)}")
    return 0


def _complain(message: str) -> int:
    print(f"tilelang-otel recover: {message}", file=sys.stderr)
    return 1
