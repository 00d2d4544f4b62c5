"""``tilelang-otel run`` that is killed together with its program: nobody is left to tell of it.

Whoever comes next does: the command ``recover``, or a program with a crash record.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.command import run_command
from tests.support.programs import run_program
from tests.support.receiver import OTLPReceiver
from tests.support.services import poll_until
from tests.support.spans import outline

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no parent on Windows")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")

_ROOT = Path(__file__).parents[2]

# Says so in the middle of a pass, which lasts until its input ends.
_COMPILING = """\
import os, sys
from tilelang_otel import OTelPassObserver
from tilelang_otel.events import PassEvent

observer = OTelPassObserver()
observer.enter_pass_context()
events = [PassEvent(name, number, 0, None, None) for number, name in enumerate(("A", "Deadly"))]
observer.pass_finished(None, events[0], observer.pass_started(None, events[0]))
state = observer.pass_started(None, events[1])
print(os.getpid(), flush=True)
sys.stdin.read()
observer.pass_finished(None, events[1], state)
observer.exit_pass_context()
"""

_DIED = ["PassContext!", "  A", "  Deadly!"]

_NEXT = "import tilelang_otel; tilelang_otel.configure()"
_ON = {"OTEL_PYTHON_TILELANG_CRASH_RECORD": "on"}


def _start(
    folder: Path, environment: dict[str, str], options: tuple[str, ...] = ()
) -> tuple[subprocess.Popen[str], int]:
    """Return ``run`` with a program that compiles, and the program's process id."""
    program = folder / "program.py"
    program.write_text(_COMPILING, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "tilelang_otel", "run", *options, str(program)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def _kill(process: subprocess.Popen[str], program: int) -> None:
    """Kill both at once, as the out-of-memory killer does with a whole group."""
    with process:
        process.send_signal(signal.SIGSTOP)
        os.kill(program, signal.SIGKILL)
        process.kill()
        assert process.stdout is not None
        # Nobody has it open any more: the program is gone.
        assert process.stdout.read() == ""
    assert process.returncode == -signal.SIGKILL


def _left(cache: Path) -> list[Path]:
    return list((cache / "crash").iterdir())


def test_recover_brings_what_a_killed_run_has_left_and_removes_it(
    tmp_path: Path, cache: Path
) -> None:
    """Once: a second time there is nothing."""
    with OTLPReceiver() as receiver:
        environment = receiver.environment()
        _kill(*_start(tmp_path, environment))
        assert len(_left(cache)) == 1
        done = run_command("recover", cwd=tmp_path, environment=environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (
            "tilelang-otel recover: recovered 3 spans of 1 process that has died, "
            f"exported to {receiver.endpoint}\n"
        )
        again = run_command("recover", cwd=tmp_path, environment=environment)
        assert again.stdout.startswith("tilelang-otel recover: nothing to recover in ")
        assert outline(receiver.spans) == _DIED
        assert {span.resource["service.name"] for span in receiver.spans} == {"program"}
    assert _left(cache) == []


def test_next_start_brings_what_a_killed_run_has_left(tmp_path: Path, cache: Path) -> None:
    """A program with a crash record of its own does as ``recover``, beside its work."""
    with OTLPReceiver() as receiver:
        environment = {**receiver.environment(), **_ON}
        _kill(*_start(tmp_path, environment))
        done = run_program(_NEXT, environment)
        assert (done.exit_code, done.complaints) == (0, [])
        assert outline(receiver.wait_for(3)) == _DIED
    assert _left(cache) == []


def test_directory_of_the_user_is_recovered_with_the_run_in_it(tmp_path: Path) -> None:
    """The records are in it and not in the run's folder, which goes all the same."""
    records = tmp_path / "records"
    with OTLPReceiver() as receiver:
        environment = {
            **receiver.environment(),
            "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY": str(records),
        }
        _kill(*_start(tmp_path, environment))
        assert sorted(path.suffix for path in records.iterdir()) == ["", ".crash"]
        run_command("recover", "--directory", records, cwd=tmp_path, environment=environment)
        assert outline(receiver.wait_for(3)) == _DIED
    assert list(records.iterdir()) == []


@pytest.mark.parametrize("who", ["recover", "start"])
def test_run_that_lives_is_left_alone(who: str, tmp_path: Path, cache: Path) -> None:
    """It tells of its program itself, and of nobody else's."""
    with OTLPReceiver() as receiver:
        environment = {**receiver.environment(), **_ON}
        living, _ = _start(tmp_path, environment)
        [folder] = _left(cache)
        before = sorted(folder.iterdir())
        if who == "recover":
            done = run_command("recover", cwd=tmp_path, environment=environment)
            assert "nothing to recover" in done.stdout
        else:
            assert run_program(_NEXT, environment).complaints == []
        assert (sorted(folder.iterdir()), receiver.spans) == (before, [])
        # Nor does a run that starts care for what others have left.
        _kill(*_start(tmp_path, environment))
        other, _ = _start(tmp_path, environment)
        for process in (other, living):
            process.communicate("", timeout=60)
            assert process.returncode == 0
        assert outline(receiver.wait_for(6)) == ["PassContext", "  A", "  Deadly"] * 2
    assert len(_left(cache)) == 1


def test_two_that_recover_at_once_deliver_each_record_once(tmp_path: Path, cache: Path) -> None:
    """Who comes second finds a run taken, or nothing."""
    with OTLPReceiver() as receiver:
        environment = receiver.environment()
        for _ in range(4):
            _kill(*_start(tmp_path, environment))
        codes: list[int] = []

        def recover() -> None:
            done = run_command("recover", cwd=tmp_path, environment=environment)
            codes.append(done.returncode)

        threads = [threading.Thread(target=recover) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Each passes over a run that another is at.
        poll_until(
            lambda: (
                "nothing" in run_command("recover", cwd=tmp_path, environment=environment).stdout
            ),
            "all to be recovered",
        )
        spans = receiver.spans
    assert codes == [0] * 3
    assert len({span.span_id for span in spans}) == len(spans) == 4 * 3
    assert _left(cache) == []
