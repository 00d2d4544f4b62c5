"""Room on the disk for the parts of a crash record, taken before they are written to.

A file that is mapped into memory has holes wherever nobody has written. When the disk
turns out to be full, a store into a hole is not an error but a signal that ends the
process (SIGBUS), so a part is filled with zeros before it is handed out: that fails
like any other write. A file system that copies what is written over, instead of
replacing it, may still run out of room.
"""

from __future__ import annotations

import os
from typing import Final

from tilelang_otel._config import warn_once
from tilelang_otel._crash import _layout as layout

__all__ = ["Area", "Room"]

_ZEROS: Final = bytes(65_536)


class Room:
    """The room that a file takes up: little at first, and more where it is needed.

    Args:
        descriptor: The file, as long as it can become, which nobody writes to yet.
        directory: Where it is.

    Raises:
        OSError: There is not even room for one small compile.

    Attributes:
        names: For the names.
        compiles: For the compiles.
        slots: For the slots.
    """

    def __init__(self, descriptor: int, directory: str) -> None:
        self._descriptor: int | None = descriptor
        self._directory = directory
        self._is_full = False
        self._fill(0, layout.HEADER_BYTES)
        self.names = self._begin(layout.NAMES_START, layout.NAMES_BYTES, 16_384)
        self.compiles = self._begin(
            layout.COMPILES_START, layout.COMPILES * layout.COMPILE_BYTES, 32_768
        )
        self.slots = self._begin(layout.SLOTS_START, layout.SLOTS * layout.SLOT_BYTES, 65_536)

    def take(self, start: int, end: int) -> bool:
        """Make sure that there is room for these bytes; return whether there is. Never raises.

        When there is not, nothing more is taken until :meth:`look_again`.
        """
        if self._is_full or self._descriptor is None:
            return False
        try:
            self._fill(start, end)
        except OSError as error:
            self._is_full = True
            reason = error.strerror or error
            problem = f"the crash record in {self._directory} cannot keep all: {reason}"
            warn_once("crash record room", problem)
            return False
        return True

    def look_again(self) -> None:
        """Try once more the next time, even if there was no room."""
        self._is_full = False

    def close(self) -> None:
        """Take no more: the file is somebody else's, or about to go."""
        self._descriptor = None

    def _begin(self, start: int, size_bytes: int, step_bytes: int) -> Area:
        self._fill(start, start + step_bytes)
        return Area(self, start, size_bytes, step_bytes)

    def _fill(self, start: int, end: int) -> None:
        descriptor = self._descriptor
        while descriptor is not None and start < end:
            # A disk that is almost full takes less than it is given.
            start += os.pwrite(descriptor, _ZEROS[: end - start], start)


class Area:
    """A part of the file, which is used from its start on. Not from two threads at once.

    Args:
        room: The file's; the first step has been taken.
        start: Its first byte.
        size_bytes: How large it can become.
        step_bytes: How much is taken at a time.

    Attributes:
        bytes: How many bytes, from its start on, can be written to.
    """

    def __init__(self, room: Room, start: int, size_bytes: int, step_bytes: int) -> None:
        self.bytes = step_bytes
        self._room = room
        self._start = start
        self._size_bytes = size_bytes
        self._step_bytes = step_bytes

    def has(self, size_bytes: int) -> bool:
        """Return whether as many bytes can be written to, if necessary after making room.

        Never raises.
        """
        if size_bytes > self._size_bytes:
            return False
        while self.bytes < size_bytes:
            end = min(self.bytes + self._step_bytes, self._size_bytes)
            if not self._room.take(self._start + self.bytes, self._start + end):
                return False
            self.bytes = end
        return True
