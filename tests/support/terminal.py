"""A shell with job control in a terminal of its own, typed into by a test."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["CTRL_BACKSLASH", "CTRL_C", "CTRL_Z", "Terminal"]

CTRL_C = "\x03"
CTRL_Z = "\x1a"
CTRL_BACKSLASH = "\x1c"

# The terminal becomes the one of a new session before anything else runs in it.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A terminal, and the program in it, which leads the terminal's session.

    Args:
        *command: The program; none means a shell with job control.
        cwd: The current directory.
        environment: Variables beside those of this process.
        pass_fds: Files that the program is to have.
    """

    def __init__(
        self,
        *command: str,
        cwd: Path,
        environment: Mapping[str, str],
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
        self._master, slave = os.openpty()
        self._seen = ""
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _TAKE_TERMINAL, *(command or shell)],
                cwd=cwd,
                env={**os.environ, "PS1": "$ ", "TERM": "dumb", **environment},
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        finally:
            os.close(slave)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def wait_for(self, expected: str, timeout_s: float = 60.0) -> str:
        """Wait until something is shown, after what was waited for before.

        Args:
            expected: What.
            timeout_s: After how many seconds this fails.

        Returns:
            What was shown before it.
        """
        deadline_s = time.monotonic() + timeout_s
        while expected not in self._seen:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self._master], [], [], left_s)[0]:
                raise AssertionError(f"no {expected!r} after {timeout_s:g} s in {self._seen!r}")
            try:
                data = os.read(self._master, 4096)
            except OSError as error:
                # Linux says so when nobody has the terminal open any more.
                if error.errno != errno.EIO:
                    raise
                data = b""
            assert data, f"the terminal was left without {expected!r}: {self._seen!r}"
            self._seen += data.decode(errors="replace").replace("\r\n", "\n")
        before, _, self._seen = self._seen.partition(expected)
        return before

    def hang_up(self) -> None:
        """Take the terminal away, as when a connection breaks."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Ends what is in the terminal, the jobs of a shell included.
        self.hang_up()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
