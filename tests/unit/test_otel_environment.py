"""What becomes of right and wrong values in OpenTelemetry's own variables."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilelang_otel._otel import values as known_values
from tilelang_otel._otel.environment import OtelEnvironment, read_environment
from tilelang_otel._otel.transport import mask_url
from tilelang_otel._sdk.export_errors import explain

QUEUE = "OTEL_BSP_MAX_QUEUE_SIZE"
BATCH = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
RATIO = {"OTEL_TRACES_SAMPLER": "traceidratio"}


@dataclass(frozen=True)
class Wrong:
    """A wrong value, what is used instead, and words that its line must have."""

    variable: str
    value: str
    instead: str | None
    says: str

    @property
    def context(self) -> dict[str, str]:
        """Variables beside which it is wrong."""
        return RATIO if self.variable.endswith("_ARG") else {}


WRONG = [
    Wrong("OTEL_TRACES_SAMPLER", "sometimes", None, "parentbased_traceidratio or"),
    Wrong("OTEL_TRACES_SAMPLER_ARG", "5", "1.0", "a number from 0 to 1"),
    Wrong("OTEL_TRACES_SAMPLER_ARG", "abc", "1.0", "a number from 0 to 1"),
    Wrong("OTEL_TRACES_SAMPLER_ARG", "nan", "1.0", "a number from 0 to 1"),
    Wrong("OTEL_TRACES_EXPORTER", "jaeger", None, "for Jaeger: otlp"),
    Wrong("OTEL_TRACES_EXPORTER", "OTLP", "otlp", "is taken as otlp"),
    Wrong("OTEL_TRACES_EXPORTER", "console,jaeger", "console", "is taken as console"),
    Wrong("OTEL_TRACES_EXPORTER", "none,console", "console", "is taken as console"),
    Wrong("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", None, "grpc or http/protobuf"),
    Wrong("OTEL_EXPORTER_OTLP_PROTOCOL", "GRPC", "grpc", "grpc or http/protobuf"),
    Wrong("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http", None, "grpc or http/protobuf"),
    Wrong("OTEL_EXPORTER_OTLP_TIMEOUT", "abc", None, "a number of seconds above 0"),
    Wrong("OTEL_EXPORTER_OTLP_TIMEOUT", "-1", None, "a number of seconds above 0"),
    Wrong("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "inf", None, "a number of seconds above 0"),
    Wrong("OTEL_EXPORTER_OTLP_COMPRESSION", "zip", None, "gzip or none"),
    Wrong("OTEL_EXPORTER_OTLP_INSECURE", "yes", None, "true or false"),
    Wrong("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file", None, "a file that can be read"),
    Wrong("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/", None, "a file that can be read"),
    Wrong("OTEL_CONFIG_FILE", "/no/such/file", None, "a file that can be read"),
    Wrong(QUEUE, "0", "65536", "a whole number from 1 on"),
    Wrong(QUEUE, "1e6", "65536", "a whole number from 1 on"),
    Wrong(QUEUE, "9" * 30, "65536", "a whole number from 1 on"),
    Wrong(QUEUE, "100", "100", "at least OTEL_BSP_MAX_EXPORT_BATCH_SIZE (512)"),
    Wrong(BATCH, "none", None, "a whole number from 1 on"),
    Wrong("OTEL_BSP_SCHEDULE_DELAY", "-1", None, "a whole number from 1 on"),
    Wrong("OTEL_BSP_EXPORT_TIMEOUT", "1s", None, "a whole number from 0 on"),
    Wrong("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "abc", None, "a whole number from 0 on"),
    Wrong("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-2", None, "a whole number from 0 on"),
    Wrong("OTEL_SDK_DISABLED", "1", None, "does not disable anything: expected true or false"),
    Wrong("OTEL_PROPAGATORS", "b4", None, "baggage and tracecontext"),
    Wrong("OTEL_PYTHON_ID_GENERATOR", "dice", None, "random"),
    Wrong("OTEL_PYTHON_TRACER_PROVIDER", "mine", None, "sdk_tracer_provider"),
    Wrong("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process,moon", "process", "otel"),
    Wrong("OTEL_RESOURCE_ATTRIBUTES", "a=b,c", "a=b", "without 1 of its 2 entries"),
    Wrong("OTEL_RESOURCE_ATTRIBUTES", "a=b,c=\udcff", "a=b", "without 1 of its 2 entries"),
    Wrong("OTEL_SERVICE_NAME", "\udcff", None, "text in UTF-8"),
    Wrong("OTEL_METRICS_EXPORTER", "statsd", None, "console"),
    Wrong("OTEL_PYTHON_EXPORTER_OTLP_GRPC_RETRYABLE_ERROR_CODES", "X", None, "UNAVAILABLE"),
    Wrong(ENDPOINT, "ftp://collector", None, "a URL such as"),
    Wrong(ENDPOINT, "http://collector:99999", None, "a URL such as"),
    Wrong(ENDPOINT, "http://[::1", None, "a URL such as"),
    Wrong(ENDPOINT, "http://", None, "a URL such as"),
    Wrong(ENDPOINT, "http://my collector", None, "a URL such as"),
    Wrong(ENDPOINT, "localhost:4317", "http://localhost:4317", "has no scheme"),
    Wrong(ENDPOINT, "127.0.0.1", "http://127.0.0.1", "has no scheme"),
    Wrong(ENDPOINT, "collector:4317", "https://collector:4317", "has no scheme"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.variable}={wrong.value:.20}")
def test_wrong_value_gives_one_line_and_something_that_works(wrong: Wrong) -> None:
    """A wrong value is named in one line, with what is accepted, and the SDK never sees it."""
    environment = read_environment({wrong.variable: wrong.value} | wrong.context)
    [problem] = environment.problems
    assert problem.variable == wrong.variable
    assert problem.message.startswith(wrong.variable)
    assert "\n" not in problem.message
    assert wrong.says in problem.message
    assert environment.get(wrong.variable) == wrong.instead


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_TRACES_EXPORTER", "console,otlp"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2.5"),
        (ENDPOINT, "https://user:word@collector.example:4317"),
        (ENDPOINT, "unix:///run/collector.sock"),
        (HEADERS, "Authorization=Basic abc=="),
        (HEADERS, "authorization=Bearer%20secret,x-scope=1"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,empty="),
        ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "*"),
        ("OTEL_SDK_DISABLED", "true"),
        (BATCH, "100"),
    ],
)
def test_right_value_is_left_alone(variable: str, value: str) -> None:
    """What the SDK understands it gets, without a word."""
    environment = read_environment({variable: value})
    assert environment.problems == ()
    assert environment.get(variable) == value


@pytest.mark.parametrize("variable", sorted({wrong.variable for wrong in WRONG}))
def test_blank_value_counts_as_unset(variable: str) -> None:
    """As the specification says, an empty variable is no variable, and nothing wrong."""
    environment = read_environment({variable: "  "})
    assert environment.problems == ()
    assert environment.get(variable) == (str(65536) if variable == QUEUE else None)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize(
    ("value", "kept", "says"),
    [
        ("authorization: Bearer hunter2", None, "entry 1, which has no equals sign"),
        ("x=1,Authorization: Basic hunter2==", "x=1", "entry 2, which has a colon"),
        ("hunter2", None, "entry 1, which has no equals sign"),
        ("x y=hunter2", None, "entry 1, whose name has characters"),
        ("x=hunter2%0d%0aEvil: 1", None, "entry 1, whose value has characters"),
        ("x=hunter2é", None, "entry 1, whose value has characters"),
        ("x=hunter2%C3%A9,y=2", "y=2", "entry 1, whose value has characters"),
    ],
)
def test_wrong_header_is_left_out_and_its_value_never_shown(
    protocol: str, value: str, kept: str | None, says: str
) -> None:
    """A header in a wrong format is called by its position: its value is a secret."""
    environment = read_environment({HEADERS: value, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol})
    [problem] = environment.problems
    assert says in problem.message
    assert "name=value" in problem.message
    assert "hunter2" not in problem.message
    assert environment.get(HEADERS) == kept


def test_header_that_grpc_cannot_send_is_fine_over_http() -> None:
    """gRPC takes fewer characters in names than HTTP does."""
    assert read_environment({HEADERS: "a!b=1"} | HTTP).problems == ()
    assert len(read_environment({HEADERS: "a!b=1"}).problems) == 1
    assert len(read_environment({HEADERS: "a-bin=1"}).problems) == 1


def test_compression_that_grpc_does_not_know_is_fine_over_http() -> None:
    """Deflate is HTTP's only; ``none`` is understood, though Python's gRPC exporter raises."""
    name = "OTEL_EXPORTER_OTLP_COMPRESSION"
    assert read_environment({name: "deflate"} | HTTP).get(name) == "deflate"
    assert read_environment({name: "deflate"}).get(name) is None
    assert read_environment({name: "none"}).problems == ()
    assert read_environment({name: "none"}).get(name) is None


def test_queue_and_batch_always_fit_together() -> None:
    """The SDK raises when a batch does not fit into the queue."""

    def sizes(**values: str) -> tuple[str | None, str | None]:
        environment = read_environment(
            {f"OTEL_BSP_MAX_{name}": text for name, text in values.items()}
        )
        return environment.get(QUEUE), environment.get(BATCH)

    assert sizes() == ("65536", None)
    assert sizes(QUEUE_SIZE="100") == ("100", "100")
    assert sizes(QUEUE_SIZE="100", EXPORT_BATCH_SIZE="10") == ("100", "10")
    assert sizes(EXPORT_BATCH_SIZE="100000") == ("100000", "100000")


def test_ratio_sampler_without_ratio_samples_everything_silently() -> None:
    """The specification's default for the ratio is 1; the SDK would warn."""
    environment = read_environment(RATIO)
    assert environment.get("OTEL_TRACES_SAMPLER_ARG") == "1.0"
    assert environment.problems == ()


def test_argument_of_another_sampler_is_not_judged() -> None:
    """What a sampler of somebody else's takes is its own business."""
    values = {"OTEL_TRACES_SAMPLER": "always_on", "OTEL_TRACES_SAMPLER_ARG": "a;b"}
    assert read_environment(values).problems == ()


def test_applied_hides_wrong_values_and_puts_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK sees what works; the program's environment is as before, also after an error."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "-1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "GRPC")
    before = dict(os.environ)
    environment = read_environment()
    with contextlib.suppress(RuntimeError), environment.applied():
        assert "OTEL_BSP_SCHEDULE_DELAY" not in os.environ
        assert os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] == "grpc"
        assert os.environ[QUEUE] == "65536"
        raise RuntimeError
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("values", "exporter", "url"),
    [
        ({}, "otlp_proto_grpc", "http://localhost:4317"),
        (HTTP, "otlp_proto_http", "http://localhost:4318/v1/traces"),
        (HTTP | {ENDPOINT: "http://a:1/"}, "otlp_proto_http", "http://a:1/v1/traces"),
        (
            HTTP | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a:1/x"},
            "otlp_proto_http",
            "http://a:1/x",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp_proto_http"},
            "otlp_proto_http",
            "http://localhost:4318/v1/traces",
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"} | HTTP,
            "otlp_proto_grpc",
            "http://localhost:4317",
        ),
    ],
)
def test_otlp_target_is_where_the_exporter_sends(
    values: dict[str, str], exporter: str, url: str
) -> None:
    """Protocol, path and precedence of endpoints are those of the SDK's exporters."""
    environment = read_environment(values)
    assert environment.exporters(default="otlp") == (exporter,)
    target = environment.otlp_target(exporter)
    assert target is not None
    assert target.url == url


def test_otlp_means_http_when_only_that_exporter_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who installed one exporter need not name its protocol."""
    monkeypatch.setattr(
        "tilelang_otel._otel.environment.installed_names", lambda group: {"otlp_proto_http"}
    )
    assert read_environment({}).exporters(default="otlp") == ("otlp_proto_http",)


def test_exporters_without_a_choice_are_the_callers() -> None:
    """``none`` is nothing, and an unset variable what the caller says."""
    assert read_environment({}).exporters() == ()
    assert read_environment({}).exporters(default="otlp_jsonl") == ("otlp_jsonl",)
    assert read_environment({"OTEL_TRACES_EXPORTER": "none"}).exporters(default="otlp") == ()


def test_mask_blacks_out_credentials_of_every_kind() -> None:
    """Header values, as given and as sent, and passwords in URLs do not survive."""
    environment = read_environment(
        {
            HEADERS: "authorization=Bearer%20hunter2,x-key=kEyKeY",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization: Basic bad4matted",
            ENDPOINT: "http://user:pa55word@host:4318/?token=t0ken",
        }
    )
    text = "Bearer hunter2\nBearer%20hunter2 kEyKeY bad4matted user:pa55word t0ken host:4318"
    masked = environment.mask(text)
    for secret in ("hunter2", "kEyKeY", "bad4matted", "pa55word", "t0ken"):
        assert secret not in masked
    assert masked.endswith("host:4318")
    assert "\n" not in masked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host:1/v1/traces", "http://host:1/v1/traces"),
        ("http://user:p@ss@host:1/?key=1#x", "http://***@host:1/"),
        ("user:pass@host", "***@host"),
    ],
)
def test_mask_url_leaves_host_and_path(url: str, shown: str) -> None:
    """A URL is recognisable without what is secret in it."""
    assert mask_url(url) == shown


def test_readable_certificate_is_accepted(tmp_path: Path) -> None:
    """A file that exists is the exporter's to judge."""
    file = tmp_path / "ca.pem"
    file.write_text("certificate")
    name = "OTEL_EXPORTER_OTLP_CERTIFICATE"
    assert read_environment({name: str(file)}).get(name) == str(file)


def test_disabled_is_true_only_for_true() -> None:
    """``OTEL_SDK_DISABLED`` knows one word that disables, in any case."""

    def is_disabled(text: str) -> bool:
        return read_environment({"OTEL_SDK_DISABLED": text}).is_disabled

    assert [is_disabled(text) for text in ("true", " TRUE ", "1", "yes", "false", "")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_own_exporter_is_known_without_a_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's exporter works from a checkout, where no entry point is registered."""
    monkeypatch.setattr(known_values, "installed_names", lambda group: frozenset[str]())
    values = {"OTEL_TRACES_EXPORTER": "otlp_jsonl,otlp"}
    assert read_environment(values).problems == ()


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("error code: StatusCode.UNAVAILABLE, error details: Connection refused (111)", "refused"),
        ("Failed to export spans batch code: 401, reason: Unauthorized", "credentials"),
        ("StatusCode.DEADLINE_EXCEEDED, error details: Deadline Exceeded", "no answer in time"),
        ("StatusCode.UNAVAILABLE, error details: DNS resolution failed", "no such host"),
        ("Failed to export spans batch code: 404, reason: Not Found", "nothing there takes"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "TLS failed"),
        ("Service Unavailable", "not available"),
        ("a new reason", "a new reason"),
    ],
)
def test_explain_names_the_usual_reasons(said: str, what: str) -> None:
    """What gRPC and HTTP libraries say becomes a few words."""
    assert what in explain([said]).what


def test_explain_looks_past_the_exporters_general_sentence() -> None:
    """The HTTP exporter's last message says only that it gave up; those before say why."""
    said = [
        "Transient error Connection refused encountered while exporting spans batch",
        "Failed to export spans batch due to timeout, max retries or shutdown.",
    ]
    assert explain(said).what == "connection refused"


def test_reading_an_environment_of_any_bytes_never_raises() -> None:
    """Whatever is in a variable, reading it is safe."""
    names = {wrong.variable for wrong in WRONG} | {HEADERS}
    for text in ("\udcff", "=", ",", ":", "%", "%zz", "://@", "\x00", "é" * 5000, "a=b;c", "[]"):
        environment = read_environment(dict.fromkeys(names, text))
        assert isinstance(environment, OtelEnvironment)
        assert all("\n" not in problem.message for problem in environment.problems)
        assert environment.exporters(default="otlp")
