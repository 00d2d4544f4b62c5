"""The disk and the crash record: how much it takes, and what is left when there is no more."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.crash_records import make_pass, make_root
from tilelang_otel._crash import CompileLog, CrashRecord, read
from tilelang_otel._crash import _layout as layout
from tilelang_otel._crash._room import Room

resource = pytest.importorskip("resource", reason="no file locks and no limits here")

_STEP_SLOTS = 1024
"""As many records have room at first."""


@pytest.fixture
def record(tmp_path: Path) -> Iterator[CrashRecord]:
    """Yield a crash record."""
    record = CrashRecord(str(tmp_path), 4711, {})
    yield record
    record.close()


@contextlib.contextmanager
def _file_limit(limit_bytes: int) -> Iterator[None]:
    """Have this process write no file beyond so many bytes: a disk that is full, for each file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _began(record: CrashRecord) -> CompileLog | None:
    return record.compile_began(1, 2, 3, make_root(), 0, True)


def _open_passes(log: CompileLog, count: int) -> list[str]:
    """Start passes; return the names of those that are kept."""
    passes = [make_pass(f"Pass{i}", make_root(), 110 + i, i) for i in range(count)]
    for each in passes:
        log.opened(each)
    return [each.name for each in passes if each.crash_slot >= 0]


def _kept(record: CrashRecord) -> list[str]:
    process = read(record.path.read_bytes())
    assert process is not None
    return [each.name for compile_ in process.compiles for each in compile_.records]


def test_small_compile_takes_little_of_the_disk(record: CrashRecord) -> None:
    """Whatever the length of the file looks like."""
    log = _began(record)
    assert log is not None
    _open_passes(log, 500)
    status = record.path.stat()
    assert (status.st_size, status.st_blocks * 512 < 200_000) == (layout.FILE_BYTES, True)


def test_disk_that_is_full_from_the_start_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    """Neither a file nor the belief to own one."""
    with _file_limit(layout.HEADER_BYTES), pytest.raises(OSError, match="File too large"):
        CrashRecord(str(tmp_path), 4711, {})
    assert os.listdir(tmp_path) == []


def test_room_for_one_small_compile_is_there_before_the_file_is(tmp_path: Path) -> None:
    """Also where the disk takes only a part of what it is given."""
    path = tmp_path / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.truncate(descriptor, layout.FILE_BYTES)
        room = Room(descriptor, str(tmp_path))
        with _file_limit(layout.SLOTS_START + 100_000):
            assert not room.slots.has(_STEP_SLOTS * layout.SLOT_BYTES + 1)
        assert room.slots.bytes == _STEP_SLOTS * layout.SLOT_BYTES
        room.look_again()
        assert room.slots.has(_STEP_SLOTS * layout.SLOT_BYTES + 1)
    finally:
        os.close(descriptor)


def test_disk_that_fills_up_keeps_what_is_there_and_is_warned_about_once(
    record: CrashRecord, caplog: pytest.LogCaptureFixture
) -> None:
    """What finds no room is not kept for a crash, and nothing else happens."""
    log = _began(record)
    assert log is not None
    with _file_limit(layout.SLOTS_START):
        kept = _open_passes(log, _STEP_SLOTS + 500)
        assert kept == [f"Pass{i}" for i in range(_STEP_SLOTS)]
        other = _began(record)
        assert other is not None
        assert _open_passes(other, 10) == []
    assert sorted(_kept(record)) == sorted(kept)
    [message] = caplog.messages
    assert str(record.path.parent) in message
    assert message.endswith("cannot keep all: File too large")


def test_disk_with_room_again_is_used_by_the_next_compile(record: CrashRecord) -> None:
    """Not before: a compile that found none does not ask for each of its passes."""
    log = _began(record)
    assert log is not None
    with _file_limit(layout.SLOTS_START):
        _open_passes(log, _STEP_SLOTS + 1)
    assert _open_passes(log, 1) == []
    other = _began(record)
    assert other is not None
    assert _open_passes(other, 2) == ["Pass0", "Pass1"]


def test_names_and_compiles_that_find_no_room_are_done_without(record: CrashRecord) -> None:
    """A record without its name is still a record; a compile without a place is none."""
    log = _began(record)
    assert log is not None
    with _file_limit(layout.HEADER_BYTES):
        while record.names.add(f"{len(record.names.known):05}") != layout.NO_NAME:
            pass
        assert _open_passes(log, 1) == ["Pass0"]
        assert _kept(record) == ["(unknown)"]
        while _began(record) is not None:
            pass
    assert len(record._logs) * layout.COMPILE_BYTES == 32_768


def _in_threads(work: Callable[[], Any], count: int) -> None:
    barrier = threading.Barrier(count)

    def run() -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_make_room_at_once_share_no_slot(record: CrashRecord) -> None:
    """Each record has a place of its own, and zeros are never written over one."""
    log = _began(record)
    assert log is not None
    slots: list[int] = []

    def work() -> None:
        passes = [make_pass("Pass", make_root(), 110, i) for i in range(3 * _STEP_SLOTS)]
        for each in passes:
            log.opened(each)
        slots.extend(each.crash_slot for each in passes)

    _in_threads(work, 4)
    assert sorted(slots) == list(range(12 * _STEP_SLOTS))
    assert len(_kept(record)) == 12 * _STEP_SLOTS


@pytest.mark.parametrize("end", [CrashRecord.detach, CrashRecord.close])
def test_record_that_is_given_up_makes_no_more_room(record: CrashRecord, end: Any) -> None:
    """The file may be another process's, whose records zeros would go over."""
    log = _began(record)
    assert log is not None
    with record.path.open("rb") as file:
        end(record)
        assert len(_open_passes(log, 2 * _STEP_SLOTS)) == _STEP_SLOTS
        os.lseek(file.fileno(), layout.SLOTS_START, os.SEEK_SET)
        assert os.read(file.fileno(), layout.FILE_BYTES).strip(b"\0") == b""
        assert os.fstat(file.fileno()).st_blocks * 512 < 200_000
