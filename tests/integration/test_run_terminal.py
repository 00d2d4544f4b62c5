"""``tilelang-otel run`` in a terminal: to a shell, program and parent are one job."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminal import CTRL_BACKSLASH, CTRL_C, CTRL_Z, Terminal

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="needs a POSIX terminal"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash for its job control"),
]

_ROOT = Path(__file__).parents[2]

_PLAIN = "$PYTHON program.py"
_TRACED = "$PYTHON -m tilelang_otel run program.py"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    """A shell in a terminal, at its first prompt, that knows ``$PYTHON``."""
    with Terminal(cwd=tmp_path, environment=_environment()) as terminal:
        terminal.wait_for("$ ")
        yield terminal


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    return {"PYTHON": sys.executable, "PYTHONPATH": path}


def _write(tmp_path: Path, source: str) -> None:
    (tmp_path / "program.py").write_text(source, encoding="utf-8")


_ASK = """\
import sys
try:
    print('ready')
    for line in sys.stdin:
        print('got', line.strip())
        if line == 'end\\n':
            break
except KeyboardInterrupt:
    print('cleaned up')
    raise
sys.exit(3)
"""


@pytest.mark.parametrize("command", [_PLAIN, _TRACED])
def test_program_reads_from_its_terminal(command: str, shell: Terminal, tmp_path: Path) -> None:
    """What is typed is the program's, and its exit code the shell's."""
    _write(tmp_path, _ASK)
    shell.type(f"{command}; echo code=$?.\n")
    shell.wait_for("ready")
    shell.type("end\n")
    shell.wait_for("got end")
    shell.wait_for("code=3.")


@pytest.mark.parametrize("command", [_PLAIN, _TRACED])
def test_ctrl_c_is_the_programs_and_ends_the_job(
    command: str, shell: Terminal, tmp_path: Path
) -> None:
    """It is interrupted once, cleans up, and the shell sees a job that Ctrl-C ended."""
    _write(tmp_path, _ASK)
    # A shell goes on with a loop unless a job has died of the signal.
    shell.type(f"for i in 1 2; do {command}; done; echo code=$?.\n")
    shell.wait_for("ready")
    shell.type(CTRL_C)
    shown = shell.wait_for("KeyboardInterrupt") + shell.wait_for("$ ")
    assert shown.count("cleaned up") == 1
    assert "ready" not in shown.splitlines()
    shell.type("echo code=$?.\n")
    shell.wait_for("code=130.")


@pytest.mark.parametrize("command", [_PLAIN, _TRACED])
def test_ctrl_c_that_the_program_survives_ends_nothing(
    command: str, shell: Terminal, tmp_path: Path
) -> None:
    """Whoever handles it goes on."""
    _write(
        tmp_path,
        "import signal, sys\n"
        "count = 0\n"
        "def handle(*_):\n"
        "    global count\n"
        "    count += 1\n"
        "    print('interrupts', count, flush=True)\n"
        "signal.signal(signal.SIGINT, handle)\n"
        "print('ready', flush=True)\n"
        "print('got', sys.stdin.readline().strip(), 'after', count)\n",
    )
    shell.type(f"{command}; echo code=$?.\n")
    shell.wait_for("ready")
    for number in (1, 2):
        shell.type(CTRL_C)
        shell.wait_for(f"interrupts {number}")
    shell.type("hello\n")
    shell.wait_for("got hello after 2")
    shell.wait_for("code=0.")


@pytest.mark.parametrize("command", [_PLAIN, _TRACED])
def test_ctrl_backslash_arrives_once(command: str, shell: Terminal, tmp_path: Path) -> None:
    """The terminal gives it to the program; the parent does not give it again."""
    _write(
        tmp_path,
        "import signal, sys\n"
        "seen = []\n"
        "signal.signal(signal.SIGQUIT, lambda *_: seen.append('quit'))\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(len(seen)))\n"
        "print('ready', flush=True)\n"
        "while not seen:\n"
        "    signal.pause()\n"
        "print('seen', flush=True)\n"
        "while True:\n"
        "    signal.pause()\n",
    )
    shell.type(f"{command} & fg; echo code=$?.\n")
    shell.wait_for("ready")
    shell.type(CTRL_BACKSLASH)
    shell.wait_for("seen")
    # Whatever the parent would pass on comes before what it is sent after that.
    shell.type(CTRL_Z)
    shell.wait_for("Stopped")
    shell.type("kill -USR1 %1; fg; echo code=$?.\n")
    shell.wait_for("code=1.")


@pytest.mark.parametrize("command", [_PLAIN, _TRACED])
def test_job_is_stopped_and_goes_on(command: str, shell: Terminal, tmp_path: Path) -> None:
    """Ctrl-Z gives the prompt back, and ``fg`` the program: as often as one likes."""
    _write(tmp_path, _ASK)
    shell.type(f"{command}\n")
    shell.wait_for("ready")
    for _ in range(2):
        shell.type(CTRL_Z)
        shell.wait_for("Stopped")
        shell.wait_for("$ ")
        shell.type("echo prompt $((1 + 1))\n")
        shell.wait_for("prompt 2")
        shell.type("fg\n")
        # The shell shows the command before it gives the terminal away.
        shell.wait_for("program.py")
        shell.type("again\n")
        shell.wait_for("got again")
    shell.type("end\n")
    shell.wait_for("got end")
    shell.wait_for("$ ")
    shell.type("echo code=$?.\n")
    shell.wait_for("code=3.")


@pytest.mark.parametrize("command", [_PLAIN, _TRACED])
def test_program_that_stops_itself_gives_the_terminal_back(
    command: str, shell: Terminal, tmp_path: Path
) -> None:
    """An editor that cleans the screen up first stops only itself."""
    _write(
        tmp_path,
        "import os, signal, sys\n"
        "def handle(*_):\n"
        "    print('tidied', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    print('back', flush=True)\n"
        "signal.signal(signal.SIGTSTP, handle)\n"
        "print('ready', flush=True)\n"
        "print('got', sys.stdin.readline().strip())\n",
    )
    shell.type(f"{command}\n")
    shell.wait_for("ready")
    shell.type(CTRL_Z)
    shell.wait_for("tidied")
    shell.wait_for("Stopped")
    shell.type("fg\n")
    shell.wait_for("back")
    shell.type("hello\n")
    shell.wait_for("got hello")


@pytest.mark.parametrize("command", [_PLAIN, _TRACED])
def test_program_that_ignores_ctrl_z_is_not_stopped(
    command: str, shell: Terminal, tmp_path: Path
) -> None:
    """Then the shell must not get its terminal back either."""
    _write(
        tmp_path,
        "import signal, sys\n"
        "signal.signal(signal.SIGTSTP, lambda *_: print('no', flush=True))\n"
        "print('ready', flush=True)\n"
        "print('got', sys.stdin.readline().strip())\n",
    )
    shell.type(f"{command}; echo code=$?.\n")
    shell.wait_for("ready")
    shell.type(CTRL_Z)
    shell.wait_for("no")
    shell.type("hello\n")
    assert "Stopped" not in shell.wait_for("got hello")
    shell.wait_for("code=0.")


@pytest.mark.parametrize("command", [_PLAIN, _TRACED])
def test_background_job_that_wants_to_read_stops_until_it_may(
    command: str, shell: Terminal, tmp_path: Path
) -> None:
    """As any job in the background, it waits to be called to the front."""
    _write(tmp_path, _ASK)
    shell.type(f"{command} &\n")
    shell.wait_for("ready")
    shell.type("wait; jobs; echo listed\n")
    assert "Stopped" in shell.wait_for("\nlisted")
    shell.type("fg\n")
    shell.wait_for("program.py")
    shell.type("end\n")
    shell.wait_for("got end")


@pytest.mark.parametrize("arguments", [[], ["-m", "tilelang_otel", "run"]], ids=["plain", "run"])
def test_terminal_that_is_gone_tells_the_program(arguments: list[str], tmp_path: Path) -> None:
    """It tells the leader of its session alone, which is the parent here."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    _write(
        tmp_path,
        "import os, signal\n"
        "def handle(*_):\n"
        f"    os.write({writing}, b'hung up')\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGHUP, handle)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    signal.pause()\n",
    )
    try:
        command = ["sh", "-c", 'exec "$@"', "sh", sys.executable, *arguments, "program.py"]
        with Terminal(
            *command, cwd=tmp_path, environment=_environment(), pass_fds=(writing,)
        ) as terminal:
            os.close(writing)
            terminal.wait_for("ready")
            terminal.hang_up()
            assert select.select([reading], [], [], 60)[0], "the program was not told"
            assert os.read(reading, 100) == b"hung up"
            assert terminal.process.wait(60) in (0, -signal.SIGHUP)
    finally:
        os.close(reading)
