"""Servers in processes of their own: started, waited for, killed, and asked over HTTP.

Owns ports, waiting with a deadline, and what is printed when a server does not
come up. What the servers are is up to ``jaeger``, ``collector`` and
``prometheus``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["Service", "fetch", "fetch_json", "free_ports", "poll_until", "running"]

_Result = TypeVar("_Result")

_LOG_LINES = 40


def poll_until(
    check: Callable[[], _Result], awaited: str, timeout_s: float = 30.0, every_s: float = 0.1
) -> _Result:
    """Return what ``check`` returns as soon as that is true.

    Args:
        check: Returns something false, or raises, while what it looks for is not there.
        awaited: What that is, for the failure.
        timeout_s: After how many seconds this fails.
        every_s: Seconds between two checks.

    Raises:
        AssertionError: The time is up. Says what was awaited, and what came last.
    """
    deadline_s = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        try:
            result = check()
            last: object = result
            if result:
                return result
        except (AssertionError, OSError, LookupError, ValueError) as error:
            last = error
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {timeout_s:g} s for {awaited}; last: {last!r}")
        pause.wait(every_s)


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which nobody listens, all different.

    Args:
        count: How many.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def fetch(
    url: str,
    query: Mapping[str, str | int] | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> str:
    """Return what a GET answers.

    Args:
        url: Where.
        query: Its parameters.
        headers: Its headers.
        tls: How to verify the server.

    Raises:
        OSError: There is no answer, or another than 200.
    """
    if query:
        url = f"{url}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=20, context=tls) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            body = error.read().decode(errors="replace")
        raise OSError(f"{url}: {error.code} {body[:500]}") from None


def fetch_json(url: str, query: Mapping[str, str | int] | None = None) -> Any:
    """Return what a GET answers, decoded."""
    return json.loads(fetch(url, query))


class Service:
    """A program that runs until it is stopped.

    Args:
        name: What it is called in failures.
        command: Its command line.
        environment: Variables beside those of this process.
        is_ready: Tells whether it serves; may raise OSError while it does not.
        log: Where its output goes, over all its lives.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]],
        environment: Mapping[str, str],
        is_ready: Callable[[], object],
        log: Path,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [os.fspath(word) for word in command]
        self._environment = {**os.environ, **environment}
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None
        self._served = False

    def start(self, timeout_s: float = 60.0) -> None:
        """Start it, and wait until it serves.

        Args:
            timeout_s: After how many seconds this fails.
        """
        assert self._process is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        def serves() -> bool:
            if process.poll() is not None:
                return True
            return bool(self._is_ready())

        self._served = False
        try:
            poll_until(serves, f"{self.name} to serve", timeout_s)
            assert process.poll() is None, f"{self.name} ended with exit code {process.returncode}"
            self._served = True
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from None
        finally:
            if not self._served:
                self.kill()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ask it to end, and wait for that.

        Args:
            timeout_s: After how many seconds it is killed.
        """
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End it at once, without a word, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_tail(self, lines: int = _LOG_LINES) -> str:
        """Return the end of its output.

        Args:
            lines: How much of it.
        """
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([f"--- {self.name}, last lines:", *text.splitlines()[-lines:]])

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # What it would do at its leisure is no part of the test that is over.
        self.kill()
        if error is not None:
            print(self.log_tail())


@contextlib.contextmanager
def running(*services: Service) -> Generator[None, None, None]:
    """Start services in this order, and stop them in the other.

    Args:
        *services: What is to run.
    """
    with contextlib.ExitStack() as stack:
        for service in services:
            stack.enter_context(service)
        yield
