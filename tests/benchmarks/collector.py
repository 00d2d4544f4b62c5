"""An OTLP receiver in a process of its own, so that its CPU time is not counted as ours.

As a program: prints its endpoint, then answers each line on standard input
with how many spans have arrived, and ends with its input.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tests.support.receiver import OTLPReceiver, endpoint_environment

__all__ = ["Collector"]

_PROTOCOL = "http/protobuf"


class Collector:
    """Starts the process; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.collector"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._endpoint = self._read()

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=30)

    def environment(self) -> dict[str, str]:
        """Return the variables that make an exporter send here."""
        return endpoint_environment(_PROTOCOL, self._endpoint)

    def spans(self) -> int:
        """Return how many spans have arrived."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._read())

    def wait_for(self, count: int, timeout_s: float = 10.0) -> int:
        """Return how many spans have arrived, once there are ``count`` or time is up."""
        deadline_s = time.monotonic() + timeout_s
        while (arrived := self.spans()) < count and time.monotonic() < deadline_s:
            time.sleep(0.01)
        return arrived

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the receiver's process ended with {self._process.wait()}")
        return line.strip()


def _main() -> None:
    with OTLPReceiver(_PROTOCOL) as receiver:
        print(receiver.endpoint, flush=True)
        for _ in sys.stdin:
            print(len(receiver.spans), flush=True)


if __name__ == "__main__":
    _main()
