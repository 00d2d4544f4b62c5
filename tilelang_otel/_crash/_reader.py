"""Reading what a dead process has left: its compiles, as the records that they were.

Takes nothing for granted: the process may have died in the middle of a store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

from tilelang_otel import semconv
from tilelang_otel._crash import _layout as layout
from tilelang_otel._crash._names import read_name
from tilelang_otel._death import Death
from tilelang_otel._frames import Failure, Frame, Record

__all__ = ["DeadCompile", "DeadProcess", "pid_of", "read"]

_UNKNOWN: Final = "(unknown)"

_LONGEST_NS: Final = 30 * 24 * 3600 * 10**9
"""How much later than all that is known a process may have died."""


@dataclass
class DeadCompile:
    """A compile that was open, or not exported, when its process died."""

    trace_id: int
    span_id: int
    parent_span_id: int
    """0 if it has none."""
    wall_offset_ns: int
    root: Record
    records: list[Record] = field(default_factory=list[Record])
    """What was in it, in start order."""
    span_ids: dict[int, int] = field(default_factory=dict[int, int])
    """Ids of spans, by the ``id()`` of their records, where they had been given any."""


@dataclass
class DeadProcess:
    """What one file says."""

    pid: int
    resource: dict[str, Any]
    compiles: list[DeadCompile] = field(default_factory=list[DeadCompile])

    @property
    def spans(self) -> int:
        """How many spans that makes."""
        return sum(1 + len(compile_.records) for compile_ in self.compiles)


@dataclass(frozen=True)
class _Slot:
    """One slot, taken apart."""

    index: int
    start_ns: int
    end_ns: int
    span_id: int
    name: int
    parent: int
    sequence: int
    depth: int
    phase: int
    outer: int
    error: int
    kind: int

    @property
    def generation(self) -> int:
        """Which compile it is of."""
        return self.kind >> layout.GENERATION_SHIFT


def pid_of(content: bytes) -> int:
    """Return the process that a file is of; 0 if it is no such file."""
    if len(content) < layout.HEADER.size:
        return 0
    magic, _, _, pid, _, _ = layout.HEADER.unpack_from(content)
    return pid if magic == layout.MAGIC else 0


def read(
    content: bytes,
    ended_ns: int = 0,
    is_end_known: bool = False,
    death: Death | None = None,
) -> DeadProcess | None:
    """Read a file.

    Args:
        content: All of it.
        ended_ns: When the process was last seen alive, in nanoseconds since the epoch.
        is_end_known: Whether that is when it died.
        death: How it died, as far as that is known.

    Returns:
        What it says; None if it is none, was never begun, or is recovered already.
    """
    if len(content) < layout.FILE_BYTES:
        return None
    magic, version, state, pid, _, resource_bytes = layout.HEADER.unpack_from(content)
    if (magic, version, state) != (layout.MAGIC, layout.VERSION, layout.LIVE):
        return None
    start = layout.HEADER.size
    process = DeadProcess(pid, _attributes(content[start : start + resource_bytes]))
    by_generation: dict[int, DeadCompile] = {}
    for generation, compile_ in _compiles(content):
        by_generation[generation] = compile_
        process.compiles.append(compile_)
    placed: dict[tuple[int, int], Record] = {}
    for slot in sorted(_slots(content), key=lambda slot: (slot.start_ns, slot.index)):
        owner = by_generation.get(slot.generation)
        if owner is None:
            continue
        record = _record(content, slot)
        # Only what started before it: whatever the file says, there are no circles.
        record.parent = placed.get((slot.generation, slot.parent - 1), owner.root)
        placed[slot.generation, slot.index] = record
        owner.records.append(record)
        if slot.span_id:
            owner.span_ids[id(record)] = slot.span_id
    for compile_ in process.compiles:
        last_ns = max(
            max(record.start_ns, record.end_ns) for record in (compile_.root, *compile_.records)
        )
        end_ns = ended_ns - compile_.wall_offset_ns
        if not last_ns <= end_ns <= last_ns + _LONGEST_NS:
            end_ns = last_ns
        _end(compile_, end_ns, not is_end_known, death or Death())
    return process


def _compiles(content: bytes) -> Iterator[tuple[int, DeadCompile]]:
    for index in range(layout.COMPILES):
        start = layout.COMPILES_START + index * layout.COMPILE_BYTES
        fields = layout.COMPILE_FIELDS.unpack_from(content, start)
        state, generation, name, error, message_bytes, trace_id = fields[:6]
        span_id, parent_id, wall_offset_ns, start_ns, end_ns, attributes_bytes = fields[6:]
        if state not in (layout.OPEN, layout.DONE, layout.FAILED) or not span_id:
            continue
        text = start + layout.COMPILE_FIELDS.size
        data = text + message_bytes
        root = Record()
        root.name = read_name(content, name) or semconv.SPAN_COMPILE
        root.start_ns = start_ns
        root.end_ns = 0 if state == layout.OPEN else end_ns
        root.attributes = _attributes(content[data : data + attributes_bytes])
        if state == layout.FAILED:
            root.failure = Failure(
                read_name(content, error) or semconv.ERROR_TYPE_OTHER,
                content[text:data].decode("utf-8", "replace"),
            )
        trace = int.from_bytes(trace_id, "big")
        yield generation, DeadCompile(trace, span_id, parent_id, wall_offset_ns, root)


def _slots(content: bytes) -> Iterator[_Slot]:
    # Most of the file was never written, and slots are used from the first on.
    size = layout.SLOT_BYTES
    end = len(content.rstrip(b"\0"))
    for index in range(min(layout.SLOTS, (end - layout.SLOTS_START) // size + 1)):
        start = layout.SLOTS_START + index * size
        if start + size > len(content):
            return
        if content[start + layout.SLOT_KIND_BYTES] & layout.USED:
            slot = _Slot(index, *layout.SLOT.unpack_from(content, start))
            if slot.start_ns:
                yield slot


def _record(content: bytes, slot: _Slot) -> Record:
    record: Record
    if slot.kind & layout.FRAME:
        record = frame = Frame()
        frame.sequence, frame.depth = slot.sequence, slot.depth
        frame.parent_sequence = slot.outer - 1 if slot.outer else None
        frame.phase = read_name(content, slot.phase)
    else:
        record = Record()
        record.is_client = bool(slot.kind & layout.CLIENT)
    record.name = read_name(content, slot.name) or _UNKNOWN
    record.start_ns = slot.start_ns
    record.end_ns = max(slot.end_ns, slot.start_ns) if slot.end_ns else 0
    record.end_estimated = bool(slot.kind & layout.ESTIMATED)
    if slot.error and slot.end_ns:
        record.failure = Failure(read_name(content, slot.error - 1) or semconv.ERROR_TYPE_OTHER)
    return record


def _end(compile_: DeadCompile, end_ns: int, is_estimated: bool, death: Death) -> None:
    """End what was open when the process died, and sum up what is inside what."""
    everything = [compile_.root, *compile_.records]
    is_open = [record for record in everything if not record.end_ns]
    outer = {id(record.parent) for record in is_open}
    origin = next((r.name for r in reversed(is_open) if id(r) not in outer), "")
    for record in is_open:
        is_deepest = id(record) not in outer
        record.failure = Failure(
            semconv.ERROR_TYPE_PROCESS_DIED,
            death.message,
            origin="" if is_deepest else origin,
        )
        record.end_ns = max(end_ns, record.start_ns)
        record.end_estimated = is_estimated
        if is_deepest or record is compile_.root:
            record.attributes = {**(record.attributes or {}), **death.attributes}
    for record in compile_.records:
        if record.parent is not None:
            record.parent.children_ns += record.end_ns - record.start_ns


def _attributes(data: bytes) -> dict[str, Any]:
    try:
        values = json.loads(data or b"{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", values) if isinstance(values, dict) else {}
