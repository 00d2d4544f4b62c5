"""Programs in a process of their own, for what only shows when a process starts or ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finished", "run_program"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Finished:
    """What a program left behind."""

    exit_code: int
    stdout: str
    stderr: str
    ended_s: float
    """When it was over, by :func:`time.monotonic`, which all processes here share."""

    @property
    def lines(self) -> list[str]:
        """What it printed, line by line."""
        return self.stdout.splitlines()

    @property
    def complaints(self) -> list[str]:
        """What it printed on standard error, line by line."""
        return self.stderr.splitlines()


def run_program(
    source: str,
    environment: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    timeout_s: float = 60.0,
) -> Finished:
    """Run Python source with this interpreter and this checkout.

    Args:
        source: The program; common indentation is removed.
        environment: Variables beside those of this process.
        arguments: Its command line arguments.
        timeout_s: After how many seconds it is killed, which fails the test.

    Returns:
        What it left behind.
    """
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr, time.monotonic())
