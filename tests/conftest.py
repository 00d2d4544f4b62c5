"""What holds around every test: no bug of ours is swallowed, and nothing is left behind."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from tests.support.spans import SpanMemory
from tilelang_otel import _activity, _config, _metrics, _warmup
from tilelang_otel._guard import guard
from tilelang_otel.events import _entered

_COMPLAINING_LOGGERS = (
    "opentelemetry.sdk.trace",
    "opentelemetry.context",
    "opentelemetry.attributes",
)

_PATCHED = (
    ("tvm.ir.transform", "PassContext", "__init__"),
    ("tvm.ir.transform", "PassContext", "override_instruments"),
    ("tvm.ir.transform", "PassContext", "__exit__"),
    ("tvm.ir.transform", "Pass", "__call__"),
    ("tvm.driver.build_module", None, "compile"),
    ("tvm.driver", None, "compile"),
    ("tvm", None, "compile"),
    ("tvm.relax.vm_build", None, "build"),
    ("tvm.relax.vm_build", None, "_vmcodegen"),
    ("tvm.relax", None, "build"),
    ("tvm.tirx.build", None, "codegen_build"),
    ("tvm.tirx", None, "get_tir_pipeline"),
    ("tvm.tirx", None, "get_default_tir_pipeline"),
)


for _name, _handler in (
    ("SIGINT", signal.default_int_handler),
    ("SIGQUIT", signal.SIG_DFL),
    ("SIGHUP", signal.SIG_DFL),
):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        # As for a background job of a shell, whose children would not die of it either.
        signal.signal(_number, _handler)


# Servers that `make e2e` has built stay where they are.
os.environ.setdefault("TILELANG_OTEL_CACHE", str(_config.cache_directory()))


class _Complaints(logging.Handler):
    """What OpenTelemetry logged: a span ended twice, a value it had to convert, …"""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the machine's OpenTelemetry variables out; warn, and know names, anew in each test."""
    for name in list(os.environ):
        if name.startswith("OTEL_") or name in ("TRACEPARENT", "TRACESTATE", "BAGGAGE"):
            monkeypatch.delenv(name)
    _config._warned.clear()
    for names in _metrics._limits.values():
        monkeypatch.setattr(names, "_known", dict[str, str]())
    monkeypatch.setattr(_warmup._State, "is_done", False)
    monkeypatch.setattr(_warmup._State, "known", set[tuple[str, str]]())


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep away from the user's own cache, and from what dead processes have left there."""
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    return path / "tilelang-otel"


@pytest.fixture
def swallowing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swallow our own errors, as in a user's program: for tests of that."""
    monkeypatch.setattr(guard, "reraise", False)
    monkeypatch.setattr(guard, "_reported", set())


@pytest.fixture
def opentelemetry_complaints() -> Iterator[list[str]]:
    """Collect what OpenTelemetry logs about how its API is used."""
    handler = _Complaints()
    loggers = [logging.getLogger(name) for name in _COMPLAINING_LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.messages
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.fixture
def memory() -> SpanMemory:
    """Keep finished spans, of a provider that nobody else uses."""
    return SpanMemory()


@pytest.fixture(autouse=True)
def nothing_left_behind(
    clean_environment: None, opentelemetry_complaints: list[str]
) -> Iterator[None]:
    """Let no bug be swallowed; afterwards nothing of ours is current, patched or running."""
    before = set(threading.enumerate())
    reraised, guard.reraise = guard.reraise, True
    try:
        yield
    finally:
        guard.reraise = reraised
        recordings = list(_activity.thread.recordings)
        entries = list(_entered.thread.entries)
        _activity.thread.recordings.clear()
        _entered.thread.entries.clear()
        running = _activity.running()
        for stack in _activity._State.stacks.values():
            stack.clear()
    assert not trace.get_current_span().get_span_context().is_valid, "a span is still current"
    assert recordings == [], "a recording is still running"
    assert running == [], "a recording counts as running"
    assert entries == [], "a pass context is still entered"
    assert opentelemetry_complaints == []
    assert _still_patched() == []
    _wait_for_our_threads(before)


def _still_patched() -> list[str]:
    """Name what is wrapped in TVM, if it is loaded, and instruments left in its default context."""
    found: list[str] = []
    for module_name, class_name, name in _PATCHED:
        module: Any = sys.modules.get(module_name)
        owner = module if class_name is None else getattr(module, class_name, None)
        if owner is not None and _is_ours(vars(owner).get(name)):
            found.append(f"{module_name}.{class_name or ''}.{name}")
    instrumentor: Any = sys.modules.get("tilelang_otel.instrumentor")
    for layer in ("_tvm", "_tilelang"):
        if instrumentor is not None and getattr(instrumentor, layer)._users:
            found.append(f"the instrumentor's {layer}")
    transform: Any = sys.modules.get("tvm.ir.transform")
    if transform is not None and len(transform.PassContext.current().instruments):
        found.append("instruments of the default context")
    return found


def _is_ours(function: Any) -> bool:
    if hasattr(function, "_self_wrapper"):
        return True
    code = getattr(function, "__code__", None)
    return code is not None and f"{os.sep}tilelang_otel{os.sep}" in code.co_filename


def _wait_for_our_threads(before: set[threading.Thread]) -> None:
    deadline_s = time.monotonic() + 5
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("tilelang-otel"):
            thread.join(max(0, deadline_s - time.monotonic()))
            assert not thread.is_alive(), f"{thread.name} still runs 5 s after the test"
