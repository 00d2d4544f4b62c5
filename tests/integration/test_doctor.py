"""What ``tilelang-otel doctor`` says, against receivers that do and do not work."""

from __future__ import annotations

import importlib.machinery
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import Finished, run_program
from tests.support.receiver import (
    PROTOCOLS,
    Answers,
    OTLPReceiver,
    Protocol,
    RefusingEndpoint,
    SilentEndpoint,
    endpoint_environment,
)

pytest.importorskip("rich")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from tilelang_otel._otel.environment import read_environment
from tilelang_otel.cli._doctor.advice import advise
from tilelang_otel.cli._doctor.facts import find_compilers

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
# Something is said about the absence of any target; this is one.
GRPC = {ENDPOINT: "http://collector:4317"}

OTHER: dict[Protocol, Protocol] = {"grpc": "http/protobuf", "http/protobuf": "grpc"}


def doctor(environment: dict[str, str], *arguments: str) -> Finished:
    """Run the command; it must not import a compiler, nor show a traceback."""
    source = """
        import sys
        from tilelang_otel.cli import main
        code = main(["doctor", *sys.argv[1:]])
        assert not {"tvm", "tilelang"} & sys.modules.keys()
        sys.exit(code)
    """
    done = run_program(source, environment, arguments)
    assert "Traceback" not in done.stderr
    return done


def report(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the command; return its exit code and its JSON."""
    done = doctor(environment, "--json", *arguments)
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_doctor_with_a_receiver_that_works_says_ok(protocol: Protocol) -> None:
    """The test span arrives, and doctor says so with its trace id."""
    with OTLPReceiver(protocol) as receiver:
        done = doctor(receiver.environment())
        [span] = receiver.wait_for(1)
    assert done.exit_code == 0
    [line] = [line for line in done.lines if line.startswith("ok:")]
    assert "accepted the test span" in line
    assert span.trace_id in line
    assert span.name == "tilelang-otel doctor"
    assert "warning" not in done.stdout


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_doctor_with_a_refusing_port_says_so_at_once(protocol: Protocol) -> None:
    """Nobody waits for retries to learn that nothing listens there."""
    with RefusingEndpoint() as endpoint:
        code, found = report(endpoint.environment(protocol), "--timeout", "30")
    [sent] = found["test_span"]
    assert (code, sent["is_accepted"], sent["what"]) == (1, False, "connection refused")
    assert "start a receiver" in sent["advice"]
    assert sent["duration_s"] < 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_doctor_with_a_silent_port_gives_up_in_time(protocol: Protocol) -> None:
    """A receiver that says nothing is given as long as was asked for."""
    with SilentEndpoint() as endpoint:
        code, found = report(endpoint.environment(protocol), "--timeout", "1")
    [sent] = found["test_span"]
    assert (code, sent["what"]) == (1, "no answer in time")
    assert sent["duration_s"] < 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("how", ["terminal", "json"])
def test_doctor_shows_no_secret(protocol: Protocol, how: str) -> None:
    """Header values and passwords stay hidden, also when the receiver refuses them."""
    with OTLPReceiver(protocol, Answers(headers={"authorization": "Bearer other"})) as receiver:
        environment = receiver.environment() | {
            HEADERS: "authorization=Bearer%20hunter2,key: pa55word",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://user:pa55word@host",
        }
        done = doctor(environment, *(["--json"] if how == "json" else []))
    assert done.exit_code == 1
    assert "401" in done.stdout
    assert "authorization" in done.stdout
    for secret in ("hunter2", "pa55word"):
        assert secret not in done.stdout + done.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_doctor_with_the_wrong_protocol_fails_with_a_reason(protocol: Protocol) -> None:
    """Speaking gRPC to an HTTP receiver, or the other way round, is explained."""
    with OTLPReceiver(OTHER[protocol]) as receiver:
        environment = endpoint_environment(protocol, receiver.endpoint)
        code, found = report(environment, "--timeout", "3")
    [sent] = found["test_span"]
    assert (code, sent["what"]) == (1, "it speaks another protocol")
    assert sent["duration_s"] < 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_doctor_with_tls_to_a_plain_receiver_says_tls_failed(protocol: Protocol) -> None:
    """``https`` where plain text is spoken is called by its name."""
    with OTLPReceiver(protocol) as receiver:
        endpoint = receiver.endpoint.replace("http://", "https://")
        code, found = report(endpoint_environment(protocol, endpoint), "--timeout", "3")
    [sent] = found["test_span"]
    assert (code, sent["what"]) == (1, "TLS failed")
    assert any("usually speaks plain http" in warning for warning in found["warnings"])


def test_doctor_with_a_missing_path_names_it() -> None:
    """The commonest mistake over HTTP is warned about, and then seen to fail."""
    with OTLPReceiver("http/protobuf") as receiver:
        environment = HTTP | {TRACES_ENDPOINT: receiver.endpoint}
        code, found = report(environment)
    [sent] = found["test_span"]
    assert code == 1
    assert "404" in sent["what"]
    assert any("/v1/traces" in warning for warning in found["warnings"])


def test_doctor_told_to_send_nothing_sends_nothing() -> None:
    """With --no-send everything is looked at, and nothing leaves the machine."""
    with OTLPReceiver() as receiver:
        code, found = report(receiver.environment(), "--no-send")
        assert receiver.attempts == 0
    assert (code, found["test_span"], found["is_fine"]) == (0, None, True)
    [export] = found["exports"]
    assert export["protocol"] == "grpc"
    assert export["variable"] == ENDPOINT


@pytest.mark.parametrize("variable", ["OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"])
def test_doctor_where_traces_are_switched_off_fails(variable: str) -> None:
    """Traces that go nowhere do not arrive, even if that is meant so."""
    done = doctor({variable: "true" if "SDK" in variable else "none"})
    assert done.exit_code == 1
    assert f"{variable}" in done.lines[-1]


def test_doctor_checks_files_without_writing_them(tmp_path: Path) -> None:
    """A trace file is tried, and no test span gets into it."""
    file = tmp_path / "trace.jsonl"
    exporter = {"OTEL_TRACES_EXPORTER": "otlp_jsonl", "OTEL_PYTHON_TILELANG_FILE": str(file)}
    code, found = report(exporter)
    assert (code, found["test_span"][0]["target"]) == (0, str(file))
    assert not file.exists()
    code, found = report(exporter | {"OTEL_PYTHON_TILELANG_FILE": str(tmp_path / "no" / "file")})
    assert (code, found["test_span"][0]["is_accepted"]) == (1, False)


def test_doctor_follows_the_config_file(tmp_path: Path) -> None:
    """What ``OTEL_CONFIG_FILE`` configures is what the test span goes through."""
    pytest.importorskip("opentelemetry.configuration")
    file = tmp_path / "otel.yaml"

    def write(endpoint: str) -> dict[str, str]:
        file.write_text(
            "file_format: '1.0'\ntracer_provider:\n  processors:\n"
            f"    - batch: {{exporter: {{otlp_grpc: {{endpoint: '{endpoint}'}}}}}}\n"
        )
        return {"OTEL_CONFIG_FILE": str(file)}

    with OTLPReceiver() as receiver:
        code, found = report(write(receiver.endpoint))
        receiver.wait_for(1)
    assert (code, found["config_file"]) == (0, str(file))
    with RefusingEndpoint() as endpoint:
        code, found = report(write(endpoint.endpoint), "--timeout", "3")
    assert (code, found["test_span"][0]["what"]) == (1, "connection refused")


def test_doctor_tells_settings_from_defaults() -> None:
    """Each setting is shown with where it comes from; a wrong value counts as unset."""
    _, found = report(
        {
            "OTEL_PYTHON_TILELANG_INCLUDE": "tirx.*,tl.*",
            "OTEL_PYTHON_TILELANG_PART_AGE": "soon",
        },
        "--no-send",
    )
    settings = {item["variable"]: item for item in found["settings"]}
    assert settings["OTEL_PYTHON_TILELANG_INCLUDE"] == {
        "variable": "OTEL_PYTHON_TILELANG_INCLUDE",
        "value": "tirx.*,tl.*",
        "is_default": False,
    }
    assert settings["OTEL_PYTHON_TILELANG_PART_AGE"]["is_default"]
    assert any(
        warning.startswith("OTEL_PYTHON_TILELANG_PART_AGE='soon'") for warning in found["warnings"]
    )


def test_doctor_on_a_narrow_terminal_keeps_to_its_width() -> None:
    """The tables fit into 80 columns, without colour where there is no terminal."""
    done = doctor(GRPC | {"COLUMNS": "80"}, "--no-send")
    tables = [line for line in done.lines if not line.startswith(("warning", "failed"))]
    assert max(len(line.rstrip()) for line in tables) <= 80
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "nothing says where traces go"),
        ({"OTEL_TRACES_EXPORTER": "none"}, "OTEL_TRACES_EXPORTER=none"),
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED=true switches"),
        (GRPC | {"OTEL_TRACES_SAMPLER": "always_off"}, "records nothing"),
        (
            GRPC | {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
            "records nothing",
        ),
        (
            GRPC | {"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"},
            "TRACEPARENT says",
        ),
        ({ENDPOINT: "http://a:4318"}, "port 4318 is usually http/protobuf"),
        (HTTP | {ENDPOINT: "http://a:4317"}, "port 4317 is usually grpc"),
        (HTTP | {TRACES_ENDPOINT: "http://a:4318"}, "does not end with /v1/traces"),
        (HTTP | {ENDPOINT: "http://a:4318/v1/traces"}, "leave it out"),
        ({ENDPOINT: "http://a:4317/v1/traces"}, "gRPC has no paths"),
        ({ENDPOINT: "https://localhost:4317"}, "usually speaks plain http"),
        (
            {ENDPOINT: "https://a:4317", "OTEL_EXPORTER_OTLP_INSECURE": "true"},
            "OTEL_EXPORTER_OTLP_INSECURE has no effect",
        ),
        (GRPC | {"OTEL_EXPORTER_OTLP_TIMEOUT": "10000"}, "read as seconds"),
        (GRPC | {"OTEL_EXPORTER_OTLP_ENDPIONT": "x"}, "OTEL_EXPORTER_OTLP_ENDPOINT is meant"),
        (GRPC | {"OTEL_PYTHON_TILELANG_INCLUD": "x"}, "OTEL_PYTHON_TILELANG_INCLUDE is meant"),
        (GRPC | {"OTEL_EXPORTER_JAEGER_ENDPOINT": "x"}, "for Jaeger set"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_advice_names_the_classic_mistake(variables: dict[str, str], says: str) -> None:
    """Each mistake that is a right value in the wrong place has one line of its own."""
    [line] = advise(read_environment(variables))
    assert says in line


@pytest.mark.parametrize(
    "variables",
    [
        GRPC,
        HTTP | {ENDPOINT: "http://collector:4318/"},
        HTTP | {TRACES_ENDPOINT: "https://collector/otlp/v1/traces"},
        GRPC | {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
        GRPC | {"OTEL_EXPORTER_OTLP_LOGS_HEADERS": "a=b", "OTEL_BSP_SCHEDULE_DELAY": "100"},
        {"OTEL_TRACES_EXPORTER": "console"},
    ],
)
def test_advice_on_what_is_right_is_silent(variables: dict[str, str]) -> None:
    """Nobody is warned about what works."""
    assert advise(read_environment(variables)) == []


def test_advice_names_a_proxy_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that would take spans for localhost is named, unless it is told not to."""
    for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://user:pa55word@proxy:3128")
    environment = read_environment({ENDPOINT: "http://localhost:4317"})
    [line] = advise(environment)
    assert "add localhost to NO_PROXY" in line
    assert "pa55word" not in line
    monkeypatch.setenv("NO_PROXY", "localhost")
    assert advise(environment) == []


def test_advice_names_a_missing_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that is not installed is named with its package."""
    monkeypatch.setattr(
        "tilelang_otel.cli._doctor.advice.installed_names", lambda group: frozenset[str]()
    )
    [line] = advise(read_environment(HTTP | {ENDPOINT: "http://collector:4318"}))
    assert "pip install opentelemetry-exporter-otlp-proto-http" in line


def test_bundled_tvm_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The TVM inside TileLang is found although ``import tvm`` would fail."""
    package = tmp_path / "tilelang"
    bundled = package / "3rdparty" / "tvm" / "python" / "tvm"
    bundled.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (bundled / "version.py").write_text('__version__ = "0.25.dev0"\n')
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [importlib.machinery.PathFinder])
    for name in ("tvm", "tilelang"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = {compiler.name: compiler for compiler in find_compilers()}
    assert found["tvm"].version == "0.25.dev0"
    assert "after `import tilelang`" in found["tvm"].kind
    assert found["tilelang"].location == str(package)
