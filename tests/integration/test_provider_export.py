"""What ``configure()`` exports, and how: as the variables say, whole, and in time."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Exporter:
    """One way to configure an exporter."""

    id: str
    protocol: Protocol
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """What has to arrive with each request."""


def _exporters() -> list[Exporter]:
    found: list[Exporter] = []
    for protocol in PROTOCOLS:
        compressed = {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
        found += [
            Exporter(f"{protocol} plain", protocol),
            Exporter(
                f"{protocol} gzip",
                protocol,
                compressed,
                {"content-encoding": "gzip"} if protocol != "grpc" else {},
            ),
            Exporter(
                f"{protocol} no compression", protocol, {"OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
            ),
            Exporter(
                f"{protocol} headers",
                protocol,
                {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Basic abc==,x-team=a%20b"},
                {"authorization": "Basic abc==", "x-team": "a b"},
            ),
        ]
    return found


@pytest.mark.parametrize("exporter", _exporters(), ids=lambda exporter: exporter.id)
def test_configure_exports_as_the_variables_say(exporter: Exporter) -> None:
    """Protocol, endpoint, compression and headers are the variables'; every span arrives."""
    with OTLPReceiver(exporter.protocol, Answers(headers=exporter.headers)) as receiver:
        done = run_program(SPANS, receiver.environment() | dict(exporter.variables), ("3",))
        assert (done.exit_code, done.stderr) == (3, "")
        spans = receiver.wait_for(3)
    assert sorted(span.name for span in spans) == ["span 0", "span 1", "span 2"]
    assert {request.signal for request in receiver.requests} == {"traces"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_configure_exports_over_tls(protocol: Protocol, tmp_path: Path) -> None:
    """A receiver with a certificate of its own is trusted when the variable says so."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    try:
        request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
        files = ("-keyout", str(key), "-out", str(certificate))
        address = ("-addext", "subjectAltName=IP:127.0.0.1")
        command = ["openssl", *request.split(), *address, *files]
        subprocess.run(command, capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("openssl makes the certificate, and is not installed")
    with OTLPReceiver(protocol, certificate=(str(certificate), str(key))) as receiver:
        # Where this is set, requests prefers it to what the exporter says.
        trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(certificate)}
        trusted |= {"REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": ""}
        done = run_program(SPANS, receiver.environment() | trusted, ("1",))
        assert (done.exit_code, done.stderr) == (3, "")
        receiver.wait_for(1)
        done = run_program(SPANS, receiver.environment() | {EXIT_TIMEOUT: "1"}, ("1",))
        # gRPC's core complains on its own account.
        [line] = [line for line in done.complaints if line.startswith("tilelang-otel")]
        assert "1 span could not be delivered" in line
        assert "TLS failed" in line
        assert len(receiver.spans) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_burst_of_8000_spans_arrives_whole(protocol: Protocol) -> None:
    """The queue holds a large compile's spans, which end all at once."""
    with OTLPReceiver(protocol) as receiver:
        done = run_program(SPANS, receiver.environment(), ("8000",))
        assert (done.exit_code, done.stderr) == (3, "")
        spans = receiver.wait_for(8000)
    assert len({span.span_id for span in spans}) == len(spans) == 8000


def test_spans_that_do_not_fit_into_the_queue_are_counted_and_the_last_survive() -> None:
    """Loss is said in one line that names the variable; what ended last, roots that is, stays."""
    sizes = {"OTEL_BSP_MAX_QUEUE_SIZE": "20", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "20"}
    with OTLPReceiver(answers=Answers(delay_s=0.3)) as receiver:
        done = run_program(SPANS, receiver.environment() | sizes, ("500",))
        names = [span.name for span in receiver.spans]
    assert done.exit_code == 3
    assert "span 499" in names
    lost = f"{500 - len(names)} spans did not fit into the queue: raise OTEL_BSP_MAX_QUEUE_SIZE"
    assert done.complaints[-1] == f"tilelang-otel: {lost}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_metrics_and_logs_are_exported_when_asked_for(protocol: Protocol) -> None:
    """The exporter variables of metrics and logs switch them on, on the same endpoint."""
    source = """
        import tilelang_otel
        tilelang_otel.configure()
        from opentelemetry import _logs, metrics
        metrics.get_meter("program").create_counter("calls").add(1)
        _logs.get_logger("program").emit(_logs.LogRecord(body="hello"))
    """
    with OTLPReceiver(protocol) as receiver:
        asked = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_LOGS_EXPORTER": "otlp"}
        done = run_program(source, receiver.environment() | asked)
        assert (done.exit_code, done.stderr) == (0, "")
    assert {request.signal for request in receiver.requests} == {"metrics", "logs"}


def test_default_exporter_is_used_only_when_nothing_says_where_to(tmp_path: Path) -> None:
    """The caller's default yields to an exporter, and to an endpoint, of the environment."""
    source = """
        import tilelang_otel
        from opentelemetry import trace
        tilelang_otel.configure(default_exporter="otlp_jsonl")
        trace.get_tracer("program").start_span("span").end()
    """
    file = tmp_path / "trace.jsonl"
    to_file = {"OTEL_PYTHON_TILELANG_FILE": str(file)}
    assert run_program(source, to_file).stderr == ""
    assert file.read_text().count('"name":"span"') == 1
    with OTLPReceiver() as receiver:
        environment = receiver.environment()
        del environment["OTEL_TRACES_EXPORTER"]
        run_program(source, environment | to_file)
        receiver.wait_for(1)
    done = run_program(source, {"OTEL_TRACES_EXPORTER": "console"} | to_file)
    assert '"name": "span"' in done.stdout
    assert file.read_text().count('"name":"span"') == 1
