"""Programs that end while a thread nobody waits for compiles: what is known of that arrives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.programs import Finished, run_program
from tests.support.received import ReceivedSpan
from tests.support.receiver import OTLPReceiver, RefusingEndpoint, endpoint_environment
from tests.support.spans import assert_sound, outline

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")

_EXITED = "the process exited while this was running"

_PROGRAM = """
    import sys, threading, time
    import tilelang_otel
    from tests.support.fake_tvm import callbacks_for, pass_context, run
    from tests.support.terminated import say
    from tilelang_otel._recorder import Recorder
    provider = tilelang_otel.configure()
    callbacks = callbacks_for(tilelang_otel.OTelPassObserver())
    reached, go_on = threading.Event(), threading.Event()

    def hang():
        reached.set()
        go_on.wait()

    def compile():
        with pass_context(callbacks):
            run(callbacks, "Done")
            run(callbacks, "Open", body=hang)
            run(callbacks, "Later")

    def compile_in_daemon(body=compile):
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        assert reached.wait(60)
        return thread
"""


def _run(
    program: str, environment: dict[str, str] | None = None
) -> tuple[Finished, list[ReceivedSpan]]:
    with OTLPReceiver() as receiver:
        done = run_program(_PROGRAM + program, {**receiver.environment(), **(environment or {})})
        spans = receiver.spans
    assert_sound(spans)
    assert len({span.span_id for span in spans}) == len(spans)
    return done, spans


@pytest.mark.parametrize("ending", ["pass", "sys.exit(3)"])
def test_compile_of_a_daemon_thread_at_exit_is_an_error_down_to_its_pass(ending: str) -> None:
    """What had finished in it is none."""
    done, spans = _run(f"""
    compile_in_daemon()
    {ending}
    """)
    assert (done.exit_code, done.complaints) == (0 if ending == "pass" else 3, [])
    assert outline(spans, "error.type") == [
        "PassContext! process_died",
        "  Done",
        "  Open! process_died",
    ]
    messages = {span.name: span.status_message for span in spans}
    assert messages == {"PassContext": "failed in Open", "Done": "", "Open": _EXITED}


def test_compile_between_passes_at_exit_is_an_error() -> None:
    """It has not come to its end, although no pass runs."""
    done, spans = _run("""
    recorder = Recorder(provider)
    def body():
        with recorder.compile_scope(lambda: ("compile", {})):
            with recorder.work(lambda: ("done", {})):
                pass
            hang()
    compile_in_daemon(body)
    """)
    assert (done.exit_code, done.complaints) == (0, [])
    assert outline(spans) == ["compile!", "  done"]
    assert {span.name: span.status_message for span in spans} == {"compile": _EXITED, "done": ""}


@pytest.mark.parametrize("record", ["off", "on"])
def test_compile_that_ends_during_the_exit_is_exported_once(record: str, tmp_path: Path) -> None:
    """As it was given up; what it does from then on is told of to nobody."""
    done, spans = _run(
        """
    from opentelemetry.sdk.trace import SpanProcessor
    class LetGo(SpanProcessor):
        def on_end(self, span):
            say(f"ended {span.name} {span.status.status_code.name}")
            if span.name == "compile":
                go_on.set()
                thread.join(30)
    provider.add_span_processor(LetGo())
    recorder = Recorder(provider)
    def body():
        with recorder.compile_scope(lambda: ("compile", {})) as scope:
            with recorder.work(lambda: ("work", {})) as work:
                hang()
                work.set_attribute("late", True)
            scope.set_attribute("late", True)
        compile()
        say("the thread is over")
    thread = compile_in_daemon(body)
    """,
        {
            "OTEL_PYTHON_TILELANG_CRASH_RECORD": record,
            "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY": str(tmp_path),
        },
    )
    assert (done.exit_code, done.complaints) == (0, [])
    assert "the thread is over" in done.lines
    assert done.lines.count("ended compile ERROR") == done.lines.count("ended work ERROR") == 1
    given_up = [span for span in spans if span.name in ("compile", "work")]
    assert outline(given_up, "error.type", "late") == [
        "compile! process_died",
        "  work! process_died",
    ]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "body",
    [
        "enter()",
        "thread = threading.Thread(target=enter); thread.start(); thread.join()",
        "compile_in_daemon(lambda: (enter(), hang()))",
    ],
    ids=["main thread", "thread that has ended", "idle thread"],
)
def test_context_that_nobody_has_left_is_no_error(body: str) -> None:
    """Nothing runs in it; what ran is exported."""
    done, spans = _run(f"""
    left_open = []
    def enter():
        context = pass_context(callbacks)
        left_open.append(context)
        context.__enter__()
        run(callbacks, "Done")
    {body}
    """)
    assert (done.exit_code, done.complaints) == (0, [])
    assert outline(spans) == ["PassContext", "  Done"]


def test_work_of_a_thread_that_is_over_did_not_finish() -> None:
    """It does not run any more, so the exit is not what has ended it."""
    done, spans = _run("""
    recorder = Recorder(provider)
    left_open = []
    def enter():
        scopes = [recorder.compile_scope(lambda: ("compile", {}))]
        scopes[0].__enter__()
        scopes.append(recorder.work(lambda: ("work", {})))
        scopes[1].__enter__()
        left_open.extend(scopes)
    enter()
    """)
    assert (done.exit_code, done.complaints) == (0, [])
    assert {span.name: span.attributes.get("error.type") for span in spans} == {
        "compile": None,
        "work": "_OTHER",
    }


def test_application_that_shuts_the_provider_down_gives_no_compile_up() -> None:
    """It may have another provider for what comes."""
    done, spans = _run(
        """
    compile_in_daemon()
    provider.shutdown()
    """,
        {"OTEL_PYTHON_TILELANG_EXIT_TIMEOUT": "0.5"},
    )
    assert (done.exit_code, done.complaints) == (0, [])
    assert spans == []


def test_dead_receiver_delays_the_exit_by_no_more_than_the_timeout() -> None:
    """Giving compiles up takes none of that, and no more."""
    with RefusingEndpoint() as endpoint:
        done = run_program(
            _PROGRAM
            + """
    compile_in_daemon()
    print(time.monotonic())
            """,
            {
                **endpoint_environment("grpc", endpoint.endpoint),
                "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT": "2",
            },
        )
    assert done.exit_code == 0
    assert done.ended_s - float(done.lines[0]) < 5
    assert "3 spans could not be delivered" in done.stderr
