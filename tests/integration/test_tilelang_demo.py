"""``tilelang-otel demo`` where TileLang is installed: real kernels, compiled and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import read_spans, run_command
from tests.support.require import require_tilelang
from tests.support.spans import assert_sound

require_tilelang()

_FILE = "tilelang-otel-demo.jsonl"


def _demo(folder: Path, *options: str) -> tuple[str, list[dict[str, object]]]:
    done = run_command("demo", *options, cwd=folder, environment={"OTEL_TRACES_EXPORTER": ""})
    assert (done.returncode, done.stderr) == (0, "")
    spans = read_spans(folder / _FILE)
    assert_sound(spans)
    roots = [
        {
            "name": span.name,
            "target": span.attributes.get("tvm.target.kind"),
            "cache": span.attributes.get("tilelang.cache.result"),
            "is_error": span.status == "ERROR",
        }
        for span in sorted(spans, key=lambda span: span.start_ns)
        if not span.parent_span_id
    ]
    return done.stdout, roots


def test_demo_compiles_for_two_targets_and_hits_the_cache(tmp_path: Path) -> None:
    """A GEMM for CUDA, a kernel for the CPU that computes what torch does, and a cache hit."""
    stdout, roots = _demo(tmp_path)
    assert "its numbers match torch's" in " ".join(stdout.split())
    assert roots == [
        {"name": "compile gemm", "target": "cuda", "cache": None, "is_error": False},
        {"name": "compile add", "target": "c", "cache": "miss", "is_error": False},
        {"name": "compile add", "target": "c", "cache": "memory", "is_error": False},
    ]
    assert "─codegen tilelang_cuda" in stdout
    assert "─g++" in stdout


def test_demo_that_is_to_fail_shows_the_failing_pass(tmp_path: Path) -> None:
    """A kernel without a layout fails in TileLang's own pass, and the demo succeeds."""
    stdout, roots = _demo(tmp_path, "--fail")
    assert [root["is_error"] for root in roots] == [True]
    assert "failed in tl.LayoutInference" in stdout


@pytest.mark.parametrize("options", [(), ("--fail",)])
def test_demo_leaves_nothing_of_tilelang_behind(options: tuple[str, ...], tmp_path: Path) -> None:
    """The user's kernel cache is not touched, and nothing but the trace is written."""
    home = tmp_path / "home"
    home.mkdir()
    folder = tmp_path / "folder"
    folder.mkdir()
    done = run_command(
        "demo",
        *options,
        cwd=folder,
        environment={"OTEL_TRACES_EXPORTER": "", "HOME": str(home), "XDG_CACHE_HOME": str(home)},
    )
    assert done.returncode == 0
    assert [path.name for path in folder.iterdir()] == [_FILE]
    assert not list(home.rglob("*.so"))


def test_demo_without_a_compiler_says_so_and_shows_what_there_is(tmp_path: Path) -> None:
    """No traceback: the lowering needs no C++ compiler, and its tree is printed."""
    done = run_command(
        "demo", cwd=tmp_path, environment={"OTEL_TRACES_EXPORTER": "", "PATH": str(tmp_path)}
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "could not be compiled for this CPU" in " ".join(done.stdout.split())
    assert "compile gemm" in done.stdout
