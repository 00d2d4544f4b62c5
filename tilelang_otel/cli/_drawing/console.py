"""Where commands print: one way to make a console, for all of them."""

from __future__ import annotations

import io
import sys

from rich.console import Console

__all__ = ["make_console"]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would exit with 1; what to do is up to the command.
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for standard output or standard error.

    Colours and width are found by rich, which honours ``NO_COLOR``,
    ``FORCE_COLOR`` and ``COLUMNS``. A character that the stream's encoding lacks
    is printed as a question mark.

    Args:
        stderr: Print on standard error.
    """
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
