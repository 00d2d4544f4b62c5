"""``tilelang-otel run`` of a program that dies while it compiles: its trace is there all the same.

Most programs here record passes by hand, so that no compiler is needed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import read_spans, run_command
from tests.support.received import ReceivedSpan
from tests.support.receiver import OTLPReceiver, RefusingEndpoint, SilentEndpoint
from tests.support.require import require_tvm
from tests.support.spans import outline

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no parent on Windows")

_COMPILING = """\
import ctypes, os, signal, sys
from tilelang_otel import OTelPassObserver
from tilelang_otel.events import PassEvent

observer = OTelPassObserver()

def compile(*names, then=lambda: None):
    "Run the first passes one after the other, and die in the last."
    observer.enter_pass_context()
    for number, name in enumerate(names[:-1]):
        event = PassEvent(name, number, 0, None, None)
        observer.pass_finished(None, event, observer.pass_started(None, event))
    event = PassEvent(names[-1], len(names) - 1, 0, None, None)
    state = observer.pass_started(None, event)
    then()
    observer.pass_finished(None, event, state)
    observer.exit_pass_context()

def killed():
    os.kill(os.getpid(), signal.SIGKILL)
"""

_DIED = ["PassContext!", "  A", "  Deadly!"]


@pytest.fixture(autouse=True)
def crashes(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of crash records, in which nothing may be left, nor among temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    path = cache / "crash"
    yield path
    assert list(temporary.iterdir()) == []
    assert not path.exists() or list(path.iterdir()) == []


def _run(
    folder: Path, source: str, environment: dict[str, str] | None = None, *options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "compiling.py").write_text(_COMPILING, encoding="utf-8")
    (folder / "program.py").write_text(f"from compiling import *\n{source}", encoding="utf-8")
    return run_command("run", *options, "program.py", cwd=folder, environment=environment)


def _spans(folder: Path) -> list[ReceivedSpan]:
    return read_spans(folder / "tilelang-otel.jsonl")


def _said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("tilelang-otel run: ")]


@pytest.mark.parametrize(
    ("death", "code", "cause"),
    [
        ("killed()", -signal.SIGKILL, " of SIGKILL"),
        ("ctypes.string_at(0)", -signal.SIGSEGV, " of SIGSEGV"),
        ("os.abort()", -signal.SIGABRT, " of SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, " of SIGTERM"),
        ("os._exit(0)", 0, " with exit code 0"),
        ("os._exit(7)", 7, " with exit code 7"),
    ],
    ids=["killed", "segmentation fault", "aborted", "terminated", "left", "left with a code"],
)
def test_program_that_dies_in_a_pass_is_shown_with_it(
    death: str, code: int, cause: str, tmp_path: Path
) -> None:
    """The tree that the program could not print, and the exit code that it had."""
    done = _run(tmp_path, f"compile('A', 'Deadly', then=lambda: {death})\n")
    assert done.returncode == code
    assert f"failed in Deadly: the process died{cause}\n" in done.stderr
    file = tmp_path / "tilelang-otel.jsonl"
    assert _said(done) == [
        f"tilelang-otel run: traces are in {file}: tilelang-otel show tilelang-otel.jsonl"
    ]
    spans = _spans(tmp_path)
    assert outline(spans) == _DIED
    by_name = {span.name: span for span in spans}
    assert {span.resource["service.name"] for span in spans} == {"program"}
    for name in ("PassContext", "Deadly"):
        attributes = by_name[name].attributes
        assert attributes["error.type"] == "process_died"
        known = (attributes.get("tilelang.process.signal"), attributes.get("process.exit.code"))
        assert known == ((None, code) if code >= 0 else (cause.removeprefix(" of "), None))
    # It is known when the program has died.
    assert "tvm.pass.end_estimated" not in by_name["Deadly"].attributes


def test_program_that_leaves_between_compiles_loses_nothing(tmp_path: Path) -> None:
    """Finished compiles that nobody has exported yet come back as they were."""
    done = _run(tmp_path, "compile('A')\ncompile('B')\nos._exit(3)\n")
    assert done.returncode == 3
    assert outline(_spans(tmp_path)) == ["PassContext", "  A", "PassContext", "  B"]
    assert "no errors" in done.stderr


def test_spans_that_the_program_has_exported_are_there_once(tmp_path: Path) -> None:
    """Only what is missing is recovered, and it is of the same trace."""
    source = (
        "import tilelang_otel\n"
        "compile('First')\n"
        "assert tilelang_otel.flush()\n"
        "compile('A', 'Deadly', then=killed)\n"
    )
    _run(tmp_path, source)
    assert outline(_spans(tmp_path)) == ["PassContext", "  First", *_DIED]


def test_program_that_dies_without_compiling_leaves_no_trace(tmp_path: Path) -> None:
    """There is one line, and that is all."""
    done = _run(tmp_path, "killed()\n")
    assert done.returncode == -signal.SIGKILL
    assert done.stderr.splitlines() == [
        "tilelang-otel run: no trace was recorded: nothing was compiled, or it was not sampled"
    ]
    assert not (tmp_path / "tilelang-otel.jsonl").exists()


def test_program_that_reports_itself_is_not_reported_again(tmp_path: Path) -> None:
    """Ctrl-C is a death too, but one of which the program can still tell."""
    source = "compile('A')\nos.kill(os.getpid(), signal.SIGINT)\n"
    done = _run(tmp_path, source)
    assert done.returncode == -signal.SIGINT
    assert len(_said(done)) == 1
    assert outline(_spans(tmp_path)) == ["PassContext", "  A"]


def test_program_that_outlives_the_folder_of_its_run_is_not_reported_twice(
    tmp_path: Path, crashes: Path
) -> None:
    """Some users empty their caches."""
    source = f"import shutil\ncompile('A')\nshutil.rmtree({str(crashes)!r})\n"
    done = _run(tmp_path, source)
    assert (done.returncode, len(_said(done))) == (0, 1)


def test_receiver_gets_what_the_program_could_not_send(tmp_path: Path) -> None:
    """Exported where the program would have, and beside it to the file that was asked for."""
    with OTLPReceiver() as receiver:
        done = _run(
            tmp_path,
            "compile('A', 'Deadly', then=killed)\n",
            receiver.environment(),
            *("--output", "t.jsonl"),
        )
        assert outline(receiver.wait_for(3)) == _DIED
        received = receiver.spans
    assert done.returncode == -signal.SIGKILL
    written = read_spans(tmp_path / "t.jsonl")
    assert sorted(span.span_id for span in written) == sorted(span.span_id for span in received)
    assert [line.split(" ")[2:5] for line in _said(done)] == [
        ["traces", "are", "in"],
        ["traces", "are", "exported"],
    ]


@pytest.mark.parametrize("endpoint", [RefusingEndpoint, SilentEndpoint])
def test_receiver_that_is_down_leaves_the_record_for_later(
    endpoint: type[RefusingEndpoint], tmp_path: Path
) -> None:
    """Nobody waits for longer than at a program's own exit, and a command brings it later."""
    with endpoint() as broken:
        environment = {
            **broken.environment("http/protobuf"),
            "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT": "1",
        }
        start_s = time.monotonic()
        done = _run(tmp_path, "compile('A', 'Deadly', then=killed)\n", environment)
        # The exporters alone would try for ten seconds, more than once.
        assert time.monotonic() - start_s < 9
    assert done.returncode == -signal.SIGKILL
    [hint] = [line for line in _said(done) if "not delivered" in line]
    assert hint.endswith(": tilelang-otel recover")
    with OTLPReceiver() as receiver:
        later = run_command("recover", cwd=tmp_path, environment=receiver.environment())
        assert (later.returncode, later.stderr) == (0, "")
        assert outline(receiver.wait_for(3)) == _DIED


def test_run_without_a_cache_keeps_the_record_among_temporary_files(
    tmp_path: Path, cache: Path
) -> None:
    """As where the home is read-only; the command that is named finds it there."""
    cache.write_text("in the way", encoding="utf-8")
    with RefusingEndpoint() as broken:
        environment = {**broken.environment("grpc"), "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT": "1"}
        done = _run(tmp_path, "compile('A', 'Deadly', then=killed)\n", environment)
    [hint] = [line for line in _said(done) if "not delivered" in line]
    match = re.search(r"tilelang-otel recover --directory (\S+)$", hint)
    assert match is not None
    with OTLPReceiver() as receiver:
        later = run_command(
            *("recover", "--directory", match[1]),
            cwd=tmp_path,
            environment=receiver.environment(),
        )
        assert (later.returncode, later.stderr) == (0, "")
        assert outline(receiver.wait_for(3)) == _DIED
    cache.unlink()


def test_worker_that_dies_is_told_after_the_programs_own_report(tmp_path: Path) -> None:
    """The program goes on without it, and reports what it knows of."""
    source = (
        "import multiprocessing\n"
        "compile('Before')\n"
        "worker = multiprocessing.get_context('fork').Process(\n"
        "    target=compile, args=('A', 'Deadly'), kwargs={'then': killed}\n"
        ")\n"
        "worker.start()\n"
        "worker.join()\n"
        "print(worker.exitcode)\n"
    )
    done = _run(tmp_path, source)
    assert (done.returncode, done.stdout) == (0, "-9\n")
    own, _, rest = done.stderr.partition("tilelang-otel show tilelang-otel.jsonl\n")
    assert ("Before" in own, "Deadly" in own) == (True, False)
    assert ("Before" in rest, "failed in Deadly: the process died\n" in rest) == (False, True)
    assert outline(_spans(tmp_path)) == ["PassContext", "  Before", *_DIED]


def test_directory_of_the_user_is_used_and_stays(tmp_path: Path) -> None:
    """What others have left there is recovered as well; the signal is that of the program."""
    records = tmp_path / "records"
    environment = {
        "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY": "records",
        "OTEL_PYTHON_TILELANG_CRASH_RECORD": "on",
    }
    (tmp_path / "compiling.py").write_text(_COMPILING, encoding="utf-8")
    other = (
        "import tilelang_otel\n"
        "from compiling import *\n"
        "tilelang_otel.configure(default_exporter='otlp_jsonl')\n"
        "compile('Other', then=killed)\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", other],
        cwd=tmp_path,
        env={
            **os.environ,
            **environment,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert len(list(records.iterdir())) == 1
    _run(tmp_path, "os.chdir('/')\ncompile('A', 'Deadly', then=killed)\n", environment)
    spans = _spans(tmp_path)
    assert outline(spans) == ["PassContext!", "  Other!", *_DIED]
    assert {
        span.name: span.attributes.get("tilelang.process.signal")
        for span in spans
        if span.name in ("Other", "Deadly")
    } == {"Other": None, "Deadly": "SIGKILL"}
    assert list(records.iterdir()) == []


def test_crash_record_that_is_off_tells_nothing(tmp_path: Path) -> None:
    """Then a program that dies leaves what it has exported, and no word."""
    done = _run(
        tmp_path,
        "compile('A', 'Deadly', then=killed)\n",
        {"OTEL_PYTHON_TILELANG_CRASH_RECORD": "off"},
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert not (tmp_path / "tilelang-otel.jsonl").exists()


def test_killed_compile_of_a_model_is_shown_with_its_finished_passes(tmp_path: Path) -> None:
    """The real thing: TVM, and a pass that is killed in the middle of its pipeline."""
    require_tvm()
    (tmp_path / "program.py").write_text(
        "import os, signal, tvm\n"
        "from tvm import relax\n"
        "@tvm.transform.module_pass(opt_level=0, name='Deadly')\n"
        "def deadly(mod, context):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "@tvm.transform.module_pass(opt_level=0, name='Outer')\n"
        "def outer(mod, context):\n"
        "    return deadly(relax.transform.Normalize()(mod))\n"
        "builder = relax.BlockBuilder()\n"
        "with builder.function('main', []):\n"
        "    builder.emit_func_output(relax.const(1))\n"
        "tvm.compile(builder.get(), 'llvm', relax_pipeline=outer)\n",
        encoding="utf-8",
    )
    done = run_command("run", "program.py", cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert "failed in Deadly: the process died of SIGKILL\n" in done.stderr
    assert outline(_spans(tmp_path)) == [
        "compile main!",
        "  Outer!",
        "    Normalize",
        "    Deadly!",
    ]
