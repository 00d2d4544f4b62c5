"""The names in a crash record: each is written once, and known by its place from then on."""

from __future__ import annotations

import struct
import threading
from typing import Any, Final

from tilelang_otel._crash import _layout as layout
from tilelang_otel._crash._room import Area
from tilelang_otel._scrub import clean_name

__all__ = ["NameTable", "read_name"]

_LENGTH: Final = struct.Struct("<H")
_USED_OFFSET: Final = 24
"""Where the header says how many bytes of names there are."""


class NameTable:
    """Writes names.

    Args:
        memory: The file.
        area: The part of it that is for names.
    """

    def __init__(self, memory: Any, area: Area) -> None:
        self.known: dict[str | None, int] = {None: layout.NO_NAME}
        self._memory = memory
        self._area = area
        self._used_bytes = 0
        self._lock = threading.Lock()

    def add(self, name: str | None) -> int:
        """Return the id of a name; ``NO_NAME`` for none, and when there is no room for it."""
        with self._lock:
            known = self.known.get(name)
            return self._write(name or "") if known is None else known

    def detach(self) -> None:
        """Write no more, in a forked child: no other thread of the parent's is there."""
        self._lock = threading.Lock()
        self._used_bytes = layout.NAMES_BYTES

    def _write(self, name: str) -> int:
        data = clean_name(name).encode("utf-8", "replace")
        place = self._used_bytes
        end = place + _LENGTH.size + len(data)
        if not self._area.has(end):
            return layout.NO_NAME
        start = layout.NAMES_START + place
        _LENGTH.pack_into(self._memory, start, len(data))
        self._memory[start + _LENGTH.size : start + _LENGTH.size + len(data)] = data
        self._used_bytes = end
        struct.pack_into("<Q", self._memory, _USED_OFFSET, end)
        self.known[name] = place
        return place


def read_name(content: bytes, name_id: int) -> str | None:
    """Return a name of a file; None if there is none there."""
    start = layout.NAMES_START + name_id
    if not 0 <= name_id <= layout.NAMES_BYTES - _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(content, start)
    data = content[start + _LENGTH.size : start + _LENGTH.size + length]
    return data.decode("utf-8", "replace") or None
