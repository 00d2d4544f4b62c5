"""Records for a crash record to keep: a compile, and passes in it."""

from __future__ import annotations

from typing import Any

from tilelang_otel._frames import Frame, Record

__all__ = ["make_pass", "make_root"]


def make_root(**attributes: Any) -> Record:
    """Return the record of a compile that began at 100 ns.

    Args:
        **attributes: What is known of it.
    """
    root = Record()
    root.name = "compile main"
    root.start_ns = 100
    root.attributes = attributes
    return root


def make_pass(
    name: str, parent: Record, start_ns: int, sequence: int = 0, phase: str | None = None
) -> Frame:
    """Return the record of a pass that has just started.

    Args:
        name: Its name.
        parent: What it is in.
        start_ns: When it started.
        sequence: Its number in the compile.
        phase: Its phase; None: it has none.
    """
    frame = Frame()
    frame.name = name
    frame.parent = parent
    frame.start_ns = start_ns
    frame.sequence = sequence
    frame.phase = phase
    if isinstance(parent, Frame):
        frame.depth = parent.depth + 1
        frame.parent_sequence = parent.sequence
    return frame
