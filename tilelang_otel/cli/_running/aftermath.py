"""What ``run`` does when its program is dead: what the program could not do itself.

Owns where the program leaves word of what it is doing and of having reported, and
what is done about it. If this process is killed too, others find that word. Waiting for
the end is up to ``_running.parent``, recovering spans to ``_sdk.recovery``, and saying
what happened to ``_running.exporting``.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tilelang_otel import _crash
from tilelang_otel._config import crash_directory, read_settings
from tilelang_otel._death import Death
from tilelang_otel.cli._running.destination import Destination
from tilelang_otel.cli._running.parent import die_of
from tilelang_otel.environment_variables import (
    OTEL_PYTHON_TILELANG_CRASH_DIRECTORY,
    OTEL_PYTHON_TILELANG_CRASH_RECORD,
)

if TYPE_CHECKING:
    from tilelang_otel.cli._running.exporting import Session

__all__ = ["Leavings", "look_after", "make_leavings"]


_COMMAND: Final = "tilelang-otel run"


@dataclass(frozen=True)
class Leavings:
    """What a program leaves behind beside its traces.

    Attributes:
        folder: Of this run alone; goes with it.
        records: The folder of crash records: the one above, or the user's.
        recover: The command that recovers what is left there.
    """

    folder: _crash.RunFolder
    records: str
    recover: str

    def environment(self) -> dict[str, str]:
        """Return the variables that the program needs."""
        return {
            OTEL_PYTHON_TILELANG_CRASH_RECORD: "on",
            OTEL_PYTHON_TILELANG_CRASH_DIRECTORY: self.records,
        }

    def remove(self) -> None:
        """Remove what is of this run alone; records of processes that outlive it stay."""
        _crash.remove_dead_runs(self.folder.path)
        self.folder.remove()


def make_leavings() -> Leavings | None:
    """Return where the program is to leave word; None if it is not to, or cannot.

    ``run`` keeps a crash record unless the user has said otherwise.
    """
    is_given = bool(os.environ.get(OTEL_PYTHON_TILELANG_CRASH_RECORD, "").strip())
    settings = read_settings(crash_record=None if is_given else True)
    if not settings.crash_record:
        return None
    # The program may change its directory.
    directory = os.path.abspath(crash_directory(settings))
    is_named = bool(settings.crash_directory)
    try:
        folder = _crash.RunFolder(directory)
    except OSError:
        # Some have no home that can be written. Who recovers has to be told where.
        try:
            temporary = tempfile.gettempdir()
            folder = _crash.RunFolder(temporary)
        except OSError:
            return None
        if not is_named:
            directory, is_named = temporary, True
    return Leavings(
        folder,
        directory if settings.crash_directory else folder.path,
        "tilelang-otel recover" + (f" --directory {shlex.quote(directory)}" if is_named else ""),
    )


def look_after(leavings: Leavings, destination: Destination, pid: int, status: int) -> bool:
    """Do what a program has left to be done: most often nothing.

    What there is to say is said when this process exits, and then it dies of the
    signal that the program died of, if it did.

    Args:
        leavings: What it has left behind.
        destination: Where its traces go.
        pid: Its process id.
        status: Its exit code, or the negative number of the signal that it died of.

    Returns:
        Whether there is something to say.
    """
    ended_ns = time.time_ns()
    # Who cleans up old files takes the word of a long program with them.
    folder = leavings.folder
    has_reported = os.path.exists(folder.reported) or not os.path.isdir(folder.path)
    dead = _dead_processes(leavings.records)
    if has_reported and not dead:
        leavings.remove()
        return False
    from tilelang_otel.cli._running.exporting import Session

    if has_reported:
        # It was another process that died, and the rest has been told.
        destination = dataclasses.replace(destination, file_start_bytes=_size(destination.file))
    end = _End(Session(destination, _COMMAND, os.getpid()), leavings, status)
    # Exit handlers run last to first, so it comes after the exporters'.
    atexit.register(end.come)
    if dead:
        # This process has nothing to record, and is the one to recover.
        os.environ[OTEL_PYTHON_TILELANG_CRASH_RECORD] = "off"
        from tilelang_otel._sdk.recovery import Impatient, recover

        found = recover(
            leavings.records,
            Impatient(end.session.provider(), end.session.flush),
            deaths={pid: Death.of_status(status)},
            # Nobody knows when others have died.
            ended_ns=ended_ns if dead == {pid} else None,
        )
        end.is_anything_left = bool(found.undelivered)
    return True


def _dead_processes(folder: str) -> set[int]:
    """Return the processes that have died and left something; remove what says nothing."""
    found: set[int] = set()
    for file in _crash.dead_files(folder):
        process = _crash.read(file.content)
        if process is not None and process.compiles:
            found.add(process.pid)
        else:
            file.remove()
    return found


def _size(file: str | None) -> int:
    try:
        return 0 if file is None else os.path.getsize(file)
    except OSError:
        return 0


@dataclass
class _End:
    """The last that this process does."""

    session: Session
    leavings: Leavings
    status: int
    is_anything_left: bool = False

    def come(self) -> None:
        """Say what there is to say, and die as the program did."""
        try:
            self.session.report_at_exit()
            if self.is_anything_left:
                print(f"{_COMMAND}: not delivered yet: {self.leavings.recover}", file=sys.stderr)
        except KeyboardInterrupt:
            pass
        finally:
            if not self.is_anything_left:
                self.leavings.remove()
            if self.status < 0:
                die_of(-self.status)
