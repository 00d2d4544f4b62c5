"""Wrong variables, refused credentials, missing packages: a line each, and the rest works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.exporting import EXIT_TIMEOUT, SPANS
from tests.support.programs import run_program
from tests.support.receiver import (
    PROTOCOLS,
    Answers,
    OTLPReceiver,
    Protocol,
)

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "OTEL_TRACES_SAMPLER='sometimes'"),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "5"},
            "OTEL_TRACES_SAMPLER_ARG='5'",
        ),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "abc"}, "OTEL_EXPORTER_OTLP_TIMEOUT='abc'"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "0"}, "OTEL_BSP_MAX_QUEUE_SIZE='0'"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "100"}, "OTEL_BSP_MAX_QUEUE_SIZE='100'"),
        ({"OTEL_BSP_SCHEDULE_DELAY": "-1"}, "OTEL_BSP_SCHEDULE_DELAY='-1'"),
        (
            {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "abc"},
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT='abc'",
        ),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "x"}, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT='x'"),
        ({"OTEL_TRACES_EXPORTER": "OTLP"}, "OTEL_TRACES_EXPORTER='OTLP'"),
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "OTEL_TRACES_EXPORTER='jaeger'"),
        ({"OTEL_SDK_DISABLED": "1"}, "OTEL_SDK_DISABLED='1'"),
        ({"OTEL_EXPORTER_OTLP_COMPRESSION": "zip"}, "OTEL_EXPORTER_OTLP_COMPRESSION='zip'"),
        ({"OTEL_PROPAGATORS": "b4"}, "OTEL_PROPAGATORS='b4'"),
        ({"OTEL_PYTHON_ID_GENERATOR": "dice"}, "OTEL_PYTHON_ID_GENERATOR='dice'"),
        ({"OTEL_PYTHON_TRACER_PROVIDER": "mine"}, "OTEL_PYTHON_TRACER_PROVIDER='mine'"),
        ({"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "moon"}, "'moon'"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a"}, "OTEL_RESOURCE_ATTRIBUTES"),
        ({"OTEL_CONFIG_FILE": "/no/such/file"}, "OTEL_CONFIG_FILE='/no/such/file'"),
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "authorization: Bearer hunter2"},
            "OTEL_EXPORTER_OTLP_HEADERS is used without entry 1",
        ),
        ({EXIT_TIMEOUT: "soon"}, f"{EXIT_TIMEOUT}='soon'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wrong_value_costs_one_line_and_nothing_else(
    protocol: Protocol, variables: dict[str, str], says: str
) -> None:
    """The program runs, its spans arrive, and one line names the variable, not a secret."""
    with OTLPReceiver(protocol) as receiver:
        done = run_program(SPANS, receiver.environment() | variables, ("1",))
        assert done.exit_code == 3
        [line] = done.complaints
        assert says in line
        assert "expected" in line
        assert "hunter2" not in line
        receiver.wait_for(1)


@pytest.mark.parametrize(
    "variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_endpoint_without_scheme_is_understood(protocol: Protocol, variable: str) -> None:
    """``127.0.0.1:4317`` is what people mean, and one line tells how it is written."""
    with OTLPReceiver(protocol) as receiver:
        address = receiver.address
        if protocol != "grpc" and "TRACES" in variable:
            address += "/v1/traces"
        environment = receiver.environment()
        del environment["OTEL_EXPORTER_OTLP_ENDPOINT"]
        done = run_program(SPANS, environment | {variable: address}, ("1",))
        [line] = done.complaints
        assert f"{variable}='{address}' has no scheme and is taken as http://{address}" in line
        receiver.wait_for(1)


def test_protocol_that_does_not_exist_falls_back_to_the_default() -> None:
    """``http/json``, which Python does not speak, is gRPC with a line, not a traceback."""
    with OTLPReceiver("grpc") as receiver:
        variables = receiver.environment() | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
        done = run_program(SPANS, variables, ("1",))
        [line] = done.complaints
        assert "OTEL_EXPORTER_OTLP_PROTOCOL='http/json'" in line
        assert "grpc or http/protobuf" in line
        receiver.wait_for(1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_refused_credentials_are_reported_without_them(protocol: Protocol) -> None:
    """What the receiver did not like is not shown to whoever reads the log."""
    secret = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20hunter2"}
    with OTLPReceiver(protocol, Answers(headers={"authorization": "Bearer other"})) as receiver:
        done = run_program(SPANS, receiver.environment() | secret, ("1",))
    [line] = done.complaints
    assert "1 span could not be delivered" in line
    assert "401" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("name", ["exporter", "sampler", "id generator"])
def test_component_that_raises_costs_one_line(name: str, tmp_path: Path) -> None:
    """A component that cannot be made is left out, and the program runs."""
    groups = {
        "exporter": ("opentelemetry_traces_exporter", "OTEL_TRACES_EXPORTER"),
        "sampler": ("opentelemetry_traces_sampler", "OTEL_TRACES_SAMPLER"),
        "id generator": ("opentelemetry_id_generator", "OTEL_PYTHON_ID_GENERATOR"),
    }
    group, variable = groups[name]
    metadata = tmp_path / "broken-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\nbroken = no_such_module:X\n")
    source = SPANS.replace(
        "import sys, time", f"import sys, time; sys.path.insert(0, {str(tmp_path)!r})"
    )
    variables = {"OTEL_TRACES_EXPORTER": "none", variable: "broken"}
    done = run_program(source, variables, ("1",))
    assert done.exit_code == 3
    [line] = done.complaints
    assert "broken" in line
    assert "no_such_module" in line


def test_config_file_that_is_wrong_costs_one_line(tmp_path: Path) -> None:
    """A file that cannot be used, for whatever reason, is left out with a line."""
    file = tmp_path / "otel.yaml"
    file.write_text("file_format: [")
    with OTLPReceiver() as receiver:
        variables = receiver.environment() | {"OTEL_CONFIG_FILE": str(file)}
        done = run_program(SPANS, variables, ("1",))
        assert done.exit_code == 3
        [line] = done.complaints
        assert line.startswith("OTEL_CONFIG_FILE")
        receiver.wait_for(1)


@pytest.mark.parametrize("package", ["opentelemetry.sdk", "opentelemetry.exporter"])
def test_missing_package_costs_one_line(package: str) -> None:
    """Without SDK or exporter the program runs untraced, and is told what to install."""
    source = f"""
        import sys
        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name == {package!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Missing())
        import tilelang_otel
        from opentelemetry import trace
        tilelang_otel.configure()
        trace.get_tracer("program").start_span("span").end()
    """
    done = run_program(source)
    assert done.exit_code == 0
    [line] = done.complaints
    assert "tilelang-otel[otlp]" in line
