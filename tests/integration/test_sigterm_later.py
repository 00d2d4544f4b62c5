"""SIGTERM in programs that set a handler when compiles are traced already, as servers do."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.services import poll_until
from tests.support.signalled import SignalledProgram
from tests.support.terminated import ALL_FINISHED, FINISHED, GIVEN_UP

_IMPORTS = """
import asyncio, ctypes, os, signal, threading
from tests.support.terminated import *
from tilelang_otel import _sigterm

def leave(number, frame):
    say("leaves")
    os._exit(5)
"""


def _program(source: str) -> SignalledProgram:
    return SignalledProgram(_IMPORTS + source)


def _ended(source: str) -> tuple[int, SignalledProgram]:
    """Run a program, send it SIGTERM when it is ready, and wait for its end."""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        return program.end()[0], program


def test_handler_that_leaves_at_once_is_called_after_the_export() -> None:
    """It is found when the next compile begins, and what has finished is not lost."""
    status, program = _ended(
        """
program = Program()
program.compile(name="before")
signal.signal(signal.SIGTERM, leave)
program.compile(hang_in_python)
"""
    )
    assert (status, program.exported()) == (
        5,
        sorted(["before UNSET", "done UNSET", "open UNSET", *FINISHED]),
    )
    assert program.output.count("leaves") == 1


@pytest.mark.parametrize(
    "compiles",
    ["set_leave(); program.compile()", "program.compile(set_leave)"],
    ids=["a compile ago", "during a compile"],
)
def test_handler_that_leaves_at_once_is_called_after_the_export_between_compiles(
    compiles: str,
) -> None:
    """Only the handler can see to that where the wakeup is somebody else's."""
    status, program = _ended(
        f"""
read_fd, write_fd = os.pipe()
os.set_blocking(write_fd, False)
signal.set_wakeup_fd(write_fd)
program = Program()
def set_leave():
    signal.signal(signal.SIGTERM, leave)
{compiles}
hang_in_python()
"""
    )
    assert (status, program.exported()) == (5, ALL_FINISHED)


def test_default_action_is_taken_after_the_export() -> None:
    """The process dies of the signal, with what was open as errors; also in C++."""
    status, program = _ended(
        """
signal.signal(signal.SIGTERM, leave)
program = Program()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
program.compile(hang_in_c)
"""
    )
    assert (status, program.exported()) == (-signal.SIGTERM, GIVEN_UP)


@pytest.mark.parametrize(
    "later",
    [
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "signal.signal(signal.SIGTERM, print); signal.siginterrupt(signal.SIGTERM, False)",
    ],
    ids=["ignored", "handled without interrupting"],
)
def test_signal_that_interrupts_nothing_from_some_time_on_ends_nothing(later: str) -> None:
    """What has finished is exported, and no system call of the program is interrupted."""
    source = f"""
program = Program()
{later}
def body():
    say("ready")
    buffer = ctypes.create_string_buffer(8)
    say(f"read {{ctypes.CDLL(None).read(0, buffer, 8)}}")
program.compile(body)
program.provider.shutdown()
say("the end")
"""
    with _program(source) as program:
        program.wait_for("ready")
        poll_until(program.is_asleep, "the main thread reads", every_s=0.01)
        program.terminate()
        program.wait_for("done UNSET")
        program.write("x")
        assert (program.end()[0], program.exported()) == (0, ALL_FINISHED)
        assert "read 1\n" in program.output
        assert program.output.endswith("the end\n")


def test_handlers_that_call_each_other_are_called_once_each() -> None:
    """However often they were set; the signal goes round in no circle, and exports before."""
    status, program = _ended(
        """
program = Program()
flush = program.provider.force_flush
program.provider.force_flush = lambda *args: (say("flushed"), flush(*args))

def chain(name):
    before = signal.getsignal(signal.SIGTERM)
    def handler(number, frame):
        say(name)
        if callable(before):
            before(number, frame)
    signal.signal(signal.SIGTERM, handler)

for name in ("first", "second", "third"):
    chain(name)
    program.compile(name=name)
chain("last")
before = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *args: (before(*args), os._exit(5)))
program.compile(hang_in_python)
"""
    )
    assert status == 5
    said = [line for line in program.output.splitlines() if not line.startswith("export")]
    assert said[-4:] == ["last", "third", "second", "first"]
    # The first handler begins one of its own where that of the thread is over by then.
    assert said[:-4] in (["ready", "flushed"], ["ready", "flushed", "flushed"])
    assert len(program.exported()) == 3 * 3 + 1


def test_handler_that_is_set_again_in_front_of_ours_is_called_once() -> None:
    """As by a server that looks whether its own is in force, whenever it starts."""
    status, program = _ended(
        """
program = Program()
class Server:
    def start(self):
        found = signal.getsignal(signal.SIGTERM)
        if found != self.stop:
            self.before = found
            signal.signal(signal.SIGTERM, self.stop)
    def stop(self, number, frame):
        say("stops")
        if callable(self.before):
            self.before(number, frame)
        os._exit(5)
server = Server()
server.start()
program.compile(name="first")
server.start()
hang_in_python()
"""
    )
    assert (status, program.output.count("stops")) == (5, 1)
    assert program.exported() == ["done UNSET", "first UNSET", "open UNSET"]


def test_handler_for_a_while_gives_way_to_what_was_there() -> None:
    """Whoever puts ours back gets it back, with what it handed on to, at once."""
    status, program = _ended(
        """
program = Program()
for name in ("first", "second"):
    before = signal.signal(signal.SIGTERM, leave)
    program.compile(name=name)
    signal.signal(signal.SIGTERM, before)
hang_in_c()
"""
    )
    assert (status, program.exported()) == (
        -signal.SIGTERM,
        sorted(["first UNSET", "second UNSET", *2 * ["done UNSET", "open UNSET"]]),
    )


def test_event_loop_is_told_of_sigterm_after_the_export() -> None:
    """It has its own way of being told, which stays its own; afterwards ours is back."""
    source = """
async def serve(program):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    program.compile()
    say("ready")
    await stop.wait()
    say("told")

program = Program()
asyncio.run(serve(program))
program.compile(hang_in_c, "compile again")
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        program.wait_for("told\nready")
        assert program.exported() == ALL_FINISHED
        assert program.output.index("open UNSET") < program.output.index("told")
        program.terminate()
        assert program.end()[0] == -signal.SIGTERM
        assert program.exported() == sorted(
            [*ALL_FINISHED, *GIVEN_UP[1:], "compile again ERROR process_died SIGTERM"]
        )


def test_worker_that_sets_its_handler_after_the_fork_exports_first() -> None:
    """As workers of servers do, whose application was loaded before."""
    source = """
program = Program()
program.compile(name="in parent")
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGTERM, leave)
    program.compile(name="of worker")
    say(f"child {os.getpid()}")
    hang_in_python()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
say("survived")
"""
    with _program(source) as program:
        program.wait_for("ready")
        words = program.output.split()
        child = int(words[words.index("child") + 1])
        os.kill(child, signal.SIGTERM)
        program.wait_for("survived")
        assert program.end()[0] == 0
        assert program.exported(child) == ["done UNSET", "of worker UNSET", "open UNSET"]


def test_handler_that_is_not_pythons_is_warned_about_and_left() -> None:
    """It could not be handed on to."""
    source = """
program = Program()
real = signal.getsignal
signal.getsignal = lambda number: None
for name in ("first", "second"):
    program.compile(name=name)
signal.getsignal = real
program.provider.shutdown()
"""
    with _program(source) as program:
        assert program.end()[0] == 0
        assert program.output.count("SIGTERM does not export spans") == 1
        assert len(program.exported()) == 6


@pytest.mark.parametrize("is_ours", [True, False], ids=["in force", "replaced again"])
def test_uninstalling_restores_what_the_program_set_last(is_ours: bool) -> None:
    """Ours is taken away, and nobody else's."""
    source = f"""
program = Program()
signal.signal(signal.SIGTERM, leave)
program.compile()
if not {is_ours}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
_sigterm.uninstall()
found = signal.getsignal(signal.SIGTERM)
say(f"found {{'leave' if found is leave else found.name}}")
"""
    with _program(source) as program:
        assert program.end()[0] == 0
        assert f"found {'leave' if is_ours else 'SIG_IGN'}\n" in program.output


def test_compile_of_another_thread_neither_fails_nor_changes_the_handler() -> None:
    """Python lets it set none."""
    source = """
program = Program()
signal.signal(signal.SIGTERM, leave)
thread = threading.Thread(target=program.compile)
thread.start()
thread.join()
say(f"found {signal.getsignal(signal.SIGTERM) is leave}")
program.provider.shutdown()
"""
    with _program(source) as program:
        assert program.end()[0] == 0
        assert program.output.startswith("found True\n")
        assert program.exported() == ALL_FINISHED
