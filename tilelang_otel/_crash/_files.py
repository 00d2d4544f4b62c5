"""Crash records as files: made, locked, told from those of the dead, removed.

The process that writes a file holds a POSIX record lock on it. The kernel takes that
back when the process ends, however it ends; a forked child does not inherit it, and a
process id that has been used again has nothing to do with it. So whoever gets the lock
of a file knows that its writer is dead, and that nobody else recovers it now.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

from tilelang_otel._crash import _layout as layout
from tilelang_otel._crash._room import Room

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["IS_SUPPORTED", "DeadFile", "create", "dead_files_in", "forget_own", "try_lock"]

IS_SUPPORTED: Final = fcntl is not None

_PREFIX: Final = "tilelang-otel-"
_SUFFIX: Final = ".crash"
_NEW_SUFFIX: Final = ".new"

_own: Final[set[Path]] = set()
"""The files that this process has made."""


def create(directory: str, pid: int) -> tuple[Path, Room, mmap.mmap]:
    """Make the file of this process, and lock it.

    Args:
        directory: Where; made if it is not there.
        pid: This process.

    Returns:
        Its path, the room that it has on the disk, and its memory, which is to be
        written to only where there is room.

    Raises:
        OSError: It cannot be made there.
    """
    folder = Path(os.path.abspath(directory))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{_PREFIX}{pid}-{secrets.token_hex(4)}{_SUFFIX}"
    # Before anybody can see it: a thread of this process would get its lock.
    _own.add(path)
    new = path.with_suffix(_NEW_SUFFIX)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try_lock(descriptor)
        os.truncate(descriptor, layout.FILE_BYTES)
        room = Room(descriptor, directory)
        memory = mmap.mmap(descriptor, layout.FILE_BYTES)
        layout.HEADER.pack_into(memory, 0, layout.MAGIC, layout.VERSION, layout.LIVE, pid, 0, 0)
        # Under its own name only now: it would look like a dead one's without the lock.
        new.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        os.close(descriptor)
        _own.discard(path)
        raise
    # The descriptor stays open, as it keeps the lock.
    return path, room, memory


class DeadFile:
    """The file of a process that has died, which nobody else can recover meanwhile.

    Attributes:
        path: Where it is.
        content: All of it.
        modified_s: When it was last changed, in seconds since the epoch.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.modified_s = os.fstat(descriptor).st_mtime
        self.content = _read(descriptor)

    def mark_recovered(self) -> None:
        """Have nobody recover it again, even if it cannot be removed."""
        state = layout.RECOVERED.to_bytes(4, "little")
        os.pwrite(self._descriptor, state, len(layout.MAGIC) + 4)

    def remove(self) -> None:
        """Remove it; whoever may not is left with one that is marked."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def dead_files_in(directory: str) -> Generator[DeadFile, None, None]:
    """Yield the files of dead processes, each locked until the next is asked for.

    Files of this process are not touched: their locks do not hold against itself, and
    to close one once more would give up its lock.

    Args:
        directory: Where to look; need not exist.
    """
    for path in _paths(directory):
        if path in _own:
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR)
            try:
                # It may have been recovered and removed since it was listed.
                if try_lock(descriptor) and os.path.exists(path):
                    yield DeadFile(path, descriptor)
            finally:
                os.close(descriptor)


def forget_own() -> None:
    """Own no file: in a forked child, those there were are the parent's."""
    _own.clear()


def _paths(directory: str) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
            yield Path(os.path.abspath(directory)) / name


def _read(descriptor: int) -> bytes:
    """Read a file of which most was never written: what is behind it reads as zeros."""
    size_bytes = min(os.fstat(descriptor).st_size, layout.FILE_BYTES)
    return os.pread(descriptor, size_bytes, 0)


def try_lock(descriptor: int) -> bool:
    """Lock a file for this process, unless another has locked it; return whether it is.

    Args:
        descriptor: Of the file, open for writing. Closing it, or any other of the same
            file in this process, gives up the lock.
    """
    library: Any = fcntl
    try:
        library.lockf(descriptor, library.LOCK_EX | library.LOCK_NB)
    except OSError:
        return False
    return True
