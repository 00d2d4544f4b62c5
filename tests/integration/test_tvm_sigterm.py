"""SIGTERM during compiles of real TVM: what arrives at a real receiver, and the exit status."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import run_command
from tests.support.metrics import points_of
from tests.support.received import ReceivedSpan
from tests.support.receiver import PROTOCOLS, OTLPReceiver, Protocol, RefusingEndpoint
from tests.support.require import require_tvm
from tests.support.signalled import SignalledProgram
from tests.support.spans import SpanTree, trees

require_tvm()
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

_SETUP = """
import os, signal, sys, threading, time
import tilelang_otel
from tests.support.terminated import *
from tests.support.tvm_modules import empty_module, python_pass
from tvm.ir import transform
tilelang_otel.configure()
tilelang_otel.instrument()
def passes(body):
    def slow(mod):
        body()
        return mod
    quick = [python_pass(name, lambda mod: mod) for name in ("A", "B")]
    return transform.Sequential([*quick, python_pass("Slow", slow), python_pass("C", lambda m: m)])
"""

_ON = {"OTEL_PYTHON_TILELANG_FLUSH_ON_SIGTERM": "true"}

_PROMPTLY_S = 10.0


def _died(
    name: str, *children: SpanTree, is_deepest: bool = False, is_root: bool = False
) -> SpanTree:
    signal_ = {"tilelang.process.signal": "SIGTERM"} if is_deepest or is_root else {}
    message = "the process died of SIGTERM" if is_deepest else "failed in Slow"
    attributes = {"error.type": "process_died", **signal_}
    return SpanTree(name, attributes, children, "ERROR", message)


_DIED = [
    _died(
        "PassContext",
        _died("sequential", SpanTree("A"), SpanTree("B"), _died("Slow", is_deepest=True)),
        is_root=True,
    )
]


def _trees(spans: Sequence[ReceivedSpan]) -> list[SpanTree]:
    assert len({span.span_id for span in spans}) == len(spans), "a span arrived twice"
    return trees(spans, "error.type", "tilelang.process.signal")


def _counts(receiver: OTLPReceiver) -> dict[tuple[Any, Any], int | None]:
    """Return how many passes there were, by their names and what ended them."""
    return {
        (point.attributes["tvm.pass.name"], point.attributes.get("error.type")): point.count
        for request in receiver.requests
        if request.signal == "metrics"
        for point in points_of(request.message)
        if point.metric == "tvm.pass.duration"
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("hang", ["hang_in_c", "hang_in_python"])
def test_sigterm_during_a_pass_exports_the_whole_tree(hang: str, protocol: Protocol) -> None:
    """What had finished as it was, what was open as errors; the process ends as ever."""
    with (
        OTLPReceiver(protocol) as receiver,
        SignalledProgram(
            _SETUP + f"passes({hang})(empty_module())", {**receiver.environment(), **_ON}
        ) as program,
    ):
        program.wait_for("ready")
        program.terminate()
        status, seconds = program.end()
        assert (status, program.output) == (-signal.SIGTERM, "ready\n")
        assert _trees(receiver.spans) == _DIED
    assert seconds < _PROMPTLY_S


def test_sigterm_right_after_a_compile_exports_all_of_its_spans_and_metrics() -> None:
    """Spans are made in the background, and metrics sent once a minute: neither is lost."""
    source = """
transform.Sequential([python_pass("Quick", lambda mod: mod)] * 3000)(empty_module())
hang_in_c()
"""
    with OTLPReceiver() as receiver:
        environment = {**receiver.environment(), **_ON, "OTEL_METRICS_EXPORTER": "otlp"}
        with SignalledProgram(_SETUP + source, environment) as program:
            program.wait_for("ready")
            program.terminate()
            assert program.end()[0] == -signal.SIGTERM
        names = Counter(span.name for span in receiver.spans)
        counts = _counts(receiver)
    assert names == {"PassContext": 1, "sequential": 1, "Quick": 3000}
    assert counts == {("sequential", None): 1, ("Quick", None): 3000}


def test_sigterm_during_a_pass_counts_it_and_what_had_finished() -> None:
    """What the process died in is in the metrics, with its error."""
    with OTLPReceiver() as receiver:
        environment = {**receiver.environment(), **_ON, "OTEL_METRICS_EXPORTER": "otlp"}
        source = "passes(hang_in_python)(empty_module())"
        with SignalledProgram(_SETUP + source, environment) as program:
            program.wait_for("ready")
            program.terminate()
            assert program.end()[0] == -signal.SIGTERM
        assert _trees(receiver.spans) == _DIED
        assert _counts(receiver) == {
            ("A", None): 1,
            ("B", None): 1,
            ("Slow", "process_died"): 1,
            ("sequential", "process_died"): 1,
        }


def test_sigterm_without_the_option_does_what_it_did() -> None:
    """Nothing is exported, and nothing of ours is in between."""
    with (
        OTLPReceiver() as receiver,
        SignalledProgram(
            _SETUP + "passes(hang_in_c)(empty_module())", receiver.environment()
        ) as program,
    ):
        program.wait_for("ready")
        program.terminate()
        assert program.end()[0] == -signal.SIGTERM
        assert receiver.spans == []


def test_sigterm_during_a_long_pass_of_tvms_own_ends_it_promptly() -> None:
    """The main thread would not be back in Python for most of a minute."""
    source = """
from tvm import relax
from tilelang_otel._recording import active_recordings

def tell():
    while not any(r.current.name == "CanonicalizeRelaxBindings" for r in active_recordings()):
        time.sleep(0.001)
    say("ready")

tensor = getattr(relax, "TensorStructInfo", None) or relax.TensorType
builder = relax.BlockBuilder()
x = relax.Var("x", tensor([4], "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        y = builder.emit(relax.op.add(x, x))
        for _ in range(64_000):
            y = builder.emit(y)
        out = builder.emit_output(y)
    builder.emit_func_output(out)
module = builder.get()
threading.Thread(target=tell, daemon=True).start()
relax.transform.CanonicalizeBindings()(module)
print("it was too quick")
"""
    with (
        OTLPReceiver() as receiver,
        SignalledProgram(_SETUP + source, {**receiver.environment(), **_ON}) as program,
    ):
        program.wait_for("ready")
        program.terminate()
        status, seconds = program.end()
        assert (status, program.output) == (-signal.SIGTERM, "ready\n")
        failed = {s.name: s.status_message for s in receiver.spans if s.status == "ERROR"}
    assert failed["CanonicalizeRelaxBindings"] == "the process died of SIGTERM"
    assert failed["PassContext"] == "failed in CanonicalizeRelaxBindings"
    assert seconds < _PROMPTLY_S


def _after(handler: str) -> str:
    return f"import signal, sys\nsignal.signal(signal.SIGTERM, {handler})\n{_SETUP}"


def _outcome(source: str, environment: dict[str, str]) -> tuple[int, str, list[SpanTree]]:
    with (
        OTLPReceiver() as receiver,
        SignalledProgram(source, {**receiver.environment(), **environment}) as program,
    ):
        program.wait_for("ready")
        program.terminate()
        status = program.end()[0]
        return status, program.output.splitlines()[-1], _trees(receiver.spans)


@pytest.mark.parametrize(
    "handler",
    ["lambda *_: sys.exit(3)", "signal.default_int_handler"],
    ids=["sys.exit", "as Ctrl-C"],
)
def test_handler_that_raises_in_a_pass_ends_the_program_as_without_the_option(
    handler: str,
) -> None:
    """Whatever TVM makes of that; every span arrives once."""
    source = _after(handler) + "passes(hang_in_python)(empty_module())"
    with_option = _outcome(source, _ON)
    assert with_option == _outcome(source, {})
    [root] = with_option[2]
    assert [child.name for child in root.children[0].children] == ["A", "B", "Slow"]


def test_ignored_sigterm_exports_what_has_finished_and_the_rest_later() -> None:
    """Below the same parents, each once."""
    source = """
def body():
    print("ready")
    sys.stdin.readline()
passes(body)(empty_module())
"""
    with (
        OTLPReceiver() as receiver,
        SignalledProgram(
            _after("signal.SIG_IGN") + source, {**receiver.environment(), **_ON}
        ) as program,
    ):
        program.wait_for("ready")
        program.terminate()
        early = receiver.wait_for(2)
        program.write("go on\n")
        assert program.end()[0] == 0
        assert [span.name for span in early] == ["A", "B"]
        whole = tuple(SpanTree(name) for name in ("A", "B", "Slow", "C"))
        assert _trees(receiver.spans) == [
            SpanTree("PassContext", {}, (SpanTree("sequential", {}, whole),))
        ]


@pytest.mark.parametrize("hang", ["hang_in_c", "hang_in_python"])
def test_receiver_that_is_down_keeps_the_process_no_longer_than_the_timeout(hang: str) -> None:
    """And nothing is said: the program is over."""
    with RefusingEndpoint() as endpoint:
        environment = {
            **endpoint.environment("grpc"),
            **_ON,
            "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT": "1",
        }
        source = _SETUP + f"passes({hang})(empty_module())"
        with SignalledProgram(source, environment) as program:
            program.wait_for("ready")
            program.terminate()
            status, seconds = program.end()
    assert (status, program.output) == (-signal.SIGTERM, "ready\n")
    assert seconds < _PROMPTLY_S


def test_crash_record_has_nothing_left_after_the_export(tmp_path: Path) -> None:
    """What SIGTERM has exported is not recovered a second time."""
    crash = {
        "OTEL_PYTHON_TILELANG_CRASH_RECORD": "on",
        "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY": str(tmp_path / "crash"),
    }
    with OTLPReceiver() as receiver:
        environment = {**receiver.environment(), **crash}
        source = _SETUP + "passes(hang_in_c)(empty_module())"
        with SignalledProgram(source, {**environment, **_ON}) as program:
            program.wait_for("ready")
            program.terminate()
            assert program.end()[0] == -signal.SIGTERM
        done = run_command("recover", cwd=tmp_path, environment=environment)
        assert done.returncode == 0, done.stderr
        assert _trees(receiver.spans) == _DIED
