"""``configure()`` and ``flush()`` in real programs, with real receivers."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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

TIMEOUT = "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT"

# Ends as many spans as its argument says, tells when it is done, and exits with 3.
SPANS = """
    import sys, time
    import tilelang_otel
    from opentelemetry import trace

    tilelang_otel.configure()
    tracer = trace.get_tracer("program")
    for number in range(int(sys.argv[1])):
        tracer.start_span(f"span {number}").end()
    print(time.monotonic(), flush=True)
    sys.exit(3)
"""

# How much longer than its timeout an exit may take on a busy machine, in seconds.
# The SDK's own takes 7 s to 30 s in these tests.
SLACK_S = 3.0


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
        done = run_program(SPANS, receiver.environment() | {TIMEOUT: "1"}, ("1",))
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
        done = run_program(SPANS, variables | {TIMEOUT: "1"}, ("3000",))
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
        done = run_program(SPANS, receiver.environment() | batches | {TIMEOUT: "1"}, ("60",))
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
            TIMEOUT: "1",
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
        done = run_program(source, endpoint.environment("http/protobuf") | {TIMEOUT: "0.5"})
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
        ({TIMEOUT: "soon"}, f"{TIMEOUT}='soon'"),
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


@pytest.mark.parametrize("value", [0, -1, "soon", float("nan"), True])
def test_wrong_keyword_raises(value: object) -> None:
    """A mistake in code is the programmer's to see, at once."""
    import tilelang_otel

    with pytest.raises(ValueError, match="a number of seconds above 0"):
        tilelang_otel.configure(exit_timeout_s=value)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="a number of seconds above 0"):
        tilelang_otel.flush(value)  # pyright: ignore[reportArgumentType]


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
        return {"OTEL_CONFIG_FILE": str(file), TIMEOUT: "1"}

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
