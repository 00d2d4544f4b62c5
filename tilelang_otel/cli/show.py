"""``tilelang-otel show``: trace files as trees.

Owns the options, the complaints and the exit code. Reading is up to
``_traces.file``, drawing to ``_drawing.tree``, the JSON for scripts to ``_traces.as_json``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tilelang_otel.cli._traces.file import SpanReader
from tilelang_otel.cli._traces.tree import Trace, build_traces

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]

__all__ = ["add_parser", "main"]

_MAX_PROBLEMS: Final = 10
_MAX_IDS: Final = 20

_DESCRIPTION = """\
Show trace files as trees: what was compiled, what took the time, what failed.

FILE holds OTLP JSON Lines, as written by `tilelang-otel run`, by the otlp_jsonl
exporter or by an OpenTelemetry Collector's file exporter. Several files are
read as one.

total ms is from a span's start to its end, self ms the part of it in which no
child was running. Time of a container, such as a whole compile, that no child
explains is shown as (not traced)."""

_EPILOG = """\
exit code: 0, or 1 if a file is damaged or holds no spans, or 2 if a file cannot
be read or there is no such trace."""


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments to the command line."""
    parser = subparsers.add_parser(
        "show",
        help="show trace files as trees",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a trace file, or - for standard input"
    )
    parser.add_argument(
        "--min-duration",
        type=_milliseconds,
        default=0.0,
        metavar="MS",
        help="leave out spans shorter than this many milliseconds, unless they failed",
    )
    parser.add_argument(
        "--trace",
        type=str.lower,
        default="",
        metavar="ID",
        help="show only the trace with this id, or those whose ids begin so",
    )
    parser.add_argument(
        "--top",
        type=_whole_number,
        default=10,
        metavar="N",
        help="how many of the slowest passes to list (default 10, 0 for none)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of milliseconds")
    return value


def _whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Show what ``args`` asks for.

    Args:
        args: What the parser of :func:`add_parser` made of the command line.

    Returns:
        0; 1 if a file is damaged or holds no spans; 2 if one cannot be read or
        the trace is not there.
    """
    reader = SpanReader()
    unreadable = False
    files: list[str] = args.files
    for file in files:
        try:
            reader.read_file(file)
        except OSError as error:
            _complain(f"cannot read {file}: {error.strerror or error}")
            unreadable = True
    traces = build_traces(reader.spans)
    if args.trace:
        chosen = [trace for trace in traces if trace.trace_id.startswith(args.trace)]
        if traces and not chosen:
            _complain(_unknown_trace(args.trace, traces))
            return 2
        traces = chosen
    min_duration_ns = round(args.min_duration * 1e6)
    if args.json:
        from tilelang_otel.cli._traces.as_json import to_json

        document = to_json(traces, reader.problems, min_duration_ns=min_duration_ns, top=args.top)
        print(json.dumps(document))
    else:
        from tilelang_otel.cli._drawing.console import make_console
        from tilelang_otel.cli._drawing.tree import render_traces

        render_traces(traces, make_console(), min_duration_ns=min_duration_ns, top=args.top)
    # Last, so that they are not scrolled away; in order with what went to a file.
    sys.stdout.flush()
    _complain_about(reader)
    if not traces and not unreadable:
        _complain(f"no spans in {', '.join(files)}")
    if unreadable:
        return 2
    return 1 if reader.problems or not traces else 0


def _complain(message: str) -> None:
    print(f"tilelang-otel show: {message}", file=sys.stderr)


def _complain_about(reader: SpanReader) -> None:
    for problem in reader.problems[:_MAX_PROBLEMS]:
        _complain(str(problem))
    more = len(reader.problems) - _MAX_PROBLEMS
    if more > 0:
        _complain(f"{more} more damaged lines")
    if reader.duplicates:
        _complain(f"{reader.duplicates} spans are there more than once and shown once")


def _unknown_trace(wanted: str, traces: Sequence[Trace]) -> str:
    from tilelang_otel.cli._drawing.text import ASCII, clean

    lines = [f"no trace {wanted}; there are:"]
    lines += [clean(f"  {trace.trace_id}  {trace.name}", ASCII) for trace in traces[:_MAX_IDS]]
    if len(traces) > _MAX_IDS:
        lines.append(f"  and {len(traces) - _MAX_IDS} more")
    return "\n".join(lines)
