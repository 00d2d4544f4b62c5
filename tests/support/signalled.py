"""Programs that get signals: started, waited for until they are where a test wants them.

Owns their process, which does not outlive the test, and what they print. Programs that
just run are up to ``programs``.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["SignalledProgram", "exported_line"]

_ROOT = Path(__file__).parents[2]

_POLL_S = 0.005


def exported_line(span: Any, pid: int) -> str:
    """Return the line with which a program says that it has exported a span.

    Args:
        span: An SDK span.
        pid: The process that has exported it.
    """
    attributes = span.attributes or {}
    ended_by = (attributes.get("error.type"), attributes.get("tilelang.process.signal"))
    words = [span.name, span.status.status_code.name, *filter(None, ended_by)]
    return f"exported by {pid}: {' '.join(words)}"


class SignalledProgram:
    """Python source that runs in a process of its own; a context manager.

    Args:
        source: The program; common indentation is removed.
        environment: Variables beside those of this process.
        prefix: A command line to run it under.
    """

    def __init__(
        self,
        source: str,
        environment: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-u", "-c", textwrap.dedent(source)],
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.output = ""
        """What it has printed so far, on both streams."""

    def __enter__(self) -> SignalledProgram:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def exported(self, pid: int | None = None) -> list[str]:
        """Return what it has exported: name, status, error and signal of each span, sorted.

        Args:
            pid: The process that did it; by default the program's own.
        """
        start = f"exported by {self.pid if pid is None else pid}: "
        lines = self.output.splitlines()
        return sorted(line.removeprefix(start) for line in lines if line.startswith(start))

    def wait_for(self, text: str, timeout_s: float = 60.0, count: int = 1) -> None:
        """Wait until it has printed ``text``.

        Args:
            text: What to look for.
            timeout_s: How many seconds to wait.
            count: How often it must be there.

        Raises:
            AssertionError: It did not, in ``timeout_s`` seconds or before it ended.
        """
        deadline_s = time.monotonic() + timeout_s
        while self.output.count(text) < count:
            is_there = self._read(deadline_s)
            assert is_there, f"the program did not print {text!r}, but:\n{self.output}"

    def write(self, text: str) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), text.encode())

    def is_running(self) -> bool:
        """Return whether it still runs."""
        return self._process.poll() is None

    def is_asleep(self) -> bool:
        """Return whether its main thread waits for something, not for a processor."""
        stat = Path(f"/proc/{self.pid}/task/{self.pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "S"

    def terminate(self) -> None:
        """Send SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)

    def end(self, timeout_s: float = 60.0) -> tuple[int, float]:
        """Wait for its end.

        Returns:
            Its exit status, negative for a signal, and how many seconds that took.

        Raises:
            AssertionError: It still runs after ``timeout_s`` seconds.
        """
        began_s = time.monotonic()
        deadline_s = began_s + timeout_s
        # Not until the end of its output: what it has started may go on.
        while self._process.poll() is None:
            assert time.monotonic() < deadline_s, (
                f"the program still runs after {timeout_s} s; it printed:\n{self.output}"
            )
            if not self._read(min(time.monotonic() + _POLL_S, deadline_s)):
                time.sleep(_POLL_S)
        seconds = time.monotonic() - began_s
        while self._read(time.monotonic()):
            pass
        return self._process.returncode, seconds

    def _read(self, deadline_s: float) -> bool:
        """Read more of what it prints; return False if there is no more, or not in time."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        if not select.select([fd], [], [], max(deadline_s - time.monotonic(), 0))[0]:
            return False
        some = os.read(fd, 65536)
        self.output += some.decode(errors="replace")
        return bool(some)
