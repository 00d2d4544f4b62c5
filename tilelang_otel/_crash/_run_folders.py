"""Folders of ``tilelang-otel run``: made, told from those of the dead, removed.

Owns what says that a run lives: a file in its folder on which ``run`` holds a POSIX
record lock. The kernel takes that back when ``run`` ends, however it ends; the program,
its child, never has it. The lock is also gone once *any* descriptor of that file is
closed in the process, so nobody there may open it again: folders of this process are
passed over.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Final

from tilelang_otel._crash._files import try_lock

__all__ = ["RunFolder", "dead_runs", "remove_if_empty"]

_PREFIX: Final = "tilelang-otel-run-"
_NAME: Final = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}")
_NEW_SUFFIX: Final = ".new"

_ALIVE: Final = "alive"
_REPORTED: Final = "reported"

_own: Final[set[Path]] = set()
"""The folders of runs that this process is."""


class RunFolder:
    """The folder of one run, which counts as living from before anybody can see it.

    Args:
        directory: Where; made if it is not there.

    Attributes:
        path: The folder.

    Raises:
        OSError: It cannot be made there, or no file can be locked there.
    """

    def __init__(self, directory: str) -> None:
        above = Path(os.path.abspath(directory))
        above.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = above / f"{_PREFIX}{secrets.token_hex(8)}"
        new = path.with_suffix(_NEW_SUFFIX)
        new.mkdir(mode=0o700)
        descriptor = -1
        try:
            # Not inherited by the program, nor by what it starts.
            descriptor = os.open(new / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            if not try_lock(descriptor):
                raise OSError("no file can be locked there")
            _own.add(path)
            new.rename(path)
        except BaseException:
            _own.discard(path)
            if descriptor >= 0:
                os.close(descriptor)
            remove_if_empty(new)
            raise
        self.path = str(path)
        self._descriptor = descriptor

    @property
    def reported(self) -> str:
        """A file for the program to make once it has begun to report by itself."""
        return os.path.join(self.path, _REPORTED)

    def remove(self) -> None:
        """Remove it, or leave it as that of a dead run if there are records in it."""
        remove_if_empty(Path(self.path))
        os.close(self._descriptor)
        _own.discard(Path(self.path))


def dead_runs(directory: str) -> Generator[Path, None, None]:
    """Yield the folders of runs that have died, each locked until the next is asked for.

    Args:
        directory: Where to look; need not exist.
    """
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        path = Path(os.path.abspath(directory)) / name
        if not _NAME.fullmatch(name) or path in _own:
            continue
        with contextlib.suppress(OSError):
            try:
                descriptor = os.open(path / _ALIVE, os.O_RDWR)
            except FileNotFoundError:
                # Removed by halves, or made anew by a process that has outlived its run.
                yield path
                continue
            try:
                if try_lock(descriptor):
                    yield path
            finally:
                os.close(descriptor)


def remove_if_empty(path: Path) -> None:
    """Remove a folder in which nothing is but what says how its run is. Never raises."""
    with contextlib.suppress(OSError):
        names = set(os.listdir(path))
        if names <= {_ALIVE, _REPORTED}:
            for name in names:
                (path / name).unlink()
            path.rmdir()
