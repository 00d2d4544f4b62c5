"""Writing the crash record of this process: compiles, and what is open or not exported.

Owns the slots: which are free, and which belong to a span that is on its way out. The
two calls around a pass are plain stores into mapped memory; nothing is flushed, since
the pages outlive the process and only a machine that crashes would lose them.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import struct
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tilelang_otel._crash import _files
from tilelang_otel._crash import _layout as layout
from tilelang_otel._crash._names import NameTable
from tilelang_otel._frames import Frame, Record

__all__ = ["CompileLog", "CrashRecord"]

_MESSAGE_BYTES: Final = 512
_ATTRIBUTES_BYTES: Final = layout.COMPILE_BYTES - layout.COMPILE_FIELDS.size - _MESSAGE_BYTES

# On the callback path, where a name of a module costs as much as a store.
_SLOTS_START: Final = layout.SLOTS_START
_SLOT_BYTES: Final = layout.SLOT_BYTES
_LAST_END: Final = layout.FILE_BYTES - _SLOT_BYTES + layout.SLOT_END_BYTES + 8
_store_new: Final = layout.NEW_SLOT.pack_into
_store_64: Final = struct.Struct("=Q").pack_into
_store_32: Final = struct.Struct("=I").pack_into


class CrashRecord:
    """The file of this process.

    Args:
        directory: Where it is.
        pid: This process.
        resource: What the tracer provider says of its process.

    Raises:
        OSError: It cannot be made there.
    """

    def __init__(self, directory: str, pid: int, resource: Mapping[str, Any]) -> None:
        self.path, self._room, self.memory = _files.create(directory, pid)
        self._write_resource(resource)
        self.names = NameTable(self.memory, self._room.names)
        # Those that were in use before; the others come lowest first.
        self.free_slots: list[int] = []
        self._slots = 0
        self._free_compiles: list[int] = []
        self._compiles = 0
        self._logs: dict[int, CompileLog] = {}
        self._generation = 0
        self._of_span: dict[int, tuple[CompileLog, Record]] = {}
        self._lock = threading.Lock()

    def compile_began(
        self,
        trace_id: int,
        span_id: int,
        parent_span_id: int,
        root: Record,
        wall_offset_ns: int,
        is_tracked: bool,
    ) -> CompileLog | None:
        """Keep a compile.

        Args:
            trace_id: Its trace.
            span_id: Its span.
            parent_span_id: The span that it is in; 0 if there is none.
            root: Its record, whose name, attributes and start are known.
            wall_offset_ns: What to add to a record's times to get wall clock times.
            is_tracked: Whether :meth:`exported` will be told of its spans. If not, a
                record is forgotten when its span has ended.

        Returns:
            What keeps its records; None when too many compiles are kept already.
        """
        with self._lock:
            self._room.look_again()
            index = self._take_compile()
            if index is None:
                return None
            self._generation += 1
            log = CompileLog(
                self,
                index,
                self._generation,
                trace_id.to_bytes(16, "big"),
                (span_id, parent_span_id, wall_offset_ns),
                is_tracked,
            )
            self._logs[index] = log
            if is_tracked:
                self._of_span[span_id] = log, root
        log.write_root(root)
        return log

    def _take_compile(self) -> int | None:
        if self._free_compiles:
            return self._free_compiles.pop()
        if not self._room.compiles.has((self._compiles + 1) * layout.COMPILE_BYTES):
            return None
        self._compiles += 1
        return self._compiles - 1

    def take_slot(self) -> int:
        """Return a slot that is free, or that there is room for; else -1. Never raises."""
        with self._lock:
            area = self._room.slots
            if not self.free_slots and area.has((self._slots + 1) * layout.SLOT_BYTES):
                end = area.bytes // layout.SLOT_BYTES
                self.free_slots.extend(range(end - 1, self._slots - 1, -1))
                self._slots = end
            try:
                return self.free_slots.pop()
            except IndexError:
                return -1

    def track(self, log: CompileLog, record: Record, span_id: int) -> None:
        """Remember which record a span is of."""
        self._of_span[span_id] = log, record

    def exported(self, span_ids: Iterable[int]) -> None:
        """Forget the records of spans that an exporter is done with. Never raises."""
        for span_id in span_ids:
            found = self._of_span.pop(span_id, None)
            if found is not None:
                log, record = found
                log.forget(record)

    def forget_compile(self, log: CompileLog) -> None:
        """Make room for another compile."""
        with self._lock:
            if self._logs.pop(log.index, None) is not None:
                self.write_compile(log.index, layout.COMPILE_FIELDS.pack(*[0] * 5, b"", *[0] * 6))
                self._free_compiles.append(log.index)

    def write_compile(self, index: int, data: bytes) -> None:
        """Write what is known of a compile."""
        start = layout.COMPILES_START + index * layout.COMPILE_BYTES
        self.memory[start : start + len(data)] = data

    def close(self) -> None:
        """Remove the file: the process ends as it should. Never raises."""
        self.detach()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def detach(self) -> None:
        """Write no more: into nothing from now on, for whoever goes on. Never raises.

        In a forked child, the file is the parent's.
        """
        self._room.close()
        self.names.detach()
        self._lock = threading.Lock()
        # Memory that is not there until it is written to.
        self.memory = mmap.mmap(-1, layout.FILE_BYTES)
        for log in list(self._logs.values()):
            log.write_to(self.memory)
        self._of_span.clear()

    def _write_resource(self, resource: Mapping[str, Any]) -> None:
        room_bytes = layout.HEADER_BYTES - layout.HEADER.size
        data = _as_json(resource, room_bytes)
        start = layout.HEADER.size
        self.memory[start : start + len(data)] = data
        self.memory[start - 4 : start] = len(data).to_bytes(4, "little")


class CompileLog:
    """Keeps the records of one compile, on whichever threads. None of the methods raises.

    Attributes:
        index: Which compile of the file it is.
    """

    def __init__(
        self,
        owner: CrashRecord,
        index: int,
        generation: int,
        trace_id: bytes,
        ids: tuple[int, int, int],
        is_tracked: bool,
    ) -> None:
        self.index = index
        self.write_to(owner.memory)
        self._owner = owner
        self._generation = generation
        self._trace_id = trace_id
        self._ids = ids
        self._is_tracked = is_tracked
        self._names = owner.names
        self._known = owner.names.known
        self._free = owner.free_slots
        self._root: Record | None = None
        self._kind = layout.USED | generation << layout.GENERATION_SHIFT
        self._pass_kind = self._kind | layout.FRAME

    def write_to(self, memory: mmap.mmap) -> None:
        """Write there from now on."""
        self._memory = memory
        # Of all ways to write eight bytes, the one that takes half of the others' time.
        ends = memoryview(memory)[_SLOTS_START + layout.SLOT_END_BYTES : _LAST_END].cast("Q")
        self._ends = ends[:: _SLOT_BYTES // ends.itemsize]

    def opened_pass(self, frame: Frame) -> None:
        """Keep a pass that has just started: :meth:`opened`, as fast as can be."""
        try:
            slot = frame.crash_slot = self._free.pop()
        except IndexError:
            slot = frame.crash_slot = self._owner.take_slot()
            if slot < 0:
                return
        # Past the property, which would cost a tenth of all that a callback costs.
        name = frame.known_name
        if name is None:
            try:
                name = frame.known_name = str(frame.info.name)
            except Exception:  # noqa: BLE001 - the property knows what to do with it
                name = frame.name
        known = self._known
        parent, phase, outer = frame.parent, frame.phase, frame.parent_sequence
        _store_new(
            self._memory,
            _SLOTS_START + slot * _SLOT_BYTES,
            frame.start_ns,
            known[name] if name in known else self._names.add(name),
            0 if parent is None else parent.crash_slot + 1,
            frame.sequence,
            frame.depth,
            known[phase] if phase in known else self._names.add(phase),
            0 if outer is None else outer + 1,
            self._pass_kind,
        )

    def opened(self, record: Record) -> None:
        """Keep a record that has just started."""
        if isinstance(record, Frame):
            self.opened_pass(record)
            return
        slot = record.crash_slot = self._owner.take_slot()
        if slot < 0:
            return
        _store_new(
            self._memory,
            _SLOTS_START + slot * _SLOT_BYTES,
            record.start_ns,
            self._names.add(record.name),
            0 if record.parent is None else record.parent.crash_slot + 1,
            0,
            0,
            layout.NO_NAME,
            0,
            self._kind | (layout.CLIENT if record.is_client else 0),
        )

    def closed(self, record: Record) -> None:
        """Keep the end of a record."""
        slot = record.crash_slot
        if slot >= 0:
            if record.failure is not None:
                self._keep_failure(record, _SLOTS_START + slot * _SLOT_BYTES)
            self._ends[slot] = record.end_ns

    def _keep_failure(self, record: Record, start: int) -> None:
        failure = record.failure
        if failure is not None:
            error = min(self._names.add(failure.type) + 1, layout.NO_NAME)
            _store_32(self._memory, start + layout.SLOT_ERROR_BYTES, error)
        if record.end_estimated:
            self._memory[start + layout.SLOT_KIND_BYTES] |= layout.ESTIMATED

    def started(self, record: Record, span_id: int) -> None:
        """Keep which span a record has become."""
        slot = record.crash_slot
        if slot < 0:
            return
        start = _SLOTS_START + slot * _SLOT_BYTES
        _store_64(self._memory, start + layout.SLOT_SPAN_BYTES, span_id)
        if self._is_tracked:
            self._owner.track(self, record, span_id)

    def sent(self, record: Record) -> None:
        """Take note that a record's span is with the provider."""
        if not self._is_tracked:
            self.forget(record)

    def forget(self, record: Record) -> None:
        """Keep a record no longer."""
        if record is self._root:
            self._owner.forget_compile(self)
            return
        slot, record.crash_slot = record.crash_slot, -1
        if slot >= 0:
            self._memory[_SLOTS_START + slot * _SLOT_BYTES + layout.SLOT_KIND_BYTES] = 0
            self._free.append(slot)

    def finished(self, root: Record) -> None:
        """Keep the end of the compile itself."""
        self.write_root(root)

    def write_root(self, root: Record) -> None:
        """Write what is known of the compile itself."""
        self._root = root
        failure = root.failure
        state = (
            layout.OPEN if not root.end_ns else layout.DONE if failure is None else layout.FAILED
        )
        message = b"" if failure is None else _cut(failure.message, _MESSAGE_BYTES)
        attributes = _as_json(root.attributes or {}, _ATTRIBUTES_BYTES)
        span_id, parent_span_id, wall_offset_ns = self._ids
        fields = layout.COMPILE_FIELDS.pack(
            state,
            self._generation,
            self._names.add(root.name),
            layout.NO_NAME if failure is None else self._names.add(failure.type),
            len(message),
            self._trace_id,
            span_id,
            parent_span_id,
            wall_offset_ns,
            root.start_ns,
            root.end_ns,
            len(attributes),
        )
        self._owner.write_compile(self.index, fields + message + attributes)


def _as_json(values: Mapping[str, Any], room_bytes: int) -> bytes:
    """Return plain attributes as JSON, as many of them as there is room for."""
    kept: dict[str, Any] = {}
    data = b"{}"
    for key, value in values.items():
        plain = list(value) if isinstance(value, list | tuple) else value  # pyright: ignore
        try:
            longer = json.dumps({**kept, key: plain}).encode()
        except (TypeError, ValueError):
            continue
        if len(longer) <= room_bytes:
            kept[key] = plain
            data = longer
    return data


def _cut(text: str, limit_bytes: int) -> bytes:
    return text.encode("utf-8", "replace")[:limit_bytes].decode("utf-8", "ignore").encode()
