"""What ``tilelang-otel doctor`` says of crash records, and of what else is on in production."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import run_program

pytest.importorskip("rich")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no crash records on Windows")

_ROOT = Path(__file__).parents[2]
_ON = "OTEL_PYTHON_TILELANG_CRASH_RECORD"
_DIRECTORY = "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY"

# Records one pass by hand, and says so while it runs.
_COMPILE = """
    import os, sys, tilelang_otel
    from tilelang_otel.events import PassEvent
    tilelang_otel.configure(default_exporter="none")
    observer = tilelang_otel.OTelPassObserver(background=False)
    observer.enter_pass_context()
    observer.pass_started(None, PassEvent("A", 0, 0, None, None))
    print("compiling", flush=True)
    sys.stdin.read()
"""


def _doctor(environment: dict[str, str], *arguments: str) -> str:
    source = "import sys; from tilelang_otel.cli import main; sys.exit(main(sys.argv[1:]))"
    done = run_program(source, environment, ("doctor", "--no-send", *arguments))
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def _report(environment: dict[str, str]) -> dict[str, Any]:
    return json.loads(_doctor(environment, "--json"))


def _start_compile(environment: dict[str, str]) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_COMPILE)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "compiling\n"
    return process


def test_doctor_says_where_crash_records_would_be(tmp_path: Path) -> None:
    """By default there are none, but ``run`` has them; nothing is made by looking."""
    cache = tmp_path / "cache"
    found = _report({"XDG_CACHE_HOME": str(cache)})
    assert found["crash_record"] == {
        "is_on": False,
        "directory": str(cache / "tilelang-otel" / "crash"),
        "problem": "",
        "waiting": 0,
    }
    assert found["production"]["crash record"].startswith("off, but on under `tilelang-otel run`;")
    assert found["production"]["crashes"] == "no dead processes to recover there"
    assert not cache.exists()


def test_doctor_tells_dead_processes_from_living_ones(tmp_path: Path) -> None:
    """Only what nobody will finish is to be recovered, and looking recovers nothing."""
    environment = {_ON: "on", _DIRECTORY: str(tmp_path)}
    with _start_compile(environment) as living:
        with _start_compile(environment) as dying:
            dying.send_signal(signal.SIGKILL)
        assert dying.returncode == -signal.SIGKILL
        files = sorted(tmp_path.iterdir())
        assert len(files) == 2
        for _ in range(2):
            found = _report(environment)
            assert found["crash_record"]["is_on"]
            assert found["crash_record"]["waiting"] == 1
            assert found["production"]["crashes"] == "1 dead process to recover there"
            [warning] = [line for line in found["warnings"] if "crash record" in line]
            assert warning.endswith("`tilelang-otel recover` exports what was running")
        assert sorted(tmp_path.iterdir()) == files
        living.communicate("", timeout=60)
    assert living.returncode == 0
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_doctor_warns_of_a_folder_that_cannot_be_one(place: str, tmp_path: Path) -> None:
    """It says why, and which variable chooses another."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    directory = str(tmp_path / place)
    found = _report({_ON: "on", _DIRECTORY: directory})
    assert found["crash_record"]["problem"]
    [warning] = [line for line in found["warnings"] if "crash record" in line]
    assert warning.startswith(f"no crash record can be kept in {directory}: ")
    assert warning.endswith(_DIRECTORY)
    # Who keeps none need not care.
    found = _report({_DIRECTORY: directory})
    assert [line for line in found["warnings"] if "crash record" in line] == []


@pytest.mark.parametrize("place", ["", "below"])
def test_doctor_warns_of_a_folder_that_may_not_be_written(place: str, tmp_path: Path) -> None:
    """It tries, as permissions are not all that can be in the way."""
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write anything")
        found = _report({_ON: "on", _DIRECTORY: str(tmp_path / place)})
    finally:
        tmp_path.chmod(0o700)
    assert found["crash_record"]["problem"] == "Permission denied"


@pytest.mark.parametrize(
    ("variables", "name", "says"),
    [
        ({}, "spans", "all spans of every compile; at most 100,000 in a trace"),
        (
            {"OTEL_PYTHON_TILELANG_EMIT": "slow", "OTEL_PYTHON_TILELANG_SLOW": "2.5"},
            "spans",
            "all of compiles that failed or took 2.5 s, else one for each compile; "
            "at most 100,000 in a trace",
        ),
        (
            {"OTEL_PYTHON_TILELANG_EMIT": "compile", "OTEL_PYTHON_TILELANG_TRACE_SPANS": "50"},
            "spans",
            "one span for each compile; at most 50 in a trace",
        ),
        ({}, "metrics", "none, unless the program has a meter provider"),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, "metrics", "otlp_proto_grpc"),
        ({}, "hanging", "passes are not watched"),
        ({"OTEL_PYTHON_TILELANG_STALL_LIMIT": "30"}, "hanging", "passes of 30 s are reported"),
        ({}, "SIGTERM", "exports nothing"),
        (
            {"OTEL_PYTHON_TILELANG_FLUSH_ON_SIGTERM": "true"},
            "SIGTERM",
            "exports what has finished first",
        ),
    ],
)
def test_doctor_puts_what_is_on_in_production_into_words(
    variables: dict[str, str], name: str, says: str
) -> None:
    """One need not know the defaults by heart."""
    assert _report(variables)["production"][name] == says


def test_doctor_shows_what_is_on_in_production(tmp_path: Path) -> None:
    """The terminal says the same as the JSON."""
    shown = _doctor({_ON: "on", _DIRECTORY: str(tmp_path), "COLUMNS": "200"}).splitlines()
    start = shown.index("In production")
    assert [line.split()[:3] for line in shown[start + 1 : start + 7]] == [
        ["spans", "all", "spans"],
        ["metrics", "none,", "unless"],
        ["crash", "record", "on;"],
        ["crashes", "no", "dead"],
        ["hanging", "passes", "are"],
        ["SIGTERM", "exports", "nothing"],
    ]
    # A setting that is unset is not called None.
    assert "None" not in "\n".join(shown)
