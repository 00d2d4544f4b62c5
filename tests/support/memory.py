"""How much memory this process has."""

from __future__ import annotations

import os

__all__ = ["resident_bytes"]


def resident_bytes() -> int:
    """Return how many bytes of this process are in memory (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
