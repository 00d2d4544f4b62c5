"""The file of a crash record: where what is, to the byte.

A header, a table of names, a table of compiles, and one slot for each record. Everything
has a fixed place and is written with plain stores into mapped memory, so that whatever
the process dies of leaves what was there a moment before.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = [
    "CLIENT",
    "COMPILES",
    "COMPILES_START",
    "COMPILE_BYTES",
    "COMPILE_FIELDS",
    "DONE",
    "ESTIMATED",
    "FAILED",
    "FILE_BYTES",
    "FRAME",
    "GENERATION_SHIFT",
    "HEADER",
    "HEADER_BYTES",
    "LIVE",
    "MAGIC",
    "NAMES_BYTES",
    "NAMES_START",
    "NEW_SLOT",
    "NO_NAME",
    "OPEN",
    "RECOVERED",
    "SLOT",
    "SLOTS",
    "SLOTS_START",
    "SLOT_BYTES",
    "SLOT_END_BYTES",
    "SLOT_ERROR_BYTES",
    "SLOT_KIND_BYTES",
    "SLOT_SPAN_BYTES",
    "USED",
    "VERSION",
]

MAGIC: Final = b"tilotelc"
VERSION: Final = 1

HEADER: Final = struct.Struct("<8sIIQQI")
"""Magic, version, state, process id, bytes of names used, bytes of the resource's JSON,
which follows."""
HEADER_BYTES: Final = 16_384

LIVE: Final = 0
RECOVERED: Final = 1
"""State of a file whose records have been turned into spans."""

NAMES_START: Final = HEADER_BYTES
NAMES_BYTES: Final = 262_144
"""Names one after the other: two bytes of length, and UTF-8. A name's id is its place."""

COMPILES_START: Final = NAMES_START + NAMES_BYTES
COMPILES: Final = 1024
COMPILE_BYTES: Final = 2048
COMPILE_FIELDS: Final = struct.Struct("<IIIII16sQQqQQH")
"""State, generation, name, error type, error message's bytes, trace, span, parent span,
wall clock offset, start and end in nanoseconds, attributes' bytes. The message and the
attributes' JSON follow."""

SLOTS_START: Final = COMPILES_START + COMPILES * COMPILE_BYTES
SLOTS: Final = 65_536
"""As many as our default span queue holds."""
SLOT: Final = struct.Struct("=QQQIIIIIII4xQ")
"""Start, end, span, name, parent's slot plus one, sequence, depth, phase, parent sequence
plus one, error type plus one, and the kind with the compile's generation, which is
written last: without it there is no record. Zero is what is not known. In the machine's
own byte order, as single fields are written without packing."""
NEW_SLOT: Final = struct.Struct("=Q16xIIIIII8xQ")
"""The same of a record that has just started; the rest becomes zero."""
SLOT_BYTES: Final = SLOT.size
SLOT_END_BYTES: Final = 8
SLOT_SPAN_BYTES: Final = 16
SLOT_ERROR_BYTES: Final = 48
SLOT_KIND_BYTES: Final = 56
"""Where in a slot these four are, which are written on their own."""

FILE_BYTES: Final = SLOTS_START + SLOTS * SLOT_BYTES

USED: Final = 0x1
"""The slot has a record."""
FRAME: Final = 0x2
"""The record is a pass."""
CLIENT: Final = 0x4
"""The record is a child process's work."""
ESTIMATED: Final = 0x8
"""Nobody saw the record's end."""
GENERATION_SHIFT: Final = 8
"""By how many bits the compile's generation is shifted, beside those."""

OPEN: Final = 1
DONE: Final = 2
FAILED: Final = 3
"""States of a compile; 0 where there is none."""

NO_NAME: Final = 0xFFFFFFFF
