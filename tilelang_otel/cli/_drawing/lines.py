"""Lines for a console, and the styles in them.

Having text laid out costs more than all the rest of a trace's way to the
terminal. Here a line is a list of finished pieces, which the console only prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

__all__ = ["BARS", "DIM", "FAILED", "HOT", "MESSAGE", "PLAIN", "STRONG", "Line", "Lines"]

PLAIN: Final = Style()
STRONG: Final = Style(bold=True)
DIM: Final = Style(dim=True)
FAILED: Final = Style(color="red", bold=True)
MESSAGE: Final = Style(color="red")
HOT: Final = Style(color="yellow", bold=True)
BARS: Final = {"container": Style(color="blue"), "work": Style(color="cyan"), "remark": DIM}

Line = list[Segment]


class Lines:
    """Lines that rich prints as they are."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from line
            yield Segment.line()
