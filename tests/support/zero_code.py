"""Programs under ``opentelemetry-instrument``, as users start them.

Owns the command line and what the process sees. The programs are files of
their own that know nothing of tracing; where traces go is the environment's.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["Conversation", "run_zero_code", "zero_code_command"]

_ROOT = Path(__file__).parents[2]
_PROGRAMS = _ROOT / "tests" / "e2e" / "programs"


def zero_code_command(program: str, *arguments: str) -> list[str]:
    """Return the command line for one of the programs of ``tests/e2e``.

    Args:
        program: Name of its file.
        *arguments: Its own command line.
    """
    instrument = Path(sys.executable).with_name("opentelemetry-instrument")
    return [str(instrument), sys.executable, str(_PROGRAMS / program), *arguments]


def run_zero_code(
    program: str,
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str],
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a program of ``tests/e2e`` to its end, with tracing switched on from outside.

    Args:
        program: Name of its file.
        *arguments: Its own command line.
        cwd: The current directory.
        environment: Variables beside those of this process.
        timeout_s: After how many seconds it is killed, which fails the test.
    """
    return subprocess.run(
        zero_code_command(program, *arguments),
        cwd=cwd,
        env=_with_checkout(environment),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class Conversation:
    """A program that stops where it asks, until it is answered.

    Args:
        program: Name of its file.
        cwd: The current directory.
        environment: Variables beside those of this process.
    """

    def __init__(self, program: str, cwd: Path, environment: Mapping[str, str]) -> None:
        self._errors = cwd / f"{program}.stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                zero_code_command(program),
                cwd=cwd,
                env=_with_checkout(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, expected: str, timeout_s: float = 60.0) -> None:
        """Wait until it prints a line.

        Args:
            expected: That line.
            timeout_s: After how many seconds this fails.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {expected!r} after {timeout_s:g} s") from None
            assert line is not None, f"it ended without {expected!r}: {self.errors}"
            if line == expected:
                return

    def answer(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def finish(self, timeout_s: float = 60.0) -> int:
        """Return its exit code, once it has ended.

        Args:
            timeout_s: After how many seconds this fails.
        """
        return self._process.wait(timeout_s)

    @property
    def errors(self) -> str:
        """What it printed on standard error."""
        return self._errors.read_text(errors="replace")

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # What was left to write has no reader any more.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _with_checkout(environment: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **environment}
