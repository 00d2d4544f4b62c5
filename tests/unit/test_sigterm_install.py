"""Installing the handler of SIGTERM, and undoing it, in the test's own process."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tests.support.threads import in_threads
from tilelang_otel import _sigterm
from tilelang_otel._config import read_settings
from tilelang_otel._recorder import Recorder


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave this process as it was."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    _sigterm.uninstall()
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return what was warned about so far."""
    caplog.set_level(logging.WARNING, "tilelang_otel")
    return lambda: [record.getMessage() for record in caplog.records]


def _wakeup_fd() -> int:
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
    return fd


def test_option_installs_the_handler_and_its_absence_does_not() -> None:
    """Who doesn't ask for it gets nothing."""
    before = signal.getsignal(signal.SIGTERM)
    Recorder()
    assert (signal.getsignal(signal.SIGTERM), _wakeup_fd()) == (before, -1)
    Recorder(settings=read_settings(flush_on_sigterm=True))
    assert signal.getsignal(signal.SIGTERM) is not before
    assert _wakeup_fd() > 0


def test_second_install_changes_nothing() -> None:
    """Else it would hand on to itself."""
    _sigterm.install(5)
    before = signal.getsignal(signal.SIGTERM), _wakeup_fd()
    _sigterm.install(5)
    assert (signal.getsignal(signal.SIGTERM), _wakeup_fd()) == before


def test_uninstall_restores_everything_and_may_be_repeated() -> None:
    """The handler, the wakeup and the threads; the next installation is as good as new."""

    def handler(number: int, frame: FrameType | None) -> None: ...

    signal.signal(signal.SIGTERM, handler)
    threads = set(threading.enumerate())
    for _ in range(2):
        _sigterm.install(5)
        ours = set(threading.enumerate()) - threads
        assert len(ours) == 2
        _sigterm.uninstall()
        _sigterm.uninstall()
        assert signal.getsignal(signal.SIGTERM) is handler
        assert _wakeup_fd() == -1
        for thread in ours:
            thread.join(10)
            assert not thread.is_alive(), f"{thread.name} still runs after 10 s"


def test_uninstall_leaves_later_handler_in_place_and_hands_its_calls_on() -> None:
    """Somebody may still hold ours; each of the others is called once."""
    calls: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: calls.append("first"))
    _sigterm.install(5)
    ours: Any = signal.getsignal(signal.SIGTERM)

    def later(number: int, frame: FrameType | None) -> None:
        calls.append("later")
        ours(number, frame)

    signal.signal(signal.SIGTERM, later)
    _sigterm.uninstall()
    assert signal.getsignal(signal.SIGTERM) is later
    signal.raise_signal(signal.SIGTERM)
    assert calls == ["later", "first"]
    _sigterm.install(5)
    signal.raise_signal(signal.SIGTERM)
    assert calls == ["later", "first"] * 2


def test_wakeup_of_somebody_else_is_left_alone() -> None:
    """An event loop would hear of no signal any more."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd)
    try:
        _sigterm.install(5)
        assert _wakeup_fd() == write_fd
        _sigterm.uninstall()
        assert _wakeup_fd() == write_fd
    finally:
        signal.set_wakeup_fd(-1)
        os.close(read_fd)
        os.close(write_fd)


def test_install_in_another_thread_warns_once_and_works_later_in_the_main_thread(
    warnings: Callable[[], list[str]],
) -> None:
    """Python sets handlers in the main thread only."""
    before = signal.getsignal(signal.SIGTERM)
    for _ in range(2):
        in_threads(1, lambda _: _sigterm.install(5))
    assert warnings() == [
        "SIGTERM does not export spans: trace compiles from the main thread first"
    ]
    assert signal.getsignal(signal.SIGTERM) is before
    _sigterm.install(5)
    assert signal.getsignal(signal.SIGTERM) is not before


def test_handler_of_the_embedding_program_is_left_alone(
    warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python knows of it, but not what it is, so it could not be handed on to."""
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda number: None)  # pyright: ignore[reportUnknownLambdaType]
        _sigterm.install(5)
    assert warnings() == ["SIGTERM does not export spans: its handler is not one of Python's"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_event_loops_signals_are_not_lost_while_ours_is_installed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal that comes while the wakeup is looked at is written where it belongs."""
    _sigterm.install(5)
    read_fd, write_fd = os.pipe()
    for fd in (read_fd, write_fd):
        os.set_blocking(fd, False)
    set_wakeup_fd = signal.set_wakeup_fd
    ours = set_wakeup_fd(write_fd)
    signal.signal(signal.SIGTERM, lambda *_: None)
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    raised: list[int] = []

    def set_and_raise(fd: int, **options: bool) -> int:
        found = set_wakeup_fd(fd, **options)
        if not raised:
            raised.append(fd)
            signal.raise_signal(signal.SIGUSR1)
        return found

    try:
        with monkeypatch.context() as patch:
            patch.setattr(signal, "set_wakeup_fd", set_and_raise)
            _sigterm.stay()
        assert raised
        assert os.read(read_fd, 8) == bytes([signal.SIGUSR1])
    finally:
        set_wakeup_fd(ours)
        signal.signal(signal.SIGUSR1, before)
        os.close(read_fd)
        os.close(write_fd)
