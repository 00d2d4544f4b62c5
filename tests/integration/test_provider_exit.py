"""How a program with ``configure()`` exits: nothing lost, within a bound, in children too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.exporting import EXIT_TIMEOUT, SLACK_S, SPANS
from tests.support.programs import run_program
from tests.support.receiver import (
    PROTOCOLS,
    Answers,
    OTLPReceiver,
    Protocol,
    RefusingEndpoint,
    SilentEndpoint,
)

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


@pytest.mark.parametrize("kind", ["refused", "silent", "never answers"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_exit_with_a_dead_receiver_takes_no_longer_than_the_timeout(
    protocol: Protocol, kind: str
) -> None:
    """Exit is delayed by the timeout at most, keeps its code, and costs one line."""
    endpoint = (
        RefusingEndpoint()
        if kind == "refused"
        else SilentEndpoint()
        if kind == "silent"
        else OTLPReceiver(protocol, Answers(delay_s=60))
    )
    with endpoint:
        variables = (
            endpoint.environment()
            if isinstance(endpoint, OTLPReceiver)
            else endpoint.environment(protocol)
        )
        done = run_program(SPANS, variables | {EXIT_TIMEOUT: "1"}, ("3000",))
    assert done.exit_code == 3
    assert done.ended_s - float(done.lines[0]) < 1 + SLACK_S
    [line] = done.complaints
    assert "3000 spans could not be delivered to http://127.0.0.1:" in line
    assert ("connection refused" in line) == (kind == "refused")


def test_exit_timeout_is_five_seconds_by_default() -> None:
    """Who sets nothing waits 5 s for a receiver that accepts and says nothing."""
    with SilentEndpoint() as endpoint:
        done = run_program(SPANS, endpoint.environment("grpc"), ("1",))
    delay_s = done.ended_s - float(done.lines[0])
    assert 4 < delay_s < 5 + SLACK_S


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_exit_with_a_slow_receiver_waits_as_long_as_it_accepts(protocol: Protocol) -> None:
    """A receiver that answers slowly, but answers, gets everything."""
    batches = {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10"}
    with OTLPReceiver(protocol, Answers(delay_s=0.4)) as receiver:
        done = run_program(SPANS, receiver.environment() | batches | {EXIT_TIMEOUT: "1"}, ("60",))
        assert (done.exit_code, done.stderr) == (3, "")
        assert len(receiver.wait_for(60)) == 60


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_exit_retries_a_receiver_that_is_not_ready(protocol: Protocol) -> None:
    """A receiver that says "unavailable" once gets its spans a second later."""
    with OTLPReceiver(protocol, Answers(failures=1)) as receiver:
        done = run_program(SPANS, receiver.environment(), ("2",))
        assert (done.exit_code, done.stderr) == (3, "")
        receiver.wait_for(2)


def test_exit_with_one_dead_exporter_still_serves_the_other(tmp_path: Path) -> None:
    """Exporters do not wait for each other: a dead collector costs the file nothing."""
    file = tmp_path / "trace.jsonl"
    with SilentEndpoint() as endpoint:
        variables = endpoint.environment("grpc") | {
            "OTEL_TRACES_EXPORTER": "otlp,otlp_jsonl",
            "OTEL_PYTHON_TILELANG_FILE": str(file),
            EXIT_TIMEOUT: "1",
        }
        done = run_program(SPANS, variables, ("20",))
    assert done.exit_code == 3
    assert len(done.complaints) == 1
    assert file.read_text().count('"name":"span ') == 20


@pytest.mark.parametrize("ending", ["raise ValueError('mine')", "raise KeyboardInterrupt"])
def test_exit_by_an_exception_exports_and_shows_only_that(ending: str) -> None:
    """A program that fails is traced, and its traceback is its own."""
    source = f"""
        import tilelang_otel
        from opentelemetry import trace
        tilelang_otel.configure()
        trace.get_tracer("program").start_span("span").end()
        {ending}
    """
    plain = run_program(ending)
    with OTLPReceiver() as receiver:
        done = run_program(source, receiver.environment())
        receiver.wait_for(1)
    assert done.exit_code == plain.exit_code
    assert done.complaints[-1] == plain.complaints[-1]
    assert done.stderr.count("Traceback") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_forked_children_export_their_own_spans_once(protocol: Protocol) -> None:
    """Children that leave without notice are flushed at each root; the queue is not theirs."""
    source = """
        import multiprocessing, os, sys
        import tilelang_otel
        from opentelemetry import trace

        tilelang_otel.configure()
        tracer = trace.get_tracer("program")

        def work(number):
            with tracer.start_as_current_span(f"root {number}"):
                tracer.start_span(f"child {number}").end()

        work("parent")
        assert tilelang_otel.flush()
        with tracer.start_as_current_span("queued at the fork"):
            tracer.start_span("ended before the fork").end()
            child = os.fork()
            if child == 0:
                work("forked")
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(work, ["pool 1", "pool 2"])
    """
    with OTLPReceiver(protocol) as receiver:
        environment = receiver.environment() | {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
        done = run_program(source, environment)
        assert done.exit_code == 0, done.stderr
        names = sorted(span.name for span in receiver.wait_for(10))
    roots = ("forked", "parent", "pool 1", "pool 2")
    expected = [f"{kind} {root}" for kind in ("child", "root") for root in roots]
    assert names == sorted([*expected, "queued at the fork", "ended before the fork"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_waits_for_a_dead_receiver_once() -> None:
    """A worker's compiles are not slowed down again and again by a dead collector."""
    source = """
        import os, sys, time
        import tilelang_otel
        from opentelemetry import trace

        tilelang_otel.configure()
        if os.fork() == 0:
            start = time.monotonic()
            for _ in range(20):
                trace.get_tracer("program").start_span("span").end()
            print(time.monotonic() - start, flush=True)
            os._exit(0)
        os.wait()
    """
    with SilentEndpoint() as endpoint:
        done = run_program(source, endpoint.environment("http/protobuf") | {EXIT_TIMEOUT: "0.5"})
    assert float(done.lines[0]) < 0.5 + SLACK_S


def test_threads_end_spans_while_the_process_exits() -> None:
    """Spans that come after everything was closed are ignored without a word."""
    source = """
        import atexit, threading
        import tilelang_otel
        from opentelemetry import trace

        def late():
            trace.get_tracer("program").start_span("late").end()

        atexit.register(late)
        tilelang_otel.configure()
        threads = [
            threading.Thread(target=lambda: [late() for _ in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
    """
    with OTLPReceiver() as receiver:
        done = run_program(source, receiver.environment())
        assert (done.exit_code, done.stderr) == (0, "")
        assert len(receiver.wait_for(200)) == 200
