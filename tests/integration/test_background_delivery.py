"""Spans made in the background arrive whole and once: bursts, exits, forks, dead receivers."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.support.programs import Finished, run_program
from tests.support.receiver import (
    PROTOCOLS,
    OTLPReceiver,
    Protocol,
    RefusingEndpoint,
    endpoint_environment,
)
from tests.support.spans import assert_sound, outline

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

_DEFAULT_QUEUE = {"OTEL_BSP_MAX_QUEUE_SIZE": "2048"}

_COMPILE = """
    import os, sys, threading
    import tilelang_otel
    from tests.support.fake_tvm import callbacks_for, pass_context, run
    provider = tilelang_otel.configure()
    callbacks = callbacks_for(tilelang_otel.OTelPassObserver())

    def compile(passes, name="A"):
        with pass_context(callbacks):
            for _ in range(passes):
                run(callbacks, name)
"""


def _run(receiver: OTLPReceiver, program: str, **environment: str) -> Finished:
    return run_program(_COMPILE + program, {**receiver.environment(), **environment}, timeout_s=100)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("program", "traces"),
    [("for _ in range(500): compile(99)", 500), ("compile(49_999)", 1)],
    ids=["many compiles", "one compile"],
)
def test_burst_of_50000_spans_arrives_whole_through_the_default_queue(
    program: str, traces: int, protocol: Protocol
) -> None:
    """The thread that makes spans waits for the exporter, and exit waits for the thread."""
    with OTLPReceiver(protocol) as receiver:
        done = _run(receiver, f"\n    {program}\n", **_DEFAULT_QUEUE)
        assert (done.exit_code, done.complaints) == (0, [])
        spans = receiver.spans
    assert len(spans) == 50_000
    assert len({span.span_id for span in spans}) == 50_000
    assert len({span.trace_id for span in spans}) == traces


@pytest.mark.parametrize(
    "flush",
    ["tilelang_otel.flush()", "provider.force_flush()", "provider.shutdown()"],
)
def test_whoever_waits_for_spans_gets_all_that_are_finished(flush: str) -> None:
    """Also those that nobody had made yet; what comes afterwards is lost to no one."""
    with OTLPReceiver() as receiver:
        done = _run(
            receiver,
            f"""
    for _ in range(20): compile(99)
    {flush}
    print("flushed", flush=True)
    sys.stdin.readline()
    os._exit(0)
            """,
        )
        assert (done.lines, done.complaints) == (["flushed"], [])
        spans = receiver.spans
    assert len({span.span_id for span in spans}) == len(spans) == 2000


@pytest.mark.parametrize("ending", ["pass", "sys.exit(3)", "raise ValueError('over')"])
def test_exit_right_after_a_compile_loses_nothing(ending: str) -> None:
    """However the program ends, unless it asks for no exit handlers."""
    with OTLPReceiver() as receiver:
        _run(receiver, f"\n    compile(99)\n    {ending}\n")
        spans = receiver.spans
    assert Counter(span.name for span in spans) == {"A": 99, "PassContext": 1}
    assert_sound(spans)


def test_dead_receiver_delays_the_exit_by_no_more_than_the_timeout() -> None:
    """The thread that waits for it and the exporter have one timeout, not one each."""
    with RefusingEndpoint() as endpoint:
        done = run_program(
            _COMPILE
            + """
    import time
    for _ in range(60): compile(99)
    print(time.monotonic())
            """,
            {
                **endpoint_environment("grpc", endpoint.endpoint),
                **_DEFAULT_QUEUE,
                "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT": "2",
            },
        )
    assert done.exit_code == 0
    assert done.ended_s - float(done.lines[0]) < 5
    assert len(done.complaints) <= 2, done.stderr
    assert "could not be delivered" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("owner", ["ours", "application's"])
def test_forked_workers_that_leave_by_os_exit_lose_nothing_finished(owner: str) -> None:
    """Each root is flushed in a child; none of the parent's spans comes from there."""
    own = """
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    callbacks = callbacks_for(tilelang_otel.OTelPassObserver(provider))
    """
    with OTLPReceiver() as receiver:
        done = _run(
            receiver,
            (own if owner != "ours" else "")
            + """
    compile(50, "Parent")
    children = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            compile(50, f"Child {number}")
            compile(50, f"Child {number}")
            os._exit(0)
        children.append(pid)
    for pid in children: os.waitpid(pid, 0)
    compile(50, "Parent")
            """,
        )
        assert done.exit_code == 0, done.stderr
        names = Counter(span.name for span in receiver.spans)
        unique = {span.span_id for span in receiver.spans}
    assert names == {"Parent": 100, **{f"Child {n}": 100 for n in range(3)}, "PassContext": 8}
    assert len(unique) == sum(names.values())


def test_compile_inside_a_span_that_goes_on_is_flushed_in_a_forked_child() -> None:
    """A worker that is killed in the middle of its task has told of what it compiled."""
    with OTLPReceiver() as receiver:
        done = _run(
            receiver,
            """
    from opentelemetry import trace
    pid = os.fork()
    if pid == 0:
        with trace.get_tracer("worker").start_as_current_span("task"):
            compile(5)
            os._exit(0)
    os.waitpid(pid, 0)
            """,
        )
        assert done.exit_code == 0, done.stderr
        assert outline(receiver.spans) == ["PassContext", *["  A"] * 5]


def test_threads_that_compile_while_the_process_exits_do_no_harm() -> None:
    """Daemon threads go on after the exit handlers: what was finished by then arrives."""
    with OTLPReceiver() as receiver:
        done = _run(
            receiver,
            """
    started = threading.Barrier(4)

    def forever():
        compile(3)
        started.wait(30)
        while True: compile(3)

    for _ in range(3): threading.Thread(target=forever, daemon=True).start()
    started.wait(30)
            """,
        )
        assert done.exit_code == 0, done.stderr
        assert "Traceback" not in done.stderr
        roots = [span for span in receiver.spans if span.name == "PassContext"]
    assert len(roots) >= 3


def test_application_provider_is_served_inline_unless_asked_otherwise() -> None:
    """Its shutdown could come before a thread of ours; who wants the thread may have it."""
    program = """
    import threading
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    class Who(SpanProcessor):
        names = set()
        def on_end(self, span):
            self.names.add(threading.current_thread().name)

    provider = TracerProvider()
    provider.add_span_processor(Who())
    callbacks = callbacks_for(tilelang_otel.OTelPassObserver(provider))
    compile(20)
    import tilelang_otel._background
    assert tilelang_otel._background.drain(20)
    print(*Who.names)
    """
    with OTLPReceiver() as receiver:
        assert _run(receiver, program).lines == ["MainThread"]
        switched = {"OTEL_PYTHON_TILELANG_BACKGROUND": "true"}
        assert _run(receiver, program, **switched).lines == ["tilelang-otel-spans"]


def test_application_provider_in_the_background_still_gets_its_spans_at_exit() -> None:
    """Our exit handler runs before the provider's own, which was registered earlier."""
    with OTLPReceiver() as receiver:
        done = _run(
            receiver,
            """
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    callbacks = callbacks_for(tilelang_otel.OTelPassObserver(provider, background=True))
    for _ in range(40): compile(99)
            """,
        )
        assert (done.exit_code, done.complaints) == (0, [])
        assert len({span.span_id for span in receiver.spans}) == 4000


def test_ours_can_be_served_inline() -> None:
    """The switch works both ways: everything is with the exporter when the compile returns."""
    with OTLPReceiver() as receiver:
        done = _run(
            receiver,
            """
    compile(99)
    import tilelang_otel._background
    print(tilelang_otel._background.progress())
            """,
            OTEL_PYTHON_TILELANG_BACKGROUND="false",
        )
        assert done.lines == ["0"]
        assert len(receiver.spans) == 100


def test_hundreds_of_compiles_in_one_request_can_be_one_span_each() -> None:
    """A trace of tens of thousands of spans freezes a backend; the policy keeps it small."""
    with OTLPReceiver() as receiver:
        done = _run(
            receiver,
            """
    from opentelemetry import trace
    with trace.get_tracer("service").start_as_current_span("request"):
        for _ in range(300): compile(80)
            """,
            OTEL_PYTHON_TILELANG_EMIT="slow",
        )
        assert done.exit_code == 0, done.stderr
        spans = receiver.spans
    assert Counter(span.name for span in spans) == {"request": 1, "PassContext": 300}
    assert {s.attributes.get("tilelang.folded.passes") for s in spans} == {None, 80}
    assert len({span.trace_id for span in spans}) == 1
