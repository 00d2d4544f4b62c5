"""The wheel, as a user gets it: what is in it, and that it works in a fresh environment."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tilelang_otel.version import __version__

_ROOT = Path(__file__).parents[2]
_CONSTRAINTS = _ROOT / "tests" / "environments" / "constraints.txt"


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name[:4] != "OTEL"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by way of the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    done = _run(sys.executable, "-m", "build", "--outdir", folder, _ROOT, cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (built,) = folder.glob("*.whl")
    return built


def _environment(folder: Path, *requirements: str) -> Path:
    done = _run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    python = folder / "bin" / "python"
    done = _run(
        python, "-m", "pip", "install", "--quiet", "--constraint", _CONSTRAINTS, *requirements,
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "bin"


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Types, license and entry points are in it; tests and deployments are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (n for n in names if n.endswith("entry_points.txt"))
        text = archive.read(entry_points).decode()
    information = f"tilelang_otel-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"tilelang_otel", information}
    assert "tilelang_otel/py.typed" in names
    assert f"{information}/licenses/LICENSE" in names
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(text)
    found = {(group, name) for group in parser.sections() for name in parser[group]}
    assert found == {
        ("console_scripts", "tilelang-otel"),
        ("opentelemetry_environment_variables", "tilelang_otel"),
        ("opentelemetry_instrumentor", "tilelang"),
        ("opentelemetry_instrumentor", "tvm"),
        ("opentelemetry_traces_exporter", "otlp_jsonl"),
        ("tilelang.instrumentation_tools", "opentelemetry"),
    }


def test_wheel_in_a_fresh_environment_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    """What the README says to install is enough for the command."""
    scripts = _environment(tmp_path / "full", f"{wheel}[cli,tvm]", "apache-tvm==0.27.0.post1")
    done = _run(scripts / "tilelang-otel", "--version", cwd=tmp_path)
    assert done.stdout.split() == ["tilelang-otel", __version__]
    done = _run(scripts / "tilelang-otel", "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "match NumPy's" in done.stdout
    assert "codegen llvm" in done.stdout + done.stderr


def test_wheel_without_extras_says_what_the_command_needs(wheel: Path, tmp_path: Path) -> None:
    """The base install is small, and its command says in one line what to add."""
    scripts = _environment(tmp_path / "base", str(wheel))
    done = _run(scripts / "tilelang-otel", "show", "traces.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "pip install 'tilelang-otel[cli]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    done = _run(scripts / "python", "-c", "import tilelang_otel as t; t.instrument()", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
