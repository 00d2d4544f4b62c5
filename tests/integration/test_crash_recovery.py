"""Processes that die while they compile: what was running arrives, each span once."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import run_command
from tests.support.programs import Finished, run_program
from tests.support.received import ReceivedSpan
from tests.support.receiver import OTLPReceiver, RefusingEndpoint
from tests.support.require import require_tvm
from tests.support.spans import assert_sound, outline
from tilelang_otel import cli

require_tvm()
pytest.importorskip("fcntl")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")

_KILLS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "segfault": "ctypes.string_at(0)",
    "abort": "os.abort()",
    "os._exit": "os._exit(3)",
}

_PROGRAM = """
    import ctypes, os, signal, sys
    import tilelang_otel
    {provider}
    from tests.support.tvm_modules import empty_module, python_pass
    from tvm.ir import transform
    tilelang_otel.instrument()
    module, ident = empty_module(), python_pass("Id", lambda mod: mod)

    def die(mod):
        {death}
        return mod

    def outer(mod):
        for _ in range(10): ident(mod)
        return python_pass("Killer", die)(mod)

    with transform.PassContext():
        ident(module)
    {between}
    python_pass("Outer", outer)(module)
"""

_TREE = ["PassContext!", "  Outer!", *["    Id"] * 10, "    Killer!"]
"""What has died, once it is recovered."""


def _environment(directory: Path, receiver: OTLPReceiver | None = None) -> dict[str, str]:
    return {
        **({} if receiver is None else receiver.environment()),
        "OTEL_PYTHON_TILELANG_CRASH_RECORD": "on",
        "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY": str(directory),
        "OTEL_SERVICE_NAME": "trainer",
    }


def _die(
    environment: dict[str, str],
    death: str,
    between: str = "tilelang_otel.flush()",
    provider: str = "tilelang_otel.configure()",
) -> Finished:
    return run_program(
        _PROGRAM.format(death=death, between=between, provider=provider), environment
    )


def _recover(environment: dict[str, str], tmp_path: Path) -> list[str]:
    """Run the command, as another service would, and return what it says."""
    own = {**environment, "OTEL_SERVICE_NAME": "recoverer"}
    done = run_command("recover", cwd=tmp_path, environment=own)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def _died(spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
    return [span for span in spans if span.attributes.get("error.type") == "process_died"]


def _names(spans: list[ReceivedSpan]) -> list[str]:
    return sorted(span.name for span in spans)


@pytest.mark.parametrize("death", _KILLS.values(), ids=_KILLS)
def test_process_that_died_in_a_pass_is_recovered_once(death: str, tmp_path: Path) -> None:
    """The passes that were open are errors, those that had finished are as they were."""
    directory = tmp_path / "crash"
    with OTLPReceiver() as receiver:
        environment = _environment(directory, receiver)
        assert _die(environment, death).exit_code != 0
        before = {span.span_id for span in receiver.spans}
        assert len(before) == 2
        [said] = _recover(environment, tmp_path)
        assert said == (
            "tilelang-otel recover: recovered 13 spans of 1 process that has died, "
            f"exported to {receiver.endpoint}"
        )
        [said] = _recover(environment, tmp_path)
        assert said.startswith("tilelang-otel recover: nothing to recover in ")
        spans = receiver.spans
    assert len({span.span_id for span in spans}) == len(spans) == 15
    recovered = [span for span in spans if span.span_id not in before]
    assert outline(recovered) == _TREE
    assert {span.resource.get("service.name") for span in spans} == {"trainer"}
    assert _names(_died(spans)) == ["Killer", "Outer", "PassContext"]
    deepest = next(span for span in spans if span.name == "Killer")
    assert deepest.status_message == "the process died"
    assert deepest.attributes["tvm.pass.incomplete"] is True
    assert deepest.attributes["tvm.pass.end_estimated"] is True
    assert_sound(spans)
    assert os.listdir(directory) == []


def test_trace_and_parent_of_a_compile_that_died_are_the_original_ones(tmp_path: Path) -> None:
    """What others had joined to it before, and what it had joined itself, fits together."""
    between = """
    from opentelemetry import trace
    tracer = trace.get_tracer("service")
    request = tracer.start_span("request")
    context = request.get_span_context()
    print(f"{context.trace_id:032x} {context.span_id:016x}", flush=True)
    from opentelemetry import context as otel_context
    otel_context.attach(trace.set_span_in_context(request))
    def die(mod):
        from tilelang_otel._recording import active_recordings
        own = active_recordings()[0].root.span.get_span_context()
        print(f"{own.trace_id:032x} {own.span_id:016x}", flush=True)
        os._exit(3)
    """
    with OTLPReceiver() as receiver:
        environment = _environment(tmp_path / "crash", receiver)
        done = _die(environment, "pass", between)
        [request, compile_] = [line.split() for line in done.lines]
        _recover(environment, tmp_path)
        root = next(span for span in _died(receiver.spans) if span.name == "PassContext")
    assert [root.trace_id, root.parent_span_id] == request
    assert [root.trace_id, root.span_id] == compile_


def test_spans_of_a_long_compile_that_were_exported_before_keep_their_parents(
    tmp_path: Path,
) -> None:
    """Parts of it had arrived: what comes later has the ids that they refer to, and no twins."""
    with OTLPReceiver() as receiver:
        environment = {
            **_environment(tmp_path / "crash", receiver),
            "OTEL_PYTHON_TILELANG_PART_SPANS": "4",
        }
        _die(environment, "tilelang_otel.flush(); os._exit(3)")
        assert len(receiver.spans) > 6
        _recover(environment, tmp_path)
        spans = receiver.spans
    assert len({span.span_id for span in spans}) == len(spans) == 15
    died = [span for span in spans if span.trace_id == _died(spans)[0].trace_id]
    assert outline(died) == _TREE


def test_finished_compiles_that_were_not_exported_come_back(tmp_path: Path) -> None:
    """They were in a queue, or on their way there."""
    with OTLPReceiver() as receiver:
        environment = {
            **_environment(tmp_path / "crash", receiver),
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
        }
        _die(environment, "os.kill(os.getpid(), signal.SIGKILL)", between="")
        assert receiver.spans == []
        _recover(environment, tmp_path)
        spans = receiver.spans
    assert len({span.span_id for span in spans}) == len(spans) == 15
    [finished] = [span for span in spans if span.name == "PassContext" and span.status == "UNSET"]
    assert outline([s for s in spans if s.trace_id == finished.trace_id]) == ["PassContext", "  Id"]


_OWN_PROVIDER = """
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    provider = TracerProvider(resource=Resource({"service.name": "own"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
"""


@pytest.mark.parametrize("provider", ["tilelang_otel.configure()", _OWN_PROVIDER])
def test_next_start_in_the_directory_recovers_by_itself(provider: str, tmp_path: Path) -> None:
    """A service that is started again tells what it died of; nobody has to do anything."""
    directory = tmp_path / "crash"
    with OTLPReceiver() as receiver:
        environment = _environment(directory, receiver)
        _die(environment, "os._exit(3)", between="", provider=provider)
        seen = len(receiver.spans)
        done = _die(environment, "pass", between="", provider=provider)
        assert (done.exit_code, done.complaints) == (0, [])
        spans = receiver.wait_for(seen + 13 + 2, what="spans of both processes")
    assert len({span.span_id for span in spans}) == len(spans)
    assert _names(_died(spans)) == ["Killer", "Outer", "PassContext"]
    assert Counter(span.name for span in spans)["Killer"] == 2
    assert os.listdir(directory) == []


def test_processes_that_die_in_one_directory_are_recovered_apart(tmp_path: Path) -> None:
    """By whoever comes first, the others find nothing; one that lives is left alone."""
    with OTLPReceiver() as receiver:
        environment = _environment(tmp_path / "crash", receiver)
        # The second would recover the first if it found it there.
        os.mkdir(tmp_path / "crash")
        for number, death in enumerate(("os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)")):
            _die(_environment(tmp_path / str(number), receiver), death)
            [name] = os.listdir(tmp_path / str(number))
            os.rename(tmp_path / str(number) / name, tmp_path / "crash" / name)
        between = """
    import subprocess, sys
    command = [sys.executable, "-m", "tilelang_otel", "recover"]
    def die(mod):
        print(subprocess.run(command, stdout=-1).returncode)
        return mod
        """
        done = _die(environment, "pass", between)
        assert (done.lines, done.complaints) == (["0"], [])
        spans = receiver.wait_for(3 * 15, what="spans of three processes")
    assert Counter(span.name for span in _died(spans)) == {
        "PassContext": 2,
        "Outer": 2,
        "Killer": 2,
    }
    assert len({span.span_id for span in spans}) == len(spans) == 3 * 15
    assert os.listdir(tmp_path / "crash") == []


def test_record_whose_spans_cannot_be_delivered_stays(tmp_path: Path) -> None:
    """It is recovered when the receiver is there again."""
    with OTLPReceiver() as receiver, RefusingEndpoint() as endpoint:
        environment = _environment(tmp_path / "crash", receiver)
        (tmp_path / "crash").mkdir()
        for name in "abc":
            # Apart, or each would recover the one before it.
            _die(_environment(tmp_path / name, receiver), "os._exit(3)")
            [file] = (tmp_path / name).iterdir()
            file.rename(tmp_path / "crash" / file.name)
        done = run_command(
            "recover", cwd=tmp_path, environment={**environment, **endpoint.environment("grpc")}
        )
        assert done.returncode == 1
        assert "3 crash records could not be delivered, and stay" in done.stderr
        # Nor are the others tried in vain, to come twice when the receiver is there at last.
        assert "tilelang-otel: 13 spans could not be delivered to" in done.stderr
        _recover(environment, tmp_path)
        assert len(_died(receiver.spans)) == 9


def test_process_that_ends_as_it_should_leaves_nothing(tmp_path: Path) -> None:
    """Also one that ends by an exception, or asks for its end in the middle of a pass."""
    for number, ending in enumerate(("pass", "raise ValueError('over')", "sys.exit(3)")):
        directory = tmp_path / str(number)
        with OTLPReceiver() as receiver:
            done = _die(_environment(directory, receiver), ending)
            assert len(receiver.spans) == 15
            assert _died(receiver.spans) == []
        assert (done.exit_code == 0) == (number == 0)
        assert os.listdir(directory) == []


def test_forked_workers_have_records_of_their_own(tmp_path: Path) -> None:
    """One that is killed is recovered, its parent goes on."""
    between = """
    tilelang_otel.flush()
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        def die(mod): return mod
    """
    with OTLPReceiver() as receiver:
        environment = _environment(tmp_path / "crash", receiver)
        done = _die(environment, "os.kill(os.getpid(), signal.SIGKILL)", between)
        assert done.exit_code == 0, done.stderr
        _recover(environment, tmp_path)
        spans = receiver.spans
    assert len({span.span_id for span in spans}) == len(spans) == 2 + 13 + 13
    assert _names(_died(spans)) == ["Killer", "Outer", "PassContext"]


def _below_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("", encoding="utf-8")
    return tmp_path / "file" / "below"


def _file(tmp_path: Path) -> Path:
    return _below_a_file(tmp_path).parent


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda tmp_path: tmp_path / "missing", "there is no directory {}: name "),
        (_file, "{} is not a directory: name "),
        (_below_a_file, "{} is not a directory: name "),
    ],
    ids=["missing", "a file", "below a file"],
)
def test_directory_that_is_none_is_told_in_one_line(
    make: Callable[[Path], Path], says: str, tmp_path: Path
) -> None:
    """A typing error is not taken for a crash that never was."""
    path = make(tmp_path)
    done = run_command("recover", "--directory", path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"tilelang-otel recover: {says.format(path)}the one with the crash records by --directory\n"
    )


def test_directory_that_cannot_be_read_is_told_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then nobody can say whether there is something to recover."""

    def refuse(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    # Whoever runs the tests may be allowed everything.
    monkeypatch.setattr(os, "listdir", refuse)
    assert cli.main(["recover", "--directory", "closed"]) == 2
    assert capsys.readouterr().err == (
        "tilelang-otel recover: closed cannot be read (Permission denied): "
        "change that, or name the one with the crash records by --directory\n"
    )


@pytest.mark.parametrize("variables", [{}, {"OTEL_PYTHON_TILELANG_CRASH_DIRECTORY": "records"}])
def test_directory_that_nobody_has_needed_yet_has_nothing_to_recover(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """The first process that compiles makes it."""
    done = run_command("recover", cwd=tmp_path, environment=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tilelang-otel recover: nothing to recover in ")
