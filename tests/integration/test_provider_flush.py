"""``flush()``: what it waits for, for how long, and what it says."""

from __future__ import annotations

import pytest

from tests.support.exporting import SLACK_S
from tests.support.programs import run_program
from tests.support.receiver import (
    Answers,
    OTLPReceiver,
    SilentEndpoint,
)

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


def test_flush_tells_whether_everything_arrived() -> None:
    """True when it did, False when it did not, and it never waits longer than it is told."""
    source = """
        import time
        import tilelang_otel
        from opentelemetry import trace
        assert tilelang_otel.flush()
        tilelang_otel.configure(exit_timeout_s=0.5)
        assert tilelang_otel.flush()
        trace.get_tracer("program").start_span("span").end()
        start = time.monotonic()
        print(tilelang_otel.flush(timeout_s=0.5), time.monotonic() - start)
    """
    with OTLPReceiver() as receiver:
        done = run_program(source, receiver.environment())
        assert done.lines[0].startswith("True"), done.stderr
        receiver.wait_for(1)
    with SilentEndpoint() as endpoint:
        done = run_program(source, endpoint.environment("http/protobuf"))
    answer, seconds = done.lines[0].split()
    assert answer == "False"
    assert float(seconds) < 0.5 + SLACK_S
    with OTLPReceiver(answers=Answers(headers={"authorization": "x"})) as receiver:
        done = run_program(source, receiver.environment())
    assert done.lines[0].startswith("False")


def test_processors_that_the_application_adds_are_flushed_too() -> None:
    """Whoever extends our provider loses nothing at the end, nor at a flush."""
    source = """
        import sys
        import tilelang_otel
        from opentelemetry import trace
        from opentelemetry.sdk.trace import SpanProcessor

        class Own(SpanProcessor):
            def force_flush(self, timeout_millis=0):
                print("flushed")
                return True
            def shutdown(self):
                print("shut down")

        tilelang_otel.configure().add_span_processor(Own())
        assert tilelang_otel.flush()
    """
    done = run_program(source, {"OTEL_TRACES_EXPORTER": "none"})
    assert (done.lines, done.stderr) == (["flushed", "shut down"], "")


def test_concurrent_processors_of_the_application_are_flushed_explicitly() -> None:
    """The SDK's concurrent processor exports nothing at exit; flush() and shutdown() do work."""
    source = """
        import tilelang_otel
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(active_span_processor=ConcurrentMultiSpanProcessor(2))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
        assert tilelang_otel.configure() is provider
        trace.get_tracer("program").start_span("first").end()
        print(tilelang_otel.flush())
        trace.get_tracer("program").start_span("second").end()
        provider.shutdown()
    """
    with OTLPReceiver() as receiver:
        done = run_program(source, receiver.environment())
        assert (done.exit_code, done.lines, done.stderr) == (0, ["True"], "")
        assert [span.name for span in receiver.wait_for(2)] == ["first", "second"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [("return True", True), ("return False", False), ("raise OSError", False), ("hang()", False)],
)
def test_flush_of_the_applications_provider_is_bounded(body: str, expected: bool) -> None:
    """A foreign provider is flushed too, and cannot make the caller hang or fail."""
    source = f"""
        import threading
        import tilelang_otel
        from opentelemetry import trace
        hang = threading.Event().wait
        class Own(trace.NoOpTracerProvider):
            def force_flush(self, timeout_millis):
                {body}
        trace.set_tracer_provider(Own())
        print(tilelang_otel.flush(0.3))
    """
    done = run_program(source)
    assert (done.lines, done.stderr) == ([str(expected)], "")
