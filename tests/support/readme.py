"""The README's fenced blocks, with what each is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["KINDS", "ROOT", "Block", "blocks"]

ROOT: Final = Path(__file__).parents[2]

KINDS: Final = ("python", "sh", "sh receiver", "sh setup", "text demo")
"""What a block may be, as the line that opens it says:

``python``: a script; ``sh``: commands, run one after the other; ``sh receiver``:
the same, with a receiver to send to; ``sh setup``: what installs or sets up, whose
parts are checked but not run; ``text demo``: what the demo prints.
"""

_BLOCK: Final = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        kind: What the opening line says.
        text: What is in it.
        title: The last line of text above it.
        line: Where it begins in the README.
    """

    kind: str
    text: str
    title: str
    line: int


def blocks() -> list[Block]:
    """Return the README's blocks, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [
        Block(
            kind=match["kind"].strip(),
            text=match["text"],
            title=text[: match.start()].strip().rpartition("\n")[2],
            line=text.count("\n", 0, match.start()) + 1,
        )
        for match in _BLOCK.finditer(text)
    ]
