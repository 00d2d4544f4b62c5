"""A TileLang program, unchanged, under the commands that trace it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import run_command, run_python
from tests.support.receiver import OTLPReceiver
from tests.support.require import require_tilelang

require_tilelang()

_PROGRAM = """\
import tilelang
import tilelang.language as T
import torch
from tilelang.autotuner import AutoTuner


def add_one(length):
    @T.prim_func
    def add_one(A: T.Tensor((length,), "float32"), B: T.Tensor((length,), "float32")):
        with T.Kernel(1):
            for i in T.serial(length):
                B[i] = A[i] + 1.0

    return add_one


@tilelang.jit(target="c")
def jitted(length):
    return add_one(length)


def fragment(width):
    @T.prim_func
    def fragment(A: T.Tensor((1, width), "float32"), B: T.Tensor((1, width), "float32")):
        with T.Kernel(1, threads=128):
            local = T.alloc_fragment((1, width), "float32")
            T.copy(A, local)
            for i, j in T.Parallel(1, width):
                local[i, j] = local[i, j] * 2.0
            T.copy(local, B)

    return fragment


def tuned(length=None):
    return add_one(length)


if __name__ == "__main__":
    a, b = torch.randn(96), torch.empty(96)
    jitted(96)(a, b)
    assert torch.allclose(a + 1, b)
    jitted(96)
    tilelang.compile(add_one(96), target="c")
    kernels = tilelang.par_compile(
        [fragment(128), fragment(229)], target={"kind": "cuda", "arch": "sm_80"}, ignore_error=True
    )
    print([kernel is not None for kernel in kernels])
    tuner = AutoTuner.from_kernel(tuned, [{"length": 100}, {"length": 104}])
    tuner.set_compile_args(target="c").set_profile_args(backend="wall").run(warmup=1, rep=1)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables for a program with caches of its own, which lies in the current folder."""
    (tmp_path / "program.py").write_text(_PROGRAM, encoding="utf-8")
    return {
        "TILELANG_CACHE_DIR": str(tmp_path / "kernels"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "OTEL_TRACES_EXPORTER": "",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }


def _trees(text: str) -> list[dict[str, Any]]:
    """Return each trace's root, with what a reader looks for first."""
    traces = json.loads(text)["traces"]
    return [
        {
            "name": trace["spans"][0]["name"],
            "cache": trace["spans"][0]["attributes"].get("tilelang.cache.result"),
            "kernels": sorted(
                (span["name"], span["attributes"].get("error.type", ""))
                for span in trace["spans"]
                if span["depth"] == 1 and span["name"].startswith("compile ")
            ),
            "is_error": trace["spans"][0]["error"] is not None,
        }
        for trace in sorted(traces, key=lambda trace: int(trace["start_time_unix_nano"]))
    ]


def test_run_gives_one_tree_for_each_call(environment: dict[str, str], tmp_path: Path) -> None:
    """Every kernel, cache result and failure is in its place, and the program is none the wiser."""
    done = run_command("run", "program.py", cwd=tmp_path, environment=environment, timeout_s=200)
    assert done.returncode == 0, done.stderr
    assert "[True, False]" in done.stdout
    shown = run_command("show", "--json", "tilelang-otel.jsonl", cwd=tmp_path)
    assert _trees(shown.stdout) == [
        {"name": "compile add_one", "cache": "miss", "kernels": [], "is_error": False},
        {"name": "compile add_one", "cache": "memory", "kernels": [], "is_error": False},
        {
            "name": "par_compile",
            "cache": None,
            "kernels": [
                ("compile fragment", ""),
                ("compile fragment", "tvm.error.InternalError"),
            ],
            "is_error": False,
        },
        {
            "name": "autotune tuned",
            "cache": "miss",
            "kernels": [("compile add_one", ""), ("compile add_one", "")],
            "is_error": False,
        },
    ]


def test_opentelemetry_instrument_exports_the_same_trees(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Without a command of ours, the variables alone decide where the spans go."""
    with OTLPReceiver("grpc") as receiver:
        done = run_python(
            str(Path(sys.executable).parent / "opentelemetry-instrument"),
            sys.executable,
            "program.py",
            cwd=tmp_path,
            environment={**environment, **receiver.environment(), "OTEL_TRACES_EXPORTER": "otlp"},
            timeout_s=200,
        )
        assert done.returncode == 0, done.stderr
        roots = [span.name for span in receiver.wait_for(300) if not span.parent_span_id]
    assert sorted(roots) == ["autotune tuned", "compile add_one", "compile add_one", "par_compile"]
