"""``tilelang-otel demo``: compiles a small model, and shows what that looks like.

Owns the options, the progress and the exit code. The model is up to
``_demo_model``; tracing and the tree, to ``_running.exporting``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import tilelang_otel
from tilelang_otel.cli._running.destination import OutputError, choose_destination
from tilelang_otel.cli._running.exporting import Session

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

    from rich.console import Console

__all__ = ["add_parser", "main"]

_COMMAND: Final = "tilelang-otel demo"
_FILE: Final = "tilelang-otel-demo.jsonl"
_TOLERANCE: Final = 1e-4

_DESCRIPTION = """\
Compile one block of a transformer with TVM for this CPU, run it once, check its
numbers against NumPy, and show what the compiler did.

Without an exporter in the OTEL_* variables, the trace is appended to a file,
and printed as a tree. With one, it is exported there."""


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="compile a small model and show its trace",
        description=_DESCRIPTION,
        epilog="exit code: 0, or 1 if there is no TVM or its numbers are wrong, or 2 if "
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
        0, also when a pass failed that was meant to; 1 if TVM is missing or the
        model's numbers are wrong; 2 if the file cannot be written.
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
    with progress.status("loading TVM"):
        model, problem = _load_model()
    if model is None:
        print(f"{_COMMAND}: {problem}", file=sys.stderr)
        return 1
    session.provider()
    tilelang_otel.instrument()
    try:
        code = _compile(model, bool(args.fail), console, progress)
    finally:
        tilelang_otel.uninstrument()
    with progress.status("exporting"):
        session.flush()
    session.report(console)
    return code


def _load_model() -> tuple[Any, str]:
    """Return the model's module, or None and what is missing."""
    install = "pip install 'tilelang-otel[tvm]'"
    no_llvm = f"has no LLVM to compile for this CPU; in an environment of its own: {install}"
    if importlib.util.find_spec("tvm") is None:
        if importlib.util.find_spec("tilelang") is None:
            return None, f"TVM is not installed: {install}"
        return None, f"the TVM inside TileLang {no_llvm}"
    try:
        model: ModuleType = importlib.import_module("tilelang_otel.cli._demo_model")
    except (ImportError, OSError) as error:  # OSError: a library that fits no other
        return None, f"TVM is installed, but cannot be loaded: {type(error).__name__}: {error}"
    if not model.has_llvm():
        return None, f"this TVM {no_llvm}"
    return model, ""


def _compile(model: Any, fail: bool, console: Console, progress: Console) -> int:
    """Compile and run the model, and print what came of it."""
    inputs = model.make_inputs()
    try:
        # A livelier sign would take its time from the passes.
        with progress.status("compiling a transformer block with TVM", refresh_per_second=0.5):
            executable, parameters = model.build(fail=fail)
    except Exception as error:
        if not fail:
            raise
        console.print(f"The compile failed, as it was meant to: {type(error).__name__}: {error}\n")
        return 0
    with progress.status("running it, and the same in NumPy"):
        result = model.run(executable, parameters, inputs)
        difference = model.largest_difference(result, model.compute_with_numpy(inputs))
    matches = difference <= _TOLERANCE
    console.print(
        f"A transformer block was compiled and run: its numbers "
        f"{'match' if matches else 'do not match'} NumPy's "
        f"(largest difference {difference:.1g}, allowed {_TOLERANCE:.0e}).\n"
    )
    return 0 if matches else 1
