"""``tilelang-otel run`` stays beside its program, and nobody can tell: as if it were the program.

What a shell's job control makes of it is tested in ``test_run_terminal``, and what is
said of a program that has died in ``test_run_died``.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tilelang_otel import _crash

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no parent on Windows")

_ROOT = Path(__file__).parents[2]
_TRACED = ("-m", "tilelang_otel", "run")

_both = pytest.mark.parametrize("how", [(), _TRACED], ids=["plain", "run"])

_ECHO_SIGNALS = """\
import os, signal, sys
def handle(number, frame):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())
for number in (%s):
    signal.signal(number, handle)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def crashes(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of crash records, in which nothing may be left, nor among temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    paths = filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    path = cache / "crash"
    yield path
    assert list(temporary.iterdir()) == []
    assert not path.exists() or list(path.iterdir()) == []


def _command(how: Sequence[str], tmp_path: Path, source: str) -> list[str]:
    """Return a command line that runs a program with these lines, traced or not."""
    program = tmp_path / "program.py"
    program.write_text(source, encoding="utf-8")
    # Not in the current directory: that of a test may be read-only.
    return [sys.executable, *how, str(program)]


def _start(
    command: list[str], tmp_path: Path, *, start_new_session: bool = False
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


@_both
def test_signals_sent_to_the_command_arrive_once_and_in_order(
    how: Sequence[str], tmp_path: Path
) -> None:
    """Whatever a supervisor sends, the program gets."""
    names = [
        *("TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "WINCH"),
        *("CONT", "TSTP", "PIPE", "SEGV", "ABRT"),
    ]
    source = _ECHO_SIGNALS % ", ".join(f"signal.SIG{name}" for name in names)
    with _start(_command(how, tmp_path, source), tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for name in names:
            process.send_signal(getattr(signal, f"SIG{name}"))
            assert process.stdout.readline() == f"SIG{name}\n"
        rest, _ = process.communicate("", timeout=60)
    assert (process.returncode, rest) == (0, "")


@_both
@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "QUIT", "USR1", "ALRM", "KILL", "RTMIN"])
def test_command_that_is_killed_kills_the_program(
    name: str, how: Sequence[str], tmp_path: Path, crashes: Path
) -> None:
    """Both are dead, and of the same signal."""
    if name == "KILL" and how and sys.platform != "linux":
        pytest.skip("only Linux tells a child that its parent is dead")
    source = (
        "import os, signal, sys\n"
        # As it is for every program that is not Python.
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with _start(_command(how, tmp_path, source), tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        number = getattr(signal, f"SIG{name}")
        process.send_signal(number)
        # Nobody has it open any more: the program is gone.
        assert select.select([process.stdout], [], [], 60)[0], "the program lives"
        assert process.stdout.read() == ""
        assert process.wait(60) == -number
    if name == "KILL" and how:
        # Nobody of them is left who could remove it.
        assert len(list(crashes.iterdir())) == 1
        _crash.remove_dead_runs(str(crashes))


@_both
@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "ABRT", "PIPE", "XCPU", "RTMIN"])
def test_program_that_dies_of_a_signal_ends_the_command_by_it(
    name: str, how: Sequence[str], tmp_path: Path
) -> None:
    """The shell is told the same."""
    source = (
        "import os, signal\n"
        f"number = signal.SIG{name}\n"
        "if number != signal.SIGKILL:\n"
        "    signal.signal(number, signal.SIG_DFL)\n"
        "os.kill(os.getpid(), number)\n"
    )
    with _start(_command(how, tmp_path, source), tmp_path) as process:
        process.communicate(timeout=60)
    assert process.returncode == -getattr(signal, f"SIG{name}")


@_both
def test_core_is_dumped_of_the_program_alone(how: Sequence[str], tmp_path: Path) -> None:
    """A second dump, of the parent, would take the place of the one that matters."""
    source = "import os\nprint(os.getpid(), flush=True)\nos.abort()\n"
    command = _command(how, tmp_path, source)
    shell = ["/bin/sh", "-c", 'ulimit -c unlimited; cd "$0" && exec "$@"', str(tmp_path)]
    process = _start([*shell, *command], tmp_path)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == -signal.SIGABRT
    if not how and not os.WCOREDUMP(status):
        pytest.skip("no core is dumped here")
    assert os.WCOREDUMP(status) is not bool(how)
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()


@_both
def test_group_that_the_program_signals_is_not_told_twice(
    how: Sequence[str], tmp_path: Path
) -> None:
    """A program that ends its workers through its group gets its own signal once."""
    source = (
        "import os, signal, sys\n"
        "count = 0\n"
        "def handle(*_):\n"
        "    global count\n"
        "    count += 1\n"
        "signal.signal(signal.SIGTERM, handle)\n"
        "signal.signal(signal.SIGCONT, lambda *_: print('continued', flush=True))\n"
        "os.killpg(0, signal.SIGTERM)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "print(count)\n"
    )
    with _start(_command(how, tmp_path, source), tmp_path, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # Comes after whatever the parent may have passed on.
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "continued\n"
        assert process.communicate("", timeout=60)[0] == "1\n"
        assert process.returncode == 0


_SHOW_STATE = """\
import os, signal
print(sorted(n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN))
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
print(os.getpgrp(), os.getsid(0), os.getcwd(), os.umask(0), os.nice(0))
print(sorted(n for n in range(3, 200) if os.path.exists(f"/dev/fd/{n}")))
"""


def test_program_inherits_what_it_would_without_a_parent(tmp_path: Path) -> None:
    """Ignored and blocked signals, open files, group, session, directory, priority."""
    before = (
        "import os, signal, sys\n"
        "for number in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})\n"
        "os.nice(3)\n"
        "os.umask(0o27)\n"
        "os.set_inheritable(os.dup2(1, 77), True)\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    shown: list[str] = []
    for how in ((), _TRACED):
        command = _command(how, tmp_path, _SHOW_STATE)
        done = subprocess.run(
            [sys.executable, "-c", before, *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        shown.append(done.stdout)
    assert shown[1] == shown[0]
    assert "77" in shown[0].splitlines()[-1]


@_both
@pytest.mark.parametrize("number", [1, 77], ids=["standard output", "another"])
def test_file_that_the_program_closes_is_closed(
    number: int, how: Sequence[str], tmp_path: Path
) -> None:
    """Who reads from it is told, while the program goes on."""
    source = f"import os, sys\nos.close({number})\nsys.stdin.read()\nos._exit(5)\n"
    reading, writing = os.pipe()
    move = (
        "import os, sys\n"
        f"os.set_inheritable(os.dup2({writing}, {number}), True)\n"
        f"os.close({writing})\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", move]
    with subprocess.Popen(
        [*command, *_command(how, tmp_path, source)],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(writing,),
    ) as process:
        os.close(writing)
        assert select.select([reading], [], [], 60)[0], "it is still open somewhere"
        assert os.read(reading, 1) == b""
        assert process.poll() is None
        process.communicate(b"", timeout=60)
    os.close(reading)
    assert process.returncode == 5


@pytest.mark.skipif(sys.platform != "linux", reason="needs a process that inherits orphans")
def test_orphans_that_the_command_inherits_are_buried(tmp_path: Path) -> None:
    """As the first process of a container it is asked to, and leaves no zombies."""
    source = (
        "import os, select, signal\n"
        "signal.alarm(50)\n"
        "reading, writing = os.pipe()\n"
        "if not os.fork():\n"
        "    orphan = os.fork()\n"
        "    if orphan:\n"
        "        os.write(writing, str(orphan).encode())\n"
        "        os._exit(0)\n"
        "    os.read(0, 1)\n"  # until the test says so
        "    os._exit(0)\n"
        "os.wait()\n"
        "orphan = int(os.read(reading, 20))\n"
        "end = os.pidfd_open(orphan)\n"
        "status = open(f'/proc/{orphan}/status').read()\n"
        "print(f'PPid:\\t{os.getppid()}\\n' in status, flush=True)\n"
        "select.select([end], [], [])\n"
        "while os.path.exists(f'/proc/{orphan}'):\n"
        "    os.sched_yield()\n"
        "print('buried', flush=True)\n"
    )
    inherit = (
        "import ctypes, os, sys\n"
        "assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0\n"
        "from tilelang_otel.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    program = _command((), tmp_path, source)[-1]
    with _start([sys.executable, "-c", inherit, "run", program], tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        shown, _ = process.communicate("x", timeout=60)
    assert (process.returncode, shown) == (0, "buried\n")


@pytest.mark.parametrize(
    ("variable", "value", "has_parent"),
    [
        ("OTEL_PYTHON_TILELANG_CRASH_RECORD", "off", False),
        ("OTEL_PYTHON_TILELANG_CRASH_RECORD", "false", False),
        ("OTEL_PYTHON_TILELANG_CRASH_RECORD", "on", True),
        ("OTEL_PYTHON_TILELANG_CRASH_RECORD", "", True),
        ("OTEL_TRACES_EXPORTER", "none", False),
        ("OTEL_SDK_DISABLED", "true", False),
    ],
)
def test_parent_is_there_only_where_it_could_do_something(
    variable: str, value: str, has_parent: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    """Else the program takes the command's place."""
    command = _command(_TRACED, tmp_path, "import os\nprint(os.getpid())\n")
    monkeypatch.setenv(variable, value)
    with _start(command, tmp_path) as process:
        shown, _ = process.communicate(timeout=60)
    assert (int(shown) != process.pid) is has_parent


def test_system_without_file_locks_leaves_no_parent(tmp_path: Path) -> None:
    """A program is run whatever becomes of its crash record."""
    command = _command(_TRACED, tmp_path, "import os\nprint(os.getpid())\n")
    broken = "from tilelang_otel._crash import _run_folders as f; f.try_lock = lambda _: False"
    run = f"{broken}; import sys; from tilelang_otel.cli import main; sys.exit(main(sys.argv[1:]))"
    with _start([sys.executable, "-c", run, *command[3:]], tmp_path) as process:
        shown, _ = process.communicate(timeout=60)
    assert int(shown) == process.pid


def test_parent_needs_no_compiler_and_no_sdk(tmp_path: Path) -> None:
    """It is there as long as the program is, so it is small."""
    run = (
        "import atexit, sys\n"
        "heavy = {'tvm', 'tilelang', 'opentelemetry.sdk', 'rich', 'grpc', 'google.protobuf'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
        "from tilelang_otel.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    program = _command((), tmp_path, "pass\n")[-1]
    with _start([sys.executable, "-c", run, "run", program], tmp_path) as process:
        _, said = process.communicate(timeout=60)
    assert said.splitlines()[-1] == "[]"
