"""SIGTERM in programs of all kinds: spans arrive, and the process ends as it would have."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.services import poll_until
from tests.support.signalled import SignalledProgram
from tests.support.terminated import ALL_FINISHED, FINISHED, GIVEN_UP

_IMPORTS = """
import asyncio, atexit, ctypes, os, signal, socket, sys, threading
from tests.support.terminated import *
"""

_PROMPTLY_S = 10.0
"""Far less than the programs may wait for their exporter."""


def _program(source: str, prefix: tuple[str, ...] = ()) -> SignalledProgram:
    return SignalledProgram(_IMPORTS + source, prefix=prefix)


@pytest.mark.parametrize(
    "hang",
    ["hang_in_c", "hang_in_python", "lambda: exec('say(\"ready\")\\nwhile True: pass')"],
    ids=["in C", "waiting in Python", "busy in Python"],
)
def test_sigterm_during_a_compile_exports_it_and_ends_the_process(hang: str) -> None:
    """What is open are errors that name the signal; the exit status is the signal's."""
    with _program(f"Program().compile({hang})") as program:
        program.wait_for("ready")
        program.terminate()
        status, seconds = program.end()
        assert (status, program.exported()) == (-signal.SIGTERM, GIVEN_UP)
        assert seconds < _PROMPTLY_S


def test_sigterm_between_compiles_exports_what_waits() -> None:
    """Also for a tracer provider that is not the global one."""
    with _program("program = Program(); program.compile(); hang_in_c()") as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == -signal.SIGTERM
        assert program.exported() == ALL_FINISHED


def test_sigterm_right_after_a_compile_exports_all_of_it() -> None:
    """A thread may still be making its spans."""
    source = """
program = Program(background=True)
with program.recorder.compile_scope(lambda: ("compile", {})):
    for _ in range(2000):
        with program.recorder.work(lambda: ("done", {})):
            pass
hang_in_c()
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == -signal.SIGTERM
        assert program.exported() == ["compile UNSET", *2000 * ["done UNSET"]]


def test_sigterm_during_compiles_of_other_threads_exports_them() -> None:
    """Whichever threads compile, and wherever the main thread is."""
    source = """
program = Program()
ready = threading.Barrier(3)
def body():
    ready.wait()
    threading.Event().wait()
for name in ("compile a", "compile b"):
    threading.Thread(target=program.compile, args=(body, name)).start()
ready.wait()
hang_in_c()
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == -signal.SIGTERM
        assert program.exported() == sorted(
            [
                "compile a ERROR process_died SIGTERM",
                "compile b ERROR process_died SIGTERM",
                *2 * GIVEN_UP[1:],
            ]
        )


# -- handing on ---------------------------------------------------------------------------


def test_handler_that_leaves_at_once_is_called_after_the_export() -> None:
    """It would have lost what waits; what is open is left to it."""
    source = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(4))
Program().compile(hang_in_python)
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == 4
        assert program.exported() == FINISHED


def test_handler_that_raises_reaches_the_compile() -> None:
    """It ends as that exception has it, and each span is exported once."""
    source = """
def leave(number, frame):
    sys.exit(f"{signal.Signals(number).name} in {frame.f_code.co_name}")
signal.signal(signal.SIGTERM, leave)
program = Program()
def hang():
    os.write(1, b"ready\\n")
    while True:
        pass
try:
    program.compile(hang)
finally:
    program.provider.shutdown()
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == 1
        assert program.output.splitlines()[-1] == "SIGTERM in hang"
        assert program.exported() == [
            "compile ERROR SystemExit",
            "done UNSET",
            "open ERROR SystemExit",
        ]


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "lambda *_: None"])
def test_program_that_goes_on_after_sigterm_is_traced_to_its_end(handler: str) -> None:
    """What had finished is exported at once, the rest later, nothing twice; each time anew."""
    source = f"""
signal.signal(signal.SIGTERM, {handler})
program = Program()
for name in ("first", "second"):
    def body():
        say(f"ready for {{name}}")
        assert sys.stdin.readline() == "go on\\n"
    program.compile(body, name)
program.provider.shutdown()
say("the end")
"""
    with _program(source) as program:
        for name, exported in (("first", "done UNSET"), ("second", "first UNSET")):
            program.wait_for(f"ready for {name}")
            program.terminate()
            program.wait_for(f": {exported}")
            program.write("go on\n")
        assert program.end()[0] == 0
        assert program.exported() == sorted(
            ["first UNSET", "second UNSET", *2 * ["done UNSET", "open UNSET"]]
        )
        assert program.output.endswith("the end\n")


def test_ignored_sigterm_interrupts_no_system_call() -> None:
    """As it would not have without a handler: C code needn't expect that."""
    source = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
program = Program()
program.compile()
say("ready")
buffer = ctypes.create_string_buffer(8)
say(f"read {ctypes.CDLL(None).read(0, buffer, 8)}")
"""
    with _program(source) as program:
        program.wait_for("ready")
        poll_until(program.is_asleep, "the main thread reads", every_s=0.01)
        program.terminate()
        program.wait_for("open UNSET")
        program.write("x")
        assert program.end()[0] == 0
        assert program.output.endswith("read 1\n")


def test_handler_that_the_program_installs_later_is_left_alone() -> None:
    """Finished work is exported all the same, although the main thread runs no handler."""
    source = """
program = Program()
signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
program.compile(hang_in_c)
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        program.wait_for(": done UNSET")
        assert program.is_running()


def test_later_handler_that_calls_ours_lives_on() -> None:
    """It would not have called the default action, so that isn't taken for it."""
    source = """
program = Program()
before = signal.getsignal(signal.SIGTERM)
def handler(number, frame):
    if callable(before):
        before(number, frame)
    os._exit(5)
signal.signal(signal.SIGTERM, handler)
program.compile(hang_in_python)
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == 5
        assert program.exported() == FINISHED


def test_event_loop_keeps_its_wakeup_and_its_handler() -> None:
    """The program's own way of being told of signals goes first, and works."""
    source = """
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stop.set)
    program = Program()
    program.compile()
    say("ready")
    await stop.wait()
    say("told")
    program.compile(hang_in_python, "compile again")
asyncio.run(main())
"""
    with _program(source) as program:
        program.wait_for("ready")
        os.kill(program.pid, signal.SIGUSR1)
        program.wait_for("told\nready")
        program.terminate()
        status, seconds = program.end()
        assert (status, program.exported()) == (
            -signal.SIGTERM,
            sorted([*ALL_FINISHED, *GIVEN_UP[1:], "compile again ERROR process_died SIGTERM"]),
        )
        assert seconds < _PROMPTLY_S


# -- the process always ends -----------------------------------------------------------------


@pytest.mark.parametrize("hang", ["hang_in_c", "hang_in_python"])
def test_exporter_that_hangs_keeps_the_process_no_longer_than_the_timeout(hang: str) -> None:
    """Then it ends as if nothing had been exported."""
    with _program(f"Program(exporter_hangs=True, timeout_s=0.5).compile({hang})") as program:
        program.wait_for("ready")
        program.terminate()
        program.wait_for("exporting")
        status, seconds = program.end()
        assert status == -signal.SIGTERM
        assert seconds < _PROMPTLY_S


@pytest.mark.parametrize("hang", ["hang_in_c", "hang_in_python"])
def test_second_sigterm_ends_the_waiting(hang: str) -> None:
    """For who is in a hurry, although the exporter has a minute."""
    with _program(f"Program(exporter_hangs=True, timeout_s=60).compile({hang})") as program:
        program.wait_for("ready")
        program.terminate()
        program.wait_for("exporting")
        poll_until(
            lambda: not program.is_running() or program.terminate(),
            "the end of the program",
            timeout_s=_PROMPTLY_S,
        )
        assert program.end()[0] == -signal.SIGTERM


def test_second_sigterm_calls_a_handler_that_still_waits_for_the_export() -> None:
    """It is the program's to decide what a second one means."""
    source = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(6))
Program(exporter_hangs=True, timeout_s=60).compile(hang_in_python)
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        program.wait_for("exporting")
        poll_until(
            lambda: not program.is_running() or program.terminate(),
            "the end of the program",
            timeout_s=_PROMPTLY_S,
        )
        assert program.end()[0] == 6


@pytest.mark.skipif(shutil.which("timeout") is None, reason="needs timeout of GNU coreutils")
def test_program_under_timeout_loses_nothing() -> None:
    """That sends SIGTERM twice, to the process and to its group, with no time in between."""
    with _program("Program().compile(hang_in_c)", prefix=("timeout", "600")) as program:
        program.wait_for("ready")
        program.terminate()
        program.end()
        [pid] = {
            line.split()[2].rstrip(":")
            for line in program.output.splitlines()
            if line.startswith("exported by")
        }
        assert program.exported(int(pid)) == GIVEN_UP


def test_interpreter_that_is_held_ends_when_it_is_free_again() -> None:
    """C code that keeps Python's lock holds back everything of Python's, but loses nothing."""
    with _program("Program().compile(lambda: hold_the_interpreter(1.5))") as program:
        program.wait_for("ready")
        poll_until(program.is_asleep, "the main thread waits in C", every_s=0.01)
        program.terminate()
        status, seconds = program.end()
        assert (status, program.exported()) == (-signal.SIGTERM, GIVEN_UP)
        assert seconds < _PROMPTLY_S


def test_process_that_blocks_sigterm_again_ends_all_the_same() -> None:
    """It has arrived, so it takes its course."""
    source = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
program = Program()
def let_one_through():
    sys.stdin.readline()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
threading.Thread(target=let_one_through).start()
program.compile(hang_in_c)
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        program.write("now\n")
        assert program.end(_PROMPTLY_S)[0] == -signal.SIGTERM
        assert program.exported() == GIVEN_UP


def test_provider_that_raises_does_not_keep_the_signal_back() -> None:
    """Nothing of ours may."""
    source = """
program = Program()
def broken(*_):
    say("broken")
    raise LookupError
program.provider.force_flush = broken
program.compile(hang_in_c)
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == -signal.SIGTERM
        assert "broken" in program.output


def test_sigterm_while_python_exits_ends_the_process() -> None:
    """Exit handlers can hang as well."""
    source = """
atexit.register(hang_in_python)
program = Program()
program.compile()
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == -signal.SIGTERM
        assert program.exported() == ALL_FINISHED


def test_sigterm_when_python_has_no_threads_any_more_ends_it_at_once() -> None:
    """Nobody could export then, and nobody is waited for."""
    source = """
program = Program(timeout_s=60)
class Late:
    def __del__(self, say=os.write):
        say(1, b"ready")
        while True:
            pass
sys.modules["late"] = Late()
"""
    with _program(source) as program:
        program.wait_for("ready")
        program.terminate()
        assert program.end(_PROMPTLY_S)[0] == -signal.SIGTERM


# -- processes of other kinds ------------------------------------------------------------------


@pytest.mark.parametrize("forker", ["main", "thread"])
def test_forked_child_exports_its_own_spans_and_leaves_the_parent_alone(forker: str) -> None:
    """Each process acts on its own signals only, also where a thread has forked."""
    source = f"""
program = Program()
def fork():
    if os.fork() == 0:
        say(f"child {{os.getpid()}}")
        program.compile(hang_in_c, "compile in child")
def body():
    if "{forker}" == "main":
        fork()
    else:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert os.wait()[1] == signal.SIGTERM
    say("survived")
    hang_in_c()
program.compile(body)
"""
    with _program(source) as program:
        program.wait_for("ready\n")
        words = program.output.split()
        child = int(words[words.index("child") + 1])
        os.kill(child, signal.SIGTERM)
        program.wait_for("survived\nready\n")
        assert program.exported(child) == sorted(
            ["compile in child ERROR process_died SIGTERM", *GIVEN_UP[1:]]
        )
        assert program.exported() == []
        program.terminate()
        assert program.end()[0] == -signal.SIGTERM
        assert program.exported() == GIVEN_UP


def test_signals_at_the_moment_of_a_fork_reach_the_child_only() -> None:
    """A child has its parent's pipe until it has one of its own."""
    source = """
program = Program()
program.compile()
say(f"parent {os.getpid()}")
for _ in range(100):
    child = os.fork()
    if child == 0:
        threading.Event().wait()
    os.kill(child, signal.SIGTERM)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
say("survived")
"""
    with _program(source) as program:
        assert program.end()[0] == 0
        assert program.output.splitlines()[-1] == "survived"


def _can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--map-root-user", "--pid", "--fork", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


@pytest.mark.skipif(not _can_unshare(), reason="needs namespaces of processes")
def test_first_process_of_a_container_exports_and_goes_on() -> None:
    """Without a handler the kernel ignores the signal, so nothing has ended: SIGKILL will."""
    source = """
assert os.getpid() == 1
program = Program()
def body():
    hang_in_python()
program.compile(body)
"""
    unshare = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")
    with _program(source, prefix=unshare) as program:
        program.wait_for("ready")
        [inner] = _children(program.pid)
        for _ in itertools.repeat(None, 2):
            os.kill(inner, signal.SIGTERM)
        program.wait_for("exported by 1: done UNSET")
        assert program.is_running()
        assert program.exported(1) == FINISHED
