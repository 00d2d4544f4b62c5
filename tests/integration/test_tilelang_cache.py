"""What the spans say of TileLang's caches, and that tracing leaves these as they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.require import require_tilelang
from tests.support.spans import SpanMemory

require_tilelang()

from tests.support.tilelang_kernels import (  # noqa: E402
    cache_entries,
    compile_cpu,
    compile_cuda,
    folders,
    forget,
    gemm,
    scale,
    shape,
    tilelang,
    traced,
)
from tilelang_otel import mark_warmup_done, semconv  # noqa: E402

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give this module empty caches of its own, with one kernel for the CPU."""
    with folders(tmp_path_factory.mktemp("caches")) as cache:
        yield cache


@pytest.fixture(scope="module")
def compiled(cache: Path) -> tuple[str, float]:
    """Compile a kernel, and return its key and for how many seconds its span lasted."""
    with traced() as memory:
        compile_cpu()
    root = _root(memory)
    return root.attributes[semconv.TILELANG_CACHE_KEY], (root.end_time - root.start_time) / 1e9


@pytest.fixture(autouse=True)
def instrumented(compiled: tuple[str, float], memory: SpanMemory) -> Iterator[None]:
    """Trace into ``memory``, once the kernel is in the cache."""
    with traced(memory):
        yield


def _root(memory: SpanMemory) -> Any:
    [root] = [span for span in memory.spans if span.parent is None]
    return root


def _of_root(memory: SpanMemory) -> dict[str, Any]:
    names = (
        semconv.TILELANG_CACHE_RESULT,
        semconv.TILELANG_CACHE_KEY,
        semconv.TILELANG_CACHE_COMPILE_DURATION,
    )
    return {name: _root(memory).attributes.get(name) for name in names}


def test_kernel_in_memory_is_a_hit_that_says_what_it_saved(
    compiled: tuple[str, float], memory: SpanMemory
) -> None:
    """The look-up's own time is that of its key: nothing else happens."""
    compile_cpu()
    key, duration_s = compiled
    assert _of_root(memory) == {
        "tilelang.cache.result": "memory",
        "tilelang.cache.key": key,
        "tilelang.cache.compile_duration": pytest.approx(duration_s, rel=0.05),
    }
    assert shape(memory.spans) == ["compile scale", "  cache key"]


def test_kernel_on_disk_is_a_hit_that_loads_it(
    compiled: tuple[str, float], memory: SpanMemory
) -> None:
    """A compile time is known as long as the process knows the key."""
    forget()
    compile_cpu()
    assert _of_root(memory)["tilelang.cache.result"] == "disk"
    assert _of_root(memory)["tilelang.cache.compile_duration"] == pytest.approx(
        compiled[1], rel=0.05
    )
    assert shape(memory.spans) == [
        "compile scale",
        "  cache key",
        "  cache load",
        "    adapter",
        "      load",
    ]


_CHILD = """
import json, sys
traced = sys.argv[1] == "traced"
if traced:
    import tilelang_otel
    from tests.support.spans import SpanMemory
    memory = SpanMemory()
    tilelang_otel.instrument(memory.provider)
from tests.support.tilelang_kernels import compile_cpu
kernel = compile_cpu()
spans = [dict(span.attributes) for span in memory.spans if span.parent is None] if traced else []
print(json.dumps({"key": kernel._tilelang_cache_key, "spans": spans}))
"""


def _in_another_process(how: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, how],
        env={**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_another_process_hits_the_disk_and_knows_the_compile_time(
    cache: Path, compiled: tuple[str, float]
) -> None:
    """From a file of ours, in a folder of ours: nothing of ours is in TileLang's."""
    key, duration_s = compiled
    answer = _in_another_process("traced")
    [root] = answer["spans"]
    assert (root["tilelang.cache.result"], root["tilelang.cache.key"]) == ("disk", key)
    assert root["tilelang.cache.compile_duration"] == pytest.approx(duration_s, rel=0.05)
    assert {path.name for entry in cache_entries(cache) for path in entry.iterdir()} == {
        "device_kernel.cu",
        "host_kernel.cu",
        "kernel_lib.so",
        "manifest.json",
        "params.json",
    }


def test_key_is_the_one_that_a_process_without_tracing_uses(compiled: tuple[str, float]) -> None:
    """Tracing in one and not in the other costs no compile, and splits no cache."""
    assert _in_another_process("alone")["key"] == compiled[0]


def test_disabled_cache_is_told_and_has_no_key(
    memory: SpanMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither hit nor miss, also when the kernel lies there."""
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")
    compile_cpu()
    assert _of_root(memory) == {
        "tilelang.cache.result": "disabled",
        "tilelang.cache.key": None,
        "tilelang.cache.compile_duration": None,
    }
    assert shape(memory.spans) == [
        "compile scale",
        "  lower",
        "    61 passes",
        "    codegen tilelang_c",
        "  adapter",
        "    g++",
        "    load",
    ]


def test_corrupt_entry_is_a_miss(cache: Path, memory: SpanMemory) -> None:
    """TileLang throws it away and compiles anew, and that is what the span says."""
    compile_cpu(1100)
    key = _root(memory).attributes[semconv.TILELANG_CACHE_KEY]
    memory.take()
    [entry] = [entry for entry in cache_entries(cache) if entry.name == key]
    os.truncate(entry / "kernel_lib.so", 100)
    forget()
    compile_cpu(1100)
    assert _of_root(memory)["tilelang.cache.result"] == "miss"
    assert _of_root(memory)["tilelang.cache.compile_duration"] is None
    assert "    g++" in shape(memory.spans)


def test_failed_compile_was_a_miss_with_its_key(memory: SpanMemory) -> None:
    """The cache had been asked; and a failure is no compile time to remember."""
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Compilation Failed"):
            compile_cpu(1300, compile_flags=["-fno-such-flag"])
        found = _of_root(memory)
        assert found["tilelang.cache.result"] == "miss"
        assert len(found["tilelang.cache.key"]) == 64
        assert found["tilelang.cache.compile_duration"] is None
        memory.take()


def test_cached_device_binary_needs_no_device_compiler(cache: Path, memory: SpanMemory) -> None:
    """The kernel is gone, its binary is not: a miss, but one without nvcc."""
    compile_cuda(gemm())
    [codegen] = [s for s in memory.spans if s.name == "codegen tilelang_cuda"]
    assert (codegen.attributes or {})["tilelang.binary_cache.result"] == "miss"
    key = _root(memory).attributes[semconv.TILELANG_CACHE_KEY]
    memory.take()
    [entry] = [entry for entry in cache_entries(cache) if entry.name == key]
    shutil.rmtree(entry)
    forget()
    compile_cuda(gemm())
    assert _of_root(memory)["tilelang.cache.result"] == "miss"
    [codegen] = [s for s in memory.spans if s.name == "codegen tilelang_cuda"]
    assert (codegen.attributes or {})["tilelang.binary_cache.result"] == "hit"
    assert [s.name for s in memory.spans if s.name == "nvcc"] == []


def test_repeated_call_of_a_jitted_function_has_no_span(memory: SpanMemory) -> None:
    """It answers from its own memory: thousands of calls a second may do that."""

    @tilelang.jit(target="c")
    def jitted(n: int) -> Any:
        return scale(n)

    first = jitted(1200)
    assert shape(memory.take())[:2] == ["compile scale", "  elaborate"]
    assert jitted(1200) is first
    assert memory.spans == ()


def test_kernel_after_the_warmup_is_unwanted_unless_a_cache_has_it(
    memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what had to be compiled is marked, and logged with the shapes it was compiled for."""
    compile_cpu()
    memory.take()
    mark_warmup_done()
    compile_cpu()
    forget()
    compile_cpu()
    compile_cpu(1300)
    told = [
        (attributes.get("tilelang.cache.result"), attributes.get("tilelang.compile.trigger"))
        for attributes in (span.attributes or {} for span in memory.spans if span.parent is None)
    ]
    assert told == [("memory", None), ("disk", None), ("miss", "runtime")]
    messages = [r.getMessage() for r in caplog.records if r.name.startswith("tilelang_otel")]
    assert messages == [
        "compile scale for a 1300 float32, b 1300 float32 on c came after the warm-up: "
        "it is in no cache"
    ]
