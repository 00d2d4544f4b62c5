"""Components of others, and the SDK's configuration file, with ``configure()``."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.support.exporting import EXIT_TIMEOUT, SLACK_S, SPANS
from tests.support.programs import run_program
from tests.support.receiver import (
    OTLPReceiver,
    SilentEndpoint,
)

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


def test_components_of_others_are_used_by_their_entry_points(tmp_path: Path) -> None:
    """Exporters, samplers, id generators, detectors and propagators need only be installed."""
    (tmp_path / "components.py").write_text(
        textwrap.dedent("""
            from opentelemetry.baggage.propagation import W3CBaggagePropagator
            from opentelemetry.sdk.resources import Resource, ResourceDetector
            from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
            from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON

            def sampler(argument):
                print("sampler", argument)
                return ALWAYS_ON

            class Ids(RandomIdGenerator):
                def generate_span_id(self):
                    return 42

            class Detector(ResourceDetector):
                def detect(self):
                    return Resource({"service.name": "detected"})

            class Propagator(W3CBaggagePropagator):
                pass

            class Exporter(SpanExporter):
                def export(self, spans):
                    for span in spans:
                        service = span.resource.attributes["service.name"]
                        print(span.name, span.context.span_id, service)
                    return SpanExportResult.SUCCESS
        """)
    )
    metadata = tmp_path / "components-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: components\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[opentelemetry_traces_exporter]\nmine = components:Exporter\n"
        "[opentelemetry_traces_sampler]\nmine = components:sampler\n"
        "[opentelemetry_id_generator]\nmine = components:Ids\n"
        "[opentelemetry_resource_detector]\nmine = components:Detector\n"
        "[opentelemetry_propagator]\nmine = components:Propagator\n"
    )
    source = SPANS.replace(
        "import sys, time", f"import sys, time; sys.path.insert(0, {str(tmp_path)!r})"
    )
    names = ("TRACES_EXPORTER", "TRACES_SAMPLER", "PYTHON_ID_GENERATOR", "PROPAGATORS")
    variables = {f"OTEL_{name}": "mine" for name in names} | {
        "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "mine",
        "OTEL_TRACES_SAMPLER_ARG": "rate=5",
    }
    done = run_program(source, variables, ("1",))
    assert (done.exit_code, done.stderr) == (3, "")
    assert done.lines[0] == "sampler rate=5"
    assert done.lines[-1] == "span 0 42 detected"


def test_config_file_is_used(tmp_path: Path) -> None:
    """``OTEL_CONFIG_FILE`` configures everything, and the exit stays bounded."""
    pytest.importorskip("opentelemetry.configuration")
    file = tmp_path / "otel.yaml"

    def write(endpoint: str) -> dict[str, str]:
        file.write_text(
            "file_format: '1.0'\n"
            "resource: {attributes: [{name: service.name, value: filed}]}\n"
            "tracer_provider:\n"
            "  processors:\n"
            f"    - batch: {{exporter: {{otlp_grpc: {{endpoint: '{endpoint}'}}}}}}\n"
        )
        return {"OTEL_CONFIG_FILE": str(file), EXIT_TIMEOUT: "1"}

    with OTLPReceiver() as receiver:
        done = run_program(SPANS, write(receiver.endpoint), ("1",))
        assert (done.exit_code, done.stderr) == (3, "")
        [span] = receiver.wait_for(1)
    assert span.resource["service.name"] == "filed"
    with SilentEndpoint() as endpoint:
        done = run_program(SPANS, write(endpoint.endpoint), ("1",))
    assert done.exit_code == 3
    assert done.ended_s - float(done.lines[0]) < 1 + SLACK_S
    assert len(done.complaints) == 1
