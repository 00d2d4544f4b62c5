"""Which provider ``configure()`` sets, or leaves: the application's, the program's, none."""

from __future__ import annotations

import pytest

from tests.support.exporting import SPANS
from tests.support.programs import run_program
from tests.support.receiver import (
    OTLPReceiver,
)

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


@pytest.mark.parametrize(
    ("variables", "service"),
    [
        ({}, "python"),
        ({"OTEL_SERVICE_NAME": "named"}, "named"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=attributed,team=a"}, "attributed"),
    ],
)
def test_service_name_is_the_programs_unless_a_variable_says_otherwise(
    variables: dict[str, str], service: str
) -> None:
    """Traces are found under the program's name without setting anything."""
    with OTLPReceiver() as receiver:
        run_program(SPANS, receiver.environment() | variables, ("1",))
        [span] = receiver.wait_for(1)
    assert span.resource["service.name"] == service


@pytest.mark.parametrize(
    ("argv0", "service"),
    [
        ("/a/kernels/matmul.py", "matmul"),
        ("tools/bench/__main__.py", "bench"),
        ("/usr/bin/pytest", "pytest"),
        ("", "python"),
        ("-c", "python"),
    ],
)
def test_service_name_is_that_of_the_script_or_package(
    argv0: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same program has the same name wherever it is started from."""
    from tilelang_otel._sdk.setup import make_resource

    monkeypatch.setattr("sys.argv", [argv0])
    assert make_resource().attributes["service.name"] == service


def test_application_provider_is_kept() -> None:
    """A provider that the application has set stays, and is what configure() returns."""
    source = """
        import tilelang_otel
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider

        own = TracerProvider()
        trace.set_tracer_provider(own)
        assert tilelang_otel.configure() is own is trace.get_tracer_provider()
        assert tilelang_otel.flush()
    """
    done = run_program(source, {"OTEL_TRACES_EXPORTER": "jaeger", "OTEL_BSP_SCHEDULE_DELAY": "-1"})
    assert (done.exit_code, done.stderr) == (0, "")


def test_second_configure_returns_the_same_provider() -> None:
    """Whoever configures first decides; there is one provider, and one exporter."""
    source = """
        import threading
        import tilelang_otel
        from opentelemetry import trace

        found = []
        threads = [
            threading.Thread(target=lambda: found.append(tilelang_otel.configure()))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, found))) == 1 and found[0] is trace.get_tracer_provider()
        trace.get_tracer("program").start_span("once").end()
    """
    with OTLPReceiver() as receiver:
        done = run_program(source, receiver.environment())
        assert (done.exit_code, done.stderr) == (0, "")
        assert [span.name for span in receiver.wait_for(1)] == ["once"]


def test_tracer_fetched_before_configure_records_afterwards() -> None:
    """Order does not matter: a tracer that was made early uses the provider of later."""
    source = """
        from opentelemetry import trace
        tracer = trace.get_tracer("early")
        import tilelang_otel
        tilelang_otel.configure()
        tracer.start_span("late").end()
    """
    with OTLPReceiver() as receiver:
        run_program(source, receiver.environment())
        receiver.wait_for(1)


@pytest.mark.parametrize("value", ["true", "True"])
def test_disabled_sdk_sets_nothing_and_sends_nothing(value: str) -> None:
    """``OTEL_SDK_DISABLED=true`` means that nothing is set up at all."""
    source = """
        import tilelang_otel, sys
        from opentelemetry import trace
        provider = tilelang_otel.configure()
        assert isinstance(provider, trace.ProxyTracerProvider), provider
        assert not trace.get_tracer("program").start_span("none").is_recording()
        assert tilelang_otel.flush()
        assert "opentelemetry.sdk.trace" not in sys.modules
    """
    with OTLPReceiver() as receiver:
        done = run_program(source, receiver.environment() | {"OTEL_SDK_DISABLED": value})
        assert (done.exit_code, done.stderr) == (0, "")
        assert receiver.attempts == 0


def test_application_keeps_its_choice_of_meter_and_logger_provider() -> None:
    """Only traces are set up, so an application can still set the others."""
    source = """
        import tilelang_otel
        tilelang_otel.configure()
        from opentelemetry import _logs, metrics
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk.metrics import MeterProvider
        meters, logs = MeterProvider(), LoggerProvider()
        metrics.set_meter_provider(meters)
        _logs.set_logger_provider(logs)
        assert metrics.get_meter_provider() is meters
        assert _logs.get_logger_provider() is logs
    """
    done = run_program(source, {"OTEL_TRACES_EXPORTER": "none"})
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("value", [0, -1, "soon", float("nan"), True])
def test_wrong_keyword_raises(value: object) -> None:
    """A mistake in code is the programmer's to see, at once."""
    import tilelang_otel

    with pytest.raises(ValueError, match="a number of seconds above 0"):
        tilelang_otel.configure(exit_timeout_s=value)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="a number of seconds above 0"):
        tilelang_otel.flush(value)  # pyright: ignore[reportArgumentType]
