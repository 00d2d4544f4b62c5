"""A crash record on a disk that is full: a real one, of a few hundred kilobytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.receiver import OTLPReceiver
from tests.support.require import require_tvm

require_tvm()
pytest.importorskip("fcntl")

_ROOT = Path(__file__).parents[2]

_PROGRAM = """
import os, signal, sys
import tilelang_otel
from tests.support.tvm_modules import empty_module, python_pass
from tvm.ir import transform

when, disk = sys.argv[1:]

def fill():
    with open(os.path.join(disk, "filler"), "wb", 0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

def die(mod):
    os.kill(os.getpid(), signal.SIGKILL)

tilelang_otel.configure()
tilelang_otel.instrument()
module, ident = empty_module(), python_pass("Id", lambda mod: mod)
if when == "before":
    fill()
with transform.PassContext():
    ident(module)
tilelang_otel.flush()
if when != "before":
    fill()
with transform.PassContext():
    for _ in range(3000):
        ident(module)
    if when == "until it dies":
        python_pass("Killer", die)(module)
print("compiled")
"""


_MOUNT = 'mount -t tmpfs -o size=300k none "$1" && shift && eval "$1"'

_RECOVER = "import sys; from tilelang_otel.cli import main; sys.exit(main(['recover']))"


def _run(script: str, disk: Path, receiver: OTLPReceiver) -> subprocess.CompletedProcess[str]:
    """Run a shell script that sees a small disk there, in ``$DISK``."""
    disk.mkdir()
    unshare = [shutil.which("unshare") or "", "--user", "--map-root-user", "--mount"]
    words = [*unshare, "sh", "-c", _MOUNT, "sh", str(disk)]
    if not unshare[0] or subprocess.run([*words, ":"], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system of their own")
    return subprocess.run(
        [*words, script],
        env={
            **os.environ,
            **receiver.environment(),
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
            "OTEL_PYTHON_TILELANG_CRASH_RECORD": "on",
            "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY": str(disk),
            "DISK": str(disk),
            "PYTHON": sys.executable,
            "PROGRAM": _PROGRAM,
            "RECOVER": _RECOVER,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("when", "warning"),
    [
        ("before", "there is no crash record in {disk}: No space left on device"),
        ("meanwhile", "the crash record in {disk} cannot keep all: No space left on device"),
    ],
)
def test_compile_on_a_full_disk_goes_on_with_one_warning(
    when: str, warning: str, tmp_path: Path
) -> None:
    """The record is what is done without, not the process, nor any of its spans."""
    disk = tmp_path / "disk"
    with OTLPReceiver() as receiver:
        done = _run(f'"$PYTHON" -c "$PROGRAM" {when} "$DISK"; ls "$DISK"', disk, receiver)
        spans = receiver.spans
    assert done.stderr.splitlines() == [warning.format(disk=disk)]
    assert done.stdout.splitlines() == ["compiled", "filler"]
    assert len(spans) == 3003


def test_process_that_dies_on_a_full_disk_is_recovered(tmp_path: Path) -> None:
    """As far as there was room for it; to read and remove the record takes none."""
    disk = tmp_path / "disk"
    script = """
        "$PYTHON" -c "$PROGRAM" "until it dies" "$DISK"; echo "status $?"
        "$PYTHON" -c "$RECOVER"; ls "$DISK"
    """
    with OTLPReceiver() as receiver:
        done = _run(script, disk, receiver)
        spans = receiver.spans
    assert [line.partition(" of ")[0] for line in done.stdout.splitlines()] == [
        "status 137",
        "tilelang-otel recover: recovered 1025 spans",
        "filler",
    ]
    died = [span for span in spans if span.attributes.get("error.type") == "process_died"]
    assert [span.name for span in died] == ["PassContext"]
    assert len({span.span_id for span in spans}) == len(spans) == 1027
