"""Compiles that come when the warm-up is over: marked, counted, logged once. No compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import sampling

from tests.support.spans import SpanMemory, outline
from tilelang_otel import mark_warmup_done, semconv
from tilelang_otel._recorder import Recorder

_TRIGGER = semconv.TILELANG_COMPILE_TRIGGER


def _compile(
    recorder: Recorder,
    kernel: str = "gemm",
    result: str | None = "miss",
    shapes: Callable[[], str] | None = lambda: "A 64x64 float16",
) -> None:
    attributes: dict[str, Any] = {semconv.TVM_TARGET_KIND: "cuda"}
    with recorder.compile_scope(lambda: (f"compile {kernel}", attributes), shapes=shapes) as scope:
        if result is not None:
            scope.set_attribute(semconv.TILELANG_CACHE_RESULT, result)


def test_compile_during_the_warmup_is_nothing_special(
    memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """That is what the warm-up is for; and whoever never ends it hears nothing."""
    _compile(Recorder(memory.provider))
    assert outline(memory.spans, _TRIGGER) == ["compile gemm"]
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("miss", "it is in no cache"),
        ("disabled", "the kernel cache is disabled"),
        (None, "no cache was asked"),
    ],
)
def test_compile_after_the_warmup_is_marked_and_logged_with_shapes_and_reason(
    result: str | None, reason: str, memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says which kernel, for what, and why no cache answered."""
    mark_warmup_done()
    _compile(Recorder(memory.provider), result=result)
    assert outline(memory.spans, _TRIGGER) == ["compile gemm runtime"]
    assert caplog.messages == [
        f"compile gemm for A 64x64 float16 on cuda came after the warm-up: {reason}"
    ]


@pytest.mark.parametrize("result", ["memory", "disk"])
def test_cache_hit_after_the_warmup_is_nothing_special(
    result: str, memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was compiled."""
    mark_warmup_done()
    _compile(Recorder(memory.provider), result=result)
    assert outline(memory.spans, _TRIGGER) == ["compile gemm"]
    assert caplog.messages == []


def test_same_kernel_is_logged_once_and_marked_each_time(
    memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """Other shapes are another kernel; a log is no place for a thousand equal lines."""
    recorder = Recorder(memory.provider)
    mark_warmup_done()
    for shapes in ("A 64", "A 64", "A 128"):
        _compile(recorder, shapes=lambda text=shapes: text)
    mark_warmup_done()
    _compile(recorder, shapes=lambda: "A 64")
    assert outline(memory.spans, _TRIGGER) == ["compile gemm runtime"] * 4
    assert [message.split(" on ")[0] for message in caplog.messages] == [
        "compile gemm for A 64",
        "compile gemm for A 128",
    ]


def test_compile_that_is_not_sampled_is_logged_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One request in a hundred is traced; an unwanted compile is unwanted in each."""
    memory = SpanMemory(sampling.ALWAYS_OFF)
    mark_warmup_done()
    _compile(Recorder(memory.provider))
    assert memory.spans == ()
    assert len(caplog.messages) == 1


def test_entry_points_that_share_a_span_report_once(
    memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """The outermost knows the span's name, whoever came first the shapes."""
    recorder = Recorder(memory.provider)
    mark_warmup_done()
    with recorder.compile_scope(lambda: ("compile jitted", {})):
        _compile(recorder)
    assert outline(memory.spans, _TRIGGER) == ["compile jitted runtime"]
    assert caplog.messages == [
        "compile jitted for A 64x64 float16 on cuda came after the warm-up: it is in no cache"
    ]


def test_compile_that_fails_after_the_warmup_is_reported_too(
    memory: SpanMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """It cost as much, and its exception leaves unchanged."""
    mark_warmup_done()
    with (
        pytest.raises(ValueError, match="no layout"),
        Recorder(memory.provider).compile_scope(lambda: ("compile gemm", {})),
    ):
        raise ValueError("no layout")
    assert outline(memory.spans, _TRIGGER) == ["compile gemm!* runtime"]
    assert len(caplog.messages) == 1


def test_shapes_are_asked_for_only_when_they_are_logged(memory: SpanMemory) -> None:
    """Reading them costs time that no wanted compile has to spend."""

    def unasked() -> str:
        raise AssertionError("nobody needs them")

    recorder = Recorder(memory.provider)
    _compile(recorder, shapes=unasked)
    mark_warmup_done()
    _compile(recorder, result="disk", shapes=unasked)
    assert len(memory.spans) == 2
