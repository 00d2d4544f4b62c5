"""Passes of real TVM that hang, reported while they do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tilelang_otel
from tests.support.metrics import MetricMemory, Point
from tests.support.programs import run_program
from tests.support.require import require_tvm
from tests.support.spans import SpanMemory

require_tvm()

from tvm import relax  # noqa: E402

from tests.support.tvm_modules import empty_module, python_pass  # noqa: E402
from tilelang_otel import _watchdog  # noqa: E402
from tilelang_otel._recording import active_recordings  # noqa: E402

_LIMIT_S = 0.05


class _Reports(logging.Handler):
    """What is logged, and what runs at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.running: list[str] = []
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.running += [r.current.name for r in active_recordings() if r.current is not None]
        self.lines.append(record.getMessage())
        self.came.set()


@pytest.fixture
def reports() -> Iterator[_Reports]:
    """What the watchdog says."""
    handler = _Reports()
    logger = logging.getLogger("tilelang_otel._watchdog")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
def metrics() -> MetricMemory:
    """What is counted."""
    return MetricMemory()


@pytest.fixture(autouse=True)
def traced(memory: SpanMemory, metrics: MetricMemory) -> Iterator[None]:
    """Trace TVM with a limit."""
    tilelang_otel.instrument(
        memory.provider, meter_provider=metrics.provider, stall_limit_s=_LIMIT_S
    )
    yield
    tilelang_otel.uninstrument()
    _watchdog.stop()


def test_python_pass_that_hangs_is_reported_counted_and_on_the_compiles_span(
    memory: SpanMemory, metrics: MetricMemory, reports: _Reports
) -> None:
    """It goes on only once the log says that it hangs."""

    def hang(mod: Any) -> Any:
        assert reports.came.wait(30), "nothing was reported in 30 s"
        return mod

    python_pass("Quick", lambda mod: mod)(empty_module())
    python_pass("Hang", hang)(empty_module())
    assert reports.lines[0].startswith("Hang has been running for 0.0")
    assert reports.lines[0].endswith(" s in PassContext, thread MainThread")
    quick, hung = (span for span in memory.spans if span.parent is None)
    assert quick.events == ()
    event = hung.events[0]
    assert event.name == "tilelang.stall"
    assert dict(event.attributes or {}).keys() == {
        "tvm.pass.name",
        "tilelang.stall.duration",
        "thread.name",
    }
    assert hung.start_time is not None
    assert event.timestamp - hung.start_time >= _LIMIT_S * 1e9
    [point] = metrics.points("tilelang.compile.stalls")
    assert (point.attributes, point.value) == ({"tvm.pass.name": "Hang"}, 1)
    assert isinstance(point, Point)


def test_pass_of_tvms_own_is_reported_while_it_runs(reports: _Reports) -> None:
    """The main thread is in C++ all the while."""
    tensor: Any = getattr(relax, "TensorStructInfo", None) or relax.TensorType
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor([4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(x, x))
            for _ in range(8000):
                y = builder.emit(y)
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    relax.transform.CanonicalizeBindings()(builder.get())
    assert "CanonicalizeRelaxBindings" in reports.running


def test_forked_child_watches_its_own_compiles_and_not_its_parents() -> None:
    """The parent's thread is not there, and what it watched is the parent's."""
    done = run_program(
        """
        import logging, os, threading
        import tilelang_otel
        from tests.support.tvm_modules import empty_module, python_pass
        from tvm.ir import transform

        class Lines(logging.Handler):
            def __init__(self):
                super().__init__()
                self.came = threading.Event()
            def emit(self, record):
                os.write(1, f"{os.getpid()} {record.getMessage().split()[0]}\\n".encode())
                self.came.set()

        def hang(mod):
            assert lines.came.wait(30)
            return mod

        def fork(mod):
            global lines
            hang(mod)
            child = os.fork()
            if child == 0:
                logger.removeHandler(lines)
                lines = Lines()
                logger.addHandler(lines)
                with transform.PassContext():
                    python_pass("InChild", hang)(empty_module())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            print("parent", os.getpid(), "child", child, flush=True)
            return mod

        logger = logging.getLogger("tilelang_otel._watchdog")
        lines = Lines()
        logger.addHandler(lines)
        from opentelemetry.sdk.trace import TracerProvider
        tilelang_otel.instrument(TracerProvider())
        python_pass("InParent", fork)(empty_module())
        """,
        {"OTEL_PYTHON_TILELANG_STALL_LIMIT": "0.05"},
    )
    assert done.exit_code == 0, done.stderr
    _, parent, _, child = next(line for line in done.lines if line.startswith("parent")).split()
    said = {tuple(line.split()) for line in done.lines if not line.startswith("parent")}
    assert said == {(parent, "InParent"), (child, "InChild")}
