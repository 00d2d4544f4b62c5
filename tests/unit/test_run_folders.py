"""Folders of runs: the living keep theirs, those of the dead are searched and removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import run_program
from tilelang_otel import _crash
from tilelang_otel._crash import RunFolder, _run_folders
from tilelang_otel._crash._files import IS_SUPPORTED

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="no file locks here")

# Keeps a run's folder, and a crash record in it, until its input ends.
_RUN = """\
import sys
from tilelang_otel import _crash
run = _crash.RunFolder(sys.argv[1])
record = _crash.for_process(run.path, dict)
print(run.path, record.path, sep="\\n", flush=True)
sys.stdin.read()
"""

_COUNT = "from tilelang_otel import _crash; print(len(list(_crash.dead_files({!r}))))"


def _start(directory: Path) -> tuple[subprocess.Popen[str], Path, Path]:
    """Return a run in another process, its folder, and its record."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    folder, record = (Path(process.stdout.readline().strip()) for _ in range(2))
    return process, folder, record


def _kill(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


def _found(directory: Path) -> list[Path]:
    return [file.path for file in _crash.dead_files(str(directory))]


def test_record_of_a_dead_run_is_found_and_its_folder_goes_with_it(tmp_path: Path) -> None:
    """Searching alone removes nothing, and a folder with a record in it stays."""
    process, folder, record = _start(tmp_path)
    _kill(process)
    assert _found(tmp_path) == [record]
    _crash.remove_dead_runs(str(tmp_path))
    assert _found(tmp_path) == [record]
    for file in _crash.dead_files(str(tmp_path)):
        file.remove()
    assert folder.is_dir()
    _crash.remove_dead_runs(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_living_run_is_left_alone_whatever_is_in_it(tmp_path: Path) -> None:
    """What has died in it is for its run to tell."""
    process, folder, record = _start(tmp_path)
    dead, _, orphan = _start(tmp_path / "elsewhere")
    _kill(dead)
    orphan.rename(folder / orphan.name)
    with process:
        for _ in range(2):
            assert _found(tmp_path) == []
            _crash.remove_dead_runs(str(tmp_path))
        assert _found(folder) == [folder / orphan.name]
        assert record.exists()
        process.communicate("")
    assert _found(tmp_path) == [folder / orphan.name]


def test_record_of_a_process_that_outlives_its_run_stays(tmp_path: Path) -> None:
    """It lives, though its run is dead; the folder goes when it has gone."""
    run = RunFolder(str(tmp_path))
    process, _, record = _start(tmp_path / "elsewhere")
    with process:
        kept = Path(run.path) / record.name
        record.rename(kept)
        run.remove()
        assert kept.exists()
        _crash.remove_dead_runs(str(tmp_path))
        assert (kept.exists(), _found(tmp_path)) == (True, [])
        process.communicate("")
    kept.unlink()
    _crash.remove_dead_runs(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


def test_run_in_a_run_is_found_too(tmp_path: Path) -> None:
    """A traced program may be a script that calls the command again."""
    outer, folder, _ = _start(tmp_path)
    inner, _, record = _start(folder)
    _kill(inner)
    _kill(outer)
    assert record in _found(tmp_path)
    for file in _crash.dead_files(str(tmp_path)):
        file.remove()
    _crash.remove_dead_runs(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_two_searches_at_once_share_the_records(tmp_path: Path) -> None:
    """While one is at a dead run, the other finds nothing there."""
    process, _, record = _start(tmp_path)
    _kill(process)
    search = _crash.dead_files(str(tmp_path))
    assert next(search).path == record
    assert run_program(_COUNT.format(str(tmp_path))).lines == ["0"]
    search.close()
    assert run_program(_COUNT.format(str(tmp_path))).lines == ["1"]


def test_own_folder_is_not_touched(tmp_path: Path) -> None:
    """To open and close its file once more would give up the lock."""
    run = RunFolder(str(tmp_path))
    _crash.remove_dead_runs(str(tmp_path))
    assert _found(tmp_path) == []
    look = (
        "from tilelang_otel._crash._run_folders import dead_runs; "
        f"print(len(list(dead_runs({str(tmp_path)!r}))))"
    )
    assert run_program(look).lines == ["0"]
    run.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_program_of_a_run_does_not_keep_it_alive(tmp_path: Path) -> None:
    """The lock is the command's own, whoever goes on after it."""
    done = run_program(
        f"""
        import os, subprocess, sys
        from tilelang_otel import _crash
        reading, writing = os.pipe()
        command = os.fork()
        if not command:
            _crash.RunFolder({str(tmp_path)!r})
            if not os.fork():
                os.read(reading, 1)
            os._exit(0)
        os.waitpid(command, 0)
        print(len(list(_crash._search.dead_runs({str(tmp_path)!r}))), flush=True)
        os.write(writing, b"x")
        """
    )
    assert (done.lines, done.complaints) == (["1"], [])


def test_folder_that_looks_like_a_run_is_not_emptied(tmp_path: Path) -> None:
    """The directory is the user's, and may hold anything."""
    names = ["run-1", "tilelang-otel-run-mine", f"tilelang-otel-run-{'0' * 16}"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("x", encoding="utf-8")
    (tmp_path / f"tilelang-otel-run-{'1' * 16}").write_text("a file", encoding="utf-8")
    _crash.remove_dead_runs(str(tmp_path))
    assert all((tmp_path / name / "precious").exists() for name in names)
    assert len(list(tmp_path.iterdir())) == 4


def test_folder_that_has_lost_its_mark_is_that_of_a_dead_run(tmp_path: Path) -> None:
    """Somebody was killed while removing it."""
    process, folder, record = _start(tmp_path)
    _kill(process)
    (folder / "alive").unlink()
    assert _found(tmp_path) == [record]
    record.unlink()
    _crash.remove_dead_runs(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_locked_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could tell whether it is of the living; nothing is left of the attempt."""
    monkeypatch.setattr(_run_folders, "try_lock", lambda _: False)
    with pytest.raises(OSError, match="no file can be locked"):
        RunFolder(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
