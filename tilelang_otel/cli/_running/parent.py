"""A program run as a child, so that somebody is left when it dies.

Owns that nobody notices: what the shell, the terminal or a supervisor does to this
process, it does to the program, and what becomes of the program becomes of this
process. What there is to do after a death is up to ``_running.aftermath``.

While the program runs, this process holds every signal back and takes them one by
one. Those of the terminal reach the program by themselves, because both are in one
process group; all others are passed on. A signal that somebody sends to the whole
group cannot be told from one that is meant for this process alone, so the program
gets such a signal twice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

if sys.platform != "win32":
    import resource

__all__ = ["Child", "die_of"]

_LINUX: Final = sys.platform == "linux"

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4


class Child:
    """A program that runs as this process's child. POSIX only.

    Args:
        command: What to run, with the path of its executable first.
        environment: Makes its variables, given its process id.

    Raises:
        OSError: There can be no more processes.
    """

    def __init__(
        self, command: Sequence[str], environment: Callable[[int], Mapping[str, str]]
    ) -> None:
        # Without a handler, some systems do not even hold this one back.
        self._on_child = signal.signal(signal.SIGCHLD, _nothing)
        self._held = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._held)
        prctl = _find_prctl()
        parent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            self._release()
            raise
        if not self.pid:
            self._become(command, environment, prctl, parent)
        _let_go_of_files()

    def _become(
        self,
        command: Sequence[str],
        environment: Callable[[int], Mapping[str, str]],
        prctl: Callable[[int, int], Any] | None,
        parent: int,
    ) -> NoReturn:
        """Be the program; in the child."""
        try:
            if prctl is not None:
                # Who kills the command means the program.
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                variables = dict(environment(os.getpid()))
                signal.signal(signal.SIGCHLD, self._on_child or signal.SIG_DFL)
                for number in signal.valid_signals():
                    if callable(signal.getsignal(number)):
                        # As the exec does it, but before a signal may come.
                        signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
                os.execve(command[0], [*command], variables)
        except BaseException as error:  # noqa: BLE001 - nothing of the parent's may go on here
            with contextlib.suppress(Exception):
                os.write(2, f"tilelang-otel run: cannot run {command[0]}: {error}\n".encode())
        os._exit(126)

    def wait(self) -> int:
        """Wait until the program is dead, and live and stop with it until then.

        Returns:
            Its exit code, or the negative number of the signal that it died of.
        """
        while True:
            number, sender = _take(self._held)
            if number != signal.SIGCHLD:
                self._pass_on(number, sender)
                continue
            status = self._look()
            if status is not None:
                break
        # What comes now is for this process. What came before is answered by ending soon.
        while pending := signal.sigpending() & self._held:
            signal.sigwait(pending)
        self._release()
        return status

    def _release(self) -> None:
        """Let this process have its signals again."""
        signal.signal(signal.SIGCHLD, self._on_child or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _look(self) -> int | None:
        """Return how the program ended, if it did; stop if it has stopped."""
        while True:
            try:
                # Of any child: as the first process of a container this one inherits orphans.
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:  # somebody else has waited for it
                return 0
            if not pid:
                return None
            if pid != self.pid:
                continue
            if os.WIFSTOPPED(status):
                _stop_of(os.WSTOPSIG(status), self._held)
            else:
                return os.waitstatus_to_exitcode(status)

    def _pass_on(self, number: int, sender: int | None) -> None:
        if sender == self.pid:  # it has signalled its own group, or knows what it does
            return
        if sender is None and number in _OF_TERMINALS and not _is_hangup_of_leader(number):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)


def die_of(number: int) -> NoReturn:
    """End this process as a signal ends one, but without another core dump.

    Args:
        number: The signal.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    prctl = _find_prctl()
    if prctl is not None:
        # A core dump that is piped into a program knows no limit.
        prctl(_PR_SET_DUMPABLE, 0)
    with contextlib.suppress(OSError, ValueError):  # SIGKILL needs neither
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    # Still here as the first process of a container, which signals do not kill.
    os._exit(128 + number)


def _nothing(number: int, frame: Any) -> None:
    """Handle a signal that is held back and never handled."""


_OF_TERMINALS: Final = frozenset(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGWINCH")
    if hasattr(signal, name)
)
"""What a terminal sends to all processes in its foreground."""


def _is_hangup_of_leader(number: int) -> bool:
    # A terminal that is gone tells the leader of its session, and nobody else.
    return number == signal.SIGHUP and os.getsid(0) == os.getpid()


def _take(held: set[signal.Signals]) -> tuple[int, int | None]:
    """Wait for a signal; return it and the process that sent it, None if the system did."""
    if _LINUX:  # others number the origins differently
        got = signal.sigwaitinfo(held)
        return got.si_signo, None if got.si_code > 0 else got.si_pid
    number = signal.sigwait(held)
    return number, None if number in _OF_TERMINALS and number != signal.SIGHUP else 0


def _stop_of(number: int, held: set[signal.Signals]) -> None:
    """Stop as the program did, so that the shell takes its terminal back."""
    if number not in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU) and not _is_in_foreground():
        # Nobody would wake this process up together with the program.
        return
    # First sent and then let in, so that it is one with what the terminal may have sent.
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, held & {number})
    # Here it goes on after SIGCONT, which is among those that are held back and passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, held)


def _is_in_foreground() -> bool:
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _let_go_of_files() -> None:
    """Close what the program has too: who is at the other end waits for all to close it."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for number in (0, 1):
            with contextlib.suppress(OSError):
                os.fstat(number)
                os.dup2(null, number)
    finally:
        if null > 2:
            os.close(null)
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                # Those that are not inherited are this process's own.
                if int(name) > 2 and os.get_inheritable(int(name)):
                    os.close(int(name))


def _find_prctl() -> Callable[[int, int], Any] | None:
    """Return Linux's ``prctl``, loaded before there is a child that could need it."""
    if not _LINUX:
        return None
    import ctypes

    try:
        function: Any = ctypes.CDLL(None).prctl
    except (AttributeError, OSError):
        return None
    return lambda option, value: function(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)
