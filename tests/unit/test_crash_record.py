"""The crash record: what it keeps, what it forgets, and that nothing confuses it. No compiler."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.crash_records import make_pass, make_root
from tests.support.programs import run_program
from tilelang_otel import _crash
from tilelang_otel._crash import CrashRecord, DeadProcess, read
from tilelang_otel._crash import _layout as layout
from tilelang_otel._crash._files import IS_SUPPORTED
from tilelang_otel._death import Death
from tilelang_otel._frames import Failure, Frame, Record

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="no file locks here")

_TRACE, _SPAN, _PARENT = 0xAB << 100, 0xCD, 0xEF
_OFFSET_NS = -5


@pytest.fixture
def record(tmp_path: Path) -> Any:
    """Yield the crash record of a process that is this one, as if it were another."""
    record = CrashRecord(str(tmp_path), 4711, {"service.name": "trainer"})
    yield record
    record.close()


def _began(record: CrashRecord, root: Record | None = None, is_tracked: bool = True) -> Any:
    log = record.compile_began(
        _TRACE, _SPAN, _PARENT, make_root() if root is None else root, _OFFSET_NS, is_tracked
    )
    assert log is not None
    return log


def _read(
    record: CrashRecord, ended_ns: int = 0, is_known: bool = False, death: Death | None = None
) -> DeadProcess:
    process = read(record.path.read_bytes(), ended_ns, is_known, death)
    assert process is not None
    return process


def _outline(process: DeadProcess) -> list[str]:
    """Return what is in a file, in lines: name, times, why it failed."""
    lines: list[str] = []
    for compile_ in process.compiles:
        for each in (compile_.root, *compile_.records):
            failure = each.failure
            why = "" if failure is None else f" {failure.type}"
            above = "" if each.parent is None else f" in {each.parent.name}"
            lines.append(f"{each.name} {each.start_ns}-{each.end_ns}{above}{why}")
    return lines


def test_open_and_finished_passes_come_back_as_they_were(record: CrashRecord) -> None:
    """Names, times, order, nesting, phase; what was open is an error, innermost first."""
    root = make_root(**{"tvm.target.kind": "llvm"})
    log = _began(record, root)
    done = make_pass("Done", root, 110, 0, "relax")
    log.opened(done)
    done.end_ns = 120
    log.closed(done)
    outer = make_pass("Outer", root, 130, 1, "tirx")
    log.opened(outer)
    inner = make_pass("Inner", outer, 140, 2)
    log.opened(inner)
    process = _read(record)
    died = "process_died"
    assert _outline(process) == [
        f"compile main 100-140 {died}",
        "Done 110-120 in compile main",
        f"Outer 130-140 in compile main {died}",
        f"Inner 140-140 in Outer {died}",
    ]
    [compile_] = process.compiles
    assert (process.pid, process.resource) == (4711, {"service.name": "trainer"})
    assert (compile_.trace_id, compile_.span_id, compile_.parent_span_id) == (
        _TRACE,
        _SPAN,
        _PARENT,
    )
    assert compile_.wall_offset_ns == _OFFSET_NS
    assert compile_.root.attributes == {"tvm.target.kind": "llvm"}
    frames = [each for each in compile_.records if isinstance(each, Frame)]
    assert [(f.sequence, f.depth, f.parent_sequence, f.phase) for f in frames] == [
        (0, 0, None, "relax"),
        (1, 0, None, "tirx"),
        (2, 1, 1, None),
    ]
    assert [f.failure.origin for f in frames if f.failure is not None] == ["Inner", ""]


def test_work_beside_passes_comes_back_too(record: CrashRecord) -> None:
    """Code generation and compilers are most of a compile, and what hangs most often."""
    root = make_root()
    log = _began(record, root)
    work = Record()
    work.name, work.parent, work.start_ns, work.is_client = "nvcc", root, 150, True
    log.opened(work)
    [found] = _read(record).compiles[0].records
    assert (found.name, found.is_client, isinstance(found, Frame)) == ("nvcc", True, False)


def test_failure_that_was_seen_keeps_its_type(record: CrashRecord) -> None:
    """A pass that failed before the process died did not fail of that."""
    root = make_root()
    log = _began(record, root)
    failed = make_pass("Failed", root, 110)
    log.opened(failed)
    failed.end_ns, failed.failure, failed.end_estimated = 120, Failure("ValueError"), True
    log.closed(failed)
    [found] = _read(record).compiles[0].records
    assert found.failure is not None
    assert (found.failure.type, found.end_estimated, found.end_ns) == ("ValueError", True, 120)


def test_death_is_when_it_is_known_to_have_been(record: CrashRecord) -> None:
    """The end of what was open: as told, unless that is before what is known or absurd."""
    root = make_root()
    log = _began(record, root)
    log.opened(make_pass("Open", root, 200))

    def end(ended_ns: int, is_known: bool) -> tuple[int, bool]:
        [found] = _read(record, ended_ns, is_known).compiles[0].records
        return found.end_ns, found.end_estimated

    assert end(1000 + _OFFSET_NS, True) == (1000, False)
    assert end(1000 + _OFFSET_NS, False) == (1000, True)
    assert end(10, False) == (200, True)
    assert end(10**18, False) == (200, True)


@pytest.mark.parametrize(
    ("death", "message", "attributes"),
    [
        (None, "the process died", {}),
        (
            Death("SIGKILL"),
            "the process died of SIGKILL",
            {"tilelang.process.signal": "SIGKILL"},
        ),
        (
            Death(exit_code=0),
            "the process died with exit code 0",
            {"process.exit.code": 0},
        ),
    ],
    ids=["unknown", "signal", "exit code"],
)
def test_death_is_told_by_the_compile_and_the_deepest_that_was_running(
    death: Death | None, message: str, attributes: dict[str, Any], record: CrashRecord
) -> None:
    """As far as it is known; what is between the two says in what it failed."""
    root = make_root()
    log = _began(record, root)
    outer = make_pass("Outer", root, 110)
    inner = make_pass("Inner", outer, 120)
    for each in (outer, inner):
        log.opened(each)
    [compile_] = _read(record, death=death).compiles
    told = [
        (each.name, each.failure and (each.failure.message, each.failure.origin), each.attributes)
        for each in (compile_.root, *compile_.records)
    ]
    assert told == [
        ("compile main", (message, "Inner"), attributes),
        ("Outer", (message, "Inner"), None),
        ("Inner", (message, ""), attributes),
    ]


def test_exported_spans_are_forgotten(record: CrashRecord) -> None:
    """What arrived must not come twice; ids that are not known are other spans'."""
    root = make_root()
    log = _began(record, root)
    passes = [make_pass(name, root, 110 + n, n) for n, name in enumerate("AB")]
    for number, each in enumerate(passes):
        log.opened(each)
        each.end_ns = 120
        log.closed(each)
        log.started(each, 1000 + number)
        log.sent(each)
    assert len(_read(record).compiles[0].records) == 2
    record.exported([1000, 999])
    [left] = _read(record).compiles[0].records
    assert left.name == "B"
    root.end_ns = 130
    log.finished(root)
    record.exported([1001, _SPAN])
    assert _read(record).compiles == []


def test_span_ids_that_were_given_come_back(record: CrashRecord) -> None:
    """A child that was exported before refers to them."""
    root = make_root()
    log = _began(record, root)
    early = make_pass("Early", root, 110)
    log.opened(early)
    log.started(early, 77)
    log.opened(make_pass("Late", root, 120, 1))
    [compile_] = _read(record).compiles
    assert [compile_.span_ids.get(id(each), 0) for each in compile_.records] == [77, 0]


def test_untracked_spans_are_forgotten_when_they_are_sent(record: CrashRecord) -> None:
    """An application's provider does not tell what arrived."""
    root = make_root()
    log = _began(record, root, is_tracked=False)
    each = make_pass("A", root, 110)
    log.opened(each)
    each.end_ns = 120
    log.closed(each)
    log.started(each, 5)
    assert len(_read(record).compiles[0].records) == 1
    log.sent(each)
    assert _read(record).compiles[0].records == []
    root.end_ns = 130
    log.finished(root)
    log.sent(root)
    assert _read(record).compiles == []


def test_finished_compile_keeps_its_outcome_until_it_is_exported(record: CrashRecord) -> None:
    """Its attributes and its failure, as its span was about to tell them."""
    root = make_root()
    _began(record, root)
    root.end_ns = 300
    root.set_attribute("tilelang.cache.result", "miss")
    root.failure = Failure("RuntimeError", "no layout")
    log = record._logs[0]
    log.finished(root)
    found = _read(record).compiles[0].root
    assert found.failure is not None
    assert (found.end_ns, found.failure.type, found.failure.message) == (
        300,
        "RuntimeError",
        "no layout",
    )
    assert found.attributes == {"tilelang.cache.result": "miss"}


def test_slots_are_used_again_and_run_out_without_harm(record: CrashRecord) -> None:
    """What there is no room for is not kept; the compile does not notice."""
    root = make_root()
    while record.take_slot() >= 0:
        pass
    record.free_slots.extend([1, 0])
    log = _began(record, root)
    passes = [make_pass(str(number), root, 110 + number, number) for number in range(4)]
    for each in passes:
        log.opened(each)
        each.end_ns = 200
        log.closed(each)
        log.started(each, 10 + each.sequence)
    assert [each.crash_slot >= 0 for each in passes] == [True, True, False, False]
    assert [each.name for each in _read(record).compiles[0].records] == ["0", "1"]
    record.exported([10, 11, 12, 13])
    log.opened(passes[3])
    assert [each.name for each in _read(record).compiles[0].records] == ["3"]


def test_compiles_run_out_without_harm(record: CrashRecord) -> None:
    """The one too many is recorded, but not for the case of a crash."""
    for _ in range(layout.COMPILES - 1):
        _began(record)
    root = make_root()
    log = _began(record, root)
    assert record.compile_began(1, 2, 3, make_root(), 0, True) is None
    log.forget(root)
    assert record.compile_began(1, 2, 3, make_root(), 0, True) is not None


def test_records_of_a_compile_that_is_gone_are_not_given_to_the_next(record: CrashRecord) -> None:
    """A place that is used again belongs to whoever has it now."""
    root = make_root()
    log = _began(record, root)
    log.opened(make_pass("Stray", root, 110))
    log.forget(root)
    record.compile_began(1, 2, 3, make_root(), 0, True)
    assert [compile_.records for compile_ in _read(record).compiles] == [[]]


def test_names_and_attributes_have_an_end(record: CrashRecord) -> None:
    """A name that finds no room is unknown; attributes that find none are left out."""
    root = make_root(small=1, large="x" * 5000, odd=object(), list=(1, 2))
    log = _began(record, root)
    record.names._used_bytes = layout.NAMES_BYTES - 5
    each = make_pass("Too long for that", root, 110)
    log.opened(each)
    each.end_ns, each.failure = 120, Failure("TooLongAsWell")
    log.closed(each)
    [compile_] = _read(record).compiles
    assert compile_.root.attributes == {"small": 1, "list": [1, 2]}
    [read] = compile_.records
    assert (read.name, read.failure and read.failure.type) == ("(unknown)", "_OTHER")


def test_only_its_owner_can_read_the_file(record: CrashRecord) -> None:
    """Names of kernels are nobody else's business."""
    assert record.path.stat().st_mode & 0o777 == 0o600
    # Most of it was never written, and takes no room.
    assert record.path.stat().st_blocks * 512 < 200_000


def test_clean_end_removes_the_file_and_later_calls_do_no_harm(record: CrashRecord) -> None:
    """Threads that compile while the process exits write into nothing."""
    root = make_root()
    log = _began(record, root)
    record.close()
    assert not record.path.exists()
    each = make_pass("Late", root, 110)
    log.opened(each)
    log.closed(each)
    log.started(each, 5)
    log.finished(root)
    record.exported([5, _SPAN])


@pytest.mark.parametrize("seed", range(20))
def test_torn_file_is_read_without_an_error(seed: int, record: CrashRecord) -> None:
    """The process may have died in the middle of anything, and a disk may be full."""
    root = make_root()
    log = _began(record, root)
    for number in range(50):
        log.opened(make_pass(f"pass {number}", root, 110 + number, number))
    content = bytearray(record.path.read_bytes())
    chance = random.Random(seed)
    used = [
        *range(layout.HEADER.size, layout.HEADER.size + 50),
        *range(layout.NAMES_START, layout.NAMES_START + 600),
        *range(layout.COMPILES_START, layout.COMPILES_START + 200),
        *range(layout.SLOTS_START, layout.SLOTS_START + 50 * layout.SLOT_BYTES),
    ]
    for place in chance.sample(used, 300):
        content[place] = chance.randrange(256)
    process = read(bytes(content), 10**9)
    assert process is not None
    for compile_ in process.compiles:
        for each in compile_.records:
            assert each.end_ns >= each.start_ns
            depth, above = 0, each
            while above.parent is not None:
                depth, above = depth + 1, above.parent
                assert depth <= 50, "records are inside each other in a circle"


def test_records_that_name_each_other_as_parent_are_no_circle(record: CrashRecord) -> None:
    """A file that is damaged in that way would be read for ever."""
    root = make_root()
    log = _began(record, root)
    passes = [make_pass(name, root, 110, number) for number, name in enumerate("AB")]
    for each in passes:
        log.opened(each)
    passes[0].parent, passes[1].parent = passes[1], passes[0]
    for each in passes:
        slot = each.crash_slot
        log.opened(each)
        start = layout.SLOTS_START + each.crash_slot * layout.SLOT_BYTES
        content = record.memory[start : start + layout.SLOT_BYTES]
        place = layout.SLOTS_START + slot * layout.SLOT_BYTES
        record.memory[place : place + layout.SLOT_BYTES] = content
        log.forget(each)
    [compile_] = _read(record).compiles
    assert len(compile_.records) == 2
    assert compile_.records[0].parent is compile_.root


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\0" * layout.FILE_BYTES])
def test_file_that_is_none_is_not_read(content: bytes) -> None:
    """Somebody else's, or one that was never begun."""
    assert read(content) is None


def test_record_that_cannot_be_made_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that is a file, or may not be written to, costs one line and nothing else."""
    monkeypatch.setattr(_crash._Process, "is_settled", False)
    monkeypatch.setattr(_crash._Process, "record", None)
    blocked = tmp_path / "file"
    blocked.touch()
    assert _crash.for_process(str(blocked), dict) is None
    assert _crash.for_process(str(blocked), dict) is None
    assert [message for message in caplog.messages if str(blocked) in message] == caplog.messages
    assert len(caplog.messages) == 1


def _live(directory: Path) -> subprocess.Popen[str]:
    """Start a process that has a crash record there, and lives until its input ends."""
    program = f"""
        import sys
        from tilelang_otel import _crash
        record = _crash.for_process({str(directory)!r}, dict)
        print(record.path, flush=True)
        sys.stdin.read()
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_files_of_the_living_are_left_alone_and_of_the_dead_taken(tmp_path: Path) -> None:
    """The lock tells which is which, whatever process ids say."""
    with _live(tmp_path) as living, _live(tmp_path) as dying:
        assert living.stdout is not None
        assert dying.stdout is not None
        alive, dead = (Path(p.stdout.readline().strip()) for p in (living, dying) if p.stdout)
        assert list(_crash.dead_files(str(tmp_path))) == []
        dying.kill()
        dying.wait()
        # As if its process id had been used again, by this very process.
        with dead.open("r+b") as file:
            file.seek(16)
            file.write(os.getpid().to_bytes(8, "little"))
        assert [file.path for file in _crash.dead_files(str(tmp_path))] == [dead]
        assert alive.exists()
        living.communicate()
    assert not alive.exists()


def test_file_that_is_recovered_is_not_recovered_again(tmp_path: Path) -> None:
    """Not even where it cannot be removed; and while one recovers, another does not."""
    with _live(tmp_path) as dying:
        assert dying.stdout is not None
        dying.stdout.readline()
        dying.kill()
    [file] = _crash.dead_files(str(tmp_path))
    assert read(file.content) is not None
    taken = _crash.dead_files(str(tmp_path))
    held = next(taken)
    done = run_program(
        f"""
        from tilelang_otel import _crash
        print(len(list(_crash.dead_files({str(tmp_path)!r}))))
        """
    )
    assert done.lines == ["0"]
    held.mark_recovered()
    taken.close()
    [file] = _crash.dead_files(str(tmp_path))
    assert read(file.content) is None


def test_own_file_is_not_touched(tmp_path: Path) -> None:
    """To open and close it again would give up the lock."""
    done = run_program(
        f"""
        import subprocess, sys
        from tilelang_otel import _crash
        directory = {str(tmp_path)!r}
        _crash.for_process(directory, dict)
        print(len(list(_crash.dead_files(directory))))
        look = "from tilelang_otel import _crash; print(len(list(_crash.dead_files(%r))))"
        print(subprocess.run([sys.executable, "-c", look % directory], stdout=-1, text=True).stdout)
        """
    )
    assert done.lines[:2] == ["0", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_child_has_a_file_of_its_own_and_leaves_its_parents(tmp_path: Path) -> None:
    """It writes nothing into it, does not keep its lock, and does not remove it."""
    done = run_program(
        f"""
        import os, sys
        from pathlib import Path
        from tilelang_otel import _crash
        from tilelang_otel._frames import Record
        directory = {str(tmp_path)!r}
        record = _crash.for_process(directory, dict)
        root = Record()
        root.name, root.start_ns = "compile parent", 5
        log = record.compile_began(1, 2, 3, root, 0, True)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            root.end_ns = 7
            root.name = "compile child"
            log.finished(root)
            record.exported([2])
            own = _crash.for_process(directory, dict)
            print(own.path != record.path, len(os.listdir(directory)), flush=True)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        os.write(writing, b"x")
        os.waitpid(pid, 0)
        process = _crash.read(record.path.read_bytes())
        print([compile.root.end_ns for compile in process.compiles], flush=True)
        print(b"child" in record.path.read_bytes(), flush=True)
        """
    )
    assert done.complaints == []
    assert done.lines == ["True 2", "[5]", "False"]
