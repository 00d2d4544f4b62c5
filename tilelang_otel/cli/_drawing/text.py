"""Text for a terminal: cut to a width, numbers with a unit, bars.

Knows nothing of spans. Everything works in plain ASCII too, for outputs that
cannot show more.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

__all__ = [
    "ASCII",
    "UNICODE",
    "Glyphs",
    "bar",
    "clean",
    "column_decimals",
    "count",
    "duration",
    "fit",
    "milliseconds",
    "wrap",
]


@dataclass(frozen=True)
class Glyphs:
    """What lines, bars and marks are made of."""

    branch: str
    last: str
    down: str
    blank: str
    cut: str
    micro: str
    eighths: str
    """Cells filled from the left, from one eighth to all of it."""
    right_half: str
    right_edge: str
    is_ascii: bool


UNICODE = Glyphs("├─", "└─", "│ ", "  ", "…", "µ", "▏▎▍▌▋▊▉█", "▐", "▕", False)
ASCII = Glyphs("|-", "`-", "| ", "  ", "~", "u", "...#####", "#", ".", True)

# Control characters would move the cursor or change colours, direction marks
# the order of what is shown, and surrogates cannot be printed at all.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff]"
)


def clean(text: str, glyphs: Glyphs) -> str:
    """Return ``text`` as one line that does nothing to a terminal but show."""
    if text.isascii() and text.isprintable():
        return text
    text = _UNPRINTABLE.sub("?", " ".join(text.split()))
    return text.encode("ascii", "replace").decode("ascii") if glyphs.is_ascii else text


def fit(text: str, width: int, glyphs: Glyphs) -> str:
    """Return ``text`` in exactly ``width`` cells, its middle cut out if it is longer.

    Both ends of a pass's name tell something: where it comes from and what it does.
    """
    length = len(text) if text.isascii() else cell_len(text)
    if length <= width:
        return text + " " * (width - length)
    if width <= 1:
        return glyphs.cut[:width]
    head_width = width // 2
    tail_width = width - 1 - head_width
    tail = text[len(text) - tail_width :]
    while cell_len(tail) > tail_width:
        tail = tail[1:]
    return set_cell_size(set_cell_size(text, head_width) + glyphs.cut + tail, width)


def wrap(text: str, width: int, lines: int, glyphs: Glyphs) -> list[str]:
    """Return the first ``lines`` lines of ``text``, each of at most ``width`` cells."""
    wrapped: list[str] = []
    for line in text.splitlines():
        # More than could be shown is not worth wrapping.
        short = clean(line.strip(), glyphs)[: width * (lines + 1)]
        # Wide characters count twice: then half as many fit.
        fitting = max(width if cell_len(short) == len(short) else width // 2, 8)
        wrapped.extend(textwrap.wrap(short, fitting))
        if len(wrapped) > lines:
            last = wrapped[lines - 1][: max(width - 2, 0)]
            return [*wrapped[: lines - 1], f"{last} {glyphs.cut}"]
    return wrapped


def duration(ns: int, glyphs: Glyphs) -> str:
    """Return a duration with the unit that suits it, e.g. ``57.3 ms``."""
    if ns < 1_000_000:
        return f"{ns / 1e3:.0f} {glyphs.micro}s" if ns >= 1000 else f"{ns} ns"
    if ns < 10_000_000_000:
        return f"{ns / 1e6:,.1f} ms"
    return f"{ns / 1e9:,.1f} s"


def milliseconds(ns: int, decimals: int) -> str:
    """Return milliseconds without the unit, for a column of them."""
    return f"{ns / 1e6:,.{decimals}f}"


def bar(
    intervals: Sequence[tuple[int, int]], start: int, length: int, width: int, glyphs: Glyphs
) -> str:
    """Draw when something was running.

    Args:
        intervals: From and to, in order, not overlapping.
        start: What the left edge stands for.
        length: What the whole width stands for, in the unit of the others.
        width: Cells.
        glyphs: What to draw with.

    Returns:
        ``width`` characters. Whatever is in ``intervals`` shows, however short.
    """
    cells = [" "] * width
    if length <= 0 or width <= 0:
        return "".join(cells)
    scale = width / length
    filled = [0.0] * width
    left = [1.0] * width
    for begin, end in intervals:
        low = min(max((begin - start) * scale, 0.0), width - 1e-6)
        high = min(max((end - start) * scale, low), float(width))
        for cell in range(int(low), min(int(high) + 1, width)):
            part = min(high, cell + 1.0) - max(low, cell)
            if part > 0 or cell == int(low):
                filled[cell] += max(part, 1e-6)
                left[cell] = min(left[cell], max(low - cell, 0.0))
    for cell in range(width):
        if filled[cell]:
            cells[cell] = _cell(filled[cell], left[cell], glyphs)
    return "".join(cells)


def _cell(filled: float, left: float, glyphs: Glyphs) -> str:
    if filled >= 0.94:
        return glyphs.eighths[-1]
    if left < 0.25:
        return glyphs.eighths[max(round(filled * 8) - 1, 0)]
    if filled >= 0.4:
        return glyphs.right_half
    return glyphs.right_edge if left >= 0.5 else glyphs.eighths[0]


def column_decimals(duration_ns: int) -> int:
    """Return how many decimals of a millisecond are worth showing."""
    if duration_ns < 10_000_000:
        return 3
    return 2 if duration_ns < 1_000_000_000 else 1


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, e.g. ``3 spans`` or ``no errors``."""
    plural = plural or f"{noun}s"
    if number == 0:
        return f"no {plural}"
    return f"{number:,} {noun if number == 1 else plural}"
