"""``tilelang-otel demo``: compiles a small model, and shows what that looks like.

Owns the options, and which compiler is shown. What is compiled is up to
``_demo``; tracing and the tree, to ``_running.exporting``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Final

import tilelang_otel
from tilelang_otel.cli._demo.with_tilelang import TileLangDemo
from tilelang_otel.cli._demo.with_tvm import TVMDemo
from tilelang_otel.cli._running.destination import OutputError, choose_destination
from tilelang_otel.cli._running.exporting import Session

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

__all__ = ["add_parser", "main"]

_COMMAND: Final = "tilelang-otel demo"
_FILE: Final = "tilelang-otel-demo.jsonl"
_NOTHING: Final = (
    "neither TVM nor TileLang is installed: pip install 'tilelang-otel[tvm]' "
    "or 'tilelang-otel[tilelang]'"
)

_DESCRIPTION = """\
Compile something real, run it once, check its numbers, and show what the compiler
did: with TileLang, where that is installed, a GEMM lowered to CUDA and a kernel for
this CPU; else, with TVM, one block of a transformer.

Without an exporter in the OTEL_* variables, the trace is appended to a file,
and printed as a tree. With one, it is exported there."""


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="compile a small model and show its trace",
        description=_DESCRIPTION,
        epilog="exit code: 0, or 1 if there is no compiler or its numbers are wrong, or 2 if "
        "FILE cannot be written.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--fail", action="store_true", help="let a pass fail in the middle of the pipeline"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"append the trace to FILE, whatever else is exported to (default {_FILE})",
    )


def main(args: argparse.Namespace) -> int:
    """Run the demo.

    Args:
        args: What the parser of :func:`add_parser` made of the command line.

    Returns:
        0, also when a pass failed that was meant to; 1 if there is no compiler or
        its numbers are wrong; 2 if the file cannot be written.
    """
    from tilelang_otel.cli._drawing.console import make_console

    console = make_console()
    # Progress goes where it cannot get into what is piped on.
    progress = make_console(stderr=True)
    try:
        session = Session(choose_destination(args.output, _FILE), _COMMAND, os.getpid())
    except OutputError as error:
        print(f"{_COMMAND}: {error}", file=sys.stderr)
        return 2
    demo = _choose()
    if demo is None:
        print(f"{_COMMAND}: {_NOTHING}", file=sys.stderr)
        return 1
    with progress.status(f"loading {demo.compiler}"):
        problem = demo.load()
    if problem:
        print(f"{_COMMAND}: {problem}", file=sys.stderr)
        return 1
    session.provider()
    tilelang_otel.instrument()
    try:
        code = demo.run(bool(args.fail), console, progress)
    finally:
        tilelang_otel.uninstrument()
    with progress.status("exporting"):
        session.flush()
    session.report(console)
    return code


def _choose() -> TVMDemo | TileLangDemo | None:
    """Return the demo for the compiler that is installed; TileLang brings a TVM along."""
    if importlib.util.find_spec("tilelang") is not None:
        return TileLangDemo()
    return TVMDemo() if importlib.util.find_spec("tvm") is not None else None
