"""Metrics of real TileLang compiles at a real OTLP receiver: kernels, caches, failures."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.metrics import Point, points_of
from tests.support.programs import run_program
from tests.support.receiver import OTLPReceiver
from tests.support.require import require_tilelang

require_tilelang()
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")

# A kernel that is compiled, found in memory and on disk; one without a cache; one that fails;
# and two side by side.
_PROGRAM = """
    import sys
    from pathlib import Path

    import tilelang_otel
    tilelang_otel.configure()

    from tests.support import tilelang_kernels as kernels

    tilelang_otel.instrument()
    with kernels.folders(Path(sys.argv[1])):
        kernels.compile_cpu()
        kernels.compile_cpu()
        kernels.forget()
        kernels.compile_cpu()
        kernels.tilelang.disable_cache()
        kernels.compile_cpu(name="uncached")
        kernels.tilelang.enable_cache()
        try:
            kernels.compile_cuda(kernels.frag(229))
        except Exception:
            print("failed")
        tilelang_otel.mark_warmup_done()
        kernels.compile_cpu()
        kernels.compile_cpu(n=2048, name="late")
"""


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[Point]:
    """What the program's only export held, at its end."""
    with OTLPReceiver() as receiver:
        variables = {**receiver.environment(), "OTEL_METRICS_EXPORTER": "otlp"}
        folder = tmp_path_factory.mktemp("metrics") / "caches"
        folder.mkdir()
        done = run_program(_PROGRAM, variables, (str(folder),), timeout_s=300)
        assert done.exit_code == 0, done.stderr
        assert "failed" in done.lines, done.stderr
        [message] = [r.message for r in receiver.requests if r.signal == "metrics"]
        return points_of(message)


def _of(points: list[Point], metric: str) -> list[Point]:
    return [point for point in points if point.metric == metric]


def test_compiles_are_timed_by_kernel_and_what_the_cache_said(points: list[Point]) -> None:
    """A hit is told from a compile, and a compile that nobody wanted from one at start-up."""
    names = ("tilelang.kernel.name", "tilelang.cache.result", "tilelang.compile.trigger")
    counts: Counter[tuple[str | None, ...]] = Counter()
    for point in _of(points, "tilelang.compile.duration"):
        counts[tuple(point.attributes.get(name) for name in names)] += point.count or 0
    assert counts == {
        ("scale", "miss", None): 1,
        ("scale", "memory", None): 2,
        ("scale", "disk", None): 1,
        ("uncached", "disabled", None): 1,
        ("frag_229", "miss", None): 1,
        ("late", "miss", "runtime"): 1,
    }


def test_compiles_have_target_and_backend(points: list[Point]) -> None:
    """Both where they are known: a failed compile was for a target, and has no backend yet."""
    found = {
        point.attributes["tilelang.kernel.name"]: (
            point.attributes.get("tvm.target.kind"),
            point.attributes.get("tilelang.execution_backend"),
        )
        for point in _of(points, "tilelang.compile.duration")
    }
    assert found["scale"] == ("c", "cython")
    assert found["frag_229"][0] == "cuda"


def test_lookups_are_counted_by_answer(points: list[Point]) -> None:
    """Each look-up once, though several entry points lead to the cache."""
    assert {
        point.attributes["tilelang.cache.result"]: point.value
        for point in _of(points, "tilelang.cache.lookups")
    } == {"miss": 3, "memory": 2, "disk": 1}


def test_failures_name_kernel_and_exception(points: list[Point]) -> None:
    """One failed compile, and a pass in it that is to blame."""
    [failed] = _of(points, "tilelang.compile.failures")
    assert failed.value == 1
    assert failed.attributes["tilelang.kernel.name"] == "frag_229"
    error = failed.attributes["error.type"]
    passes = [p for p in _of(points, "tvm.pass.duration") if "error.type" in p.attributes]
    assert ("tl.LayoutInference", error) in {
        (p.attributes["tvm.pass.name"], p.attributes["error.type"]) for p in passes
    }


def test_unwanted_compiles_are_counted_by_kernel(points: list[Point]) -> None:
    """Of two after the warm-up, the one that no cache answered."""
    [after] = _of(points, "tilelang.compile.after_warmup")
    assert after.value == 1
    assert after.attributes == {
        "tilelang.kernel.name": "late",
        "tvm.target.kind": "c",
        "tilelang.cache.result": "miss",
    }


def test_nothing_runs_at_the_end(points: list[Point]) -> None:
    """One running compile less for each that was begun."""
    assert [point.value for point in _of(points, "tilelang.compile.active")] == [0]
