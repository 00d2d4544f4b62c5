"""The Collector as it ships: what it keeps, what it thins, whom it lets in, what it never loses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collector import COLLECTOR_FOLDER, Collector, samples
from tests.support.compiles import compile_span, failed_compile, request, send
from tests.support.jaeger import Jaeger, production_jaeger
from tests.support.program_metrics import ProgramMetrics
from tests.support.receiver import PROTOCOLS, Protocol
from tests.support.require import require_tool, require_tvm
from tests.support.services import fetch, poll_until
from tests.support.spans import outline
from tests.support.zero_code import run_zero_code

_DECIDED = "otelcol_processor_tail_sampling_global_count_traces_sampled"
_KEEP_ALL = {"COLLECTOR_KEEP_PERCENT": "100"}


@pytest.fixture(scope="module", autouse=True)
def go(installed: None) -> None:
    """Skip where the Collector cannot be built."""
    require_tool("go")


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Jaeger, Collector]]:
    """Compiles of every kind, sent through the Collector with its own defaults, and judged."""
    folder = tmp_path_factory.mktemp("sampled")
    jaeger = production_jaeger(folder)
    collector = Collector(folder, jaeger.grpc_endpoint)
    with jaeger.service, collector.service:
        here = collector.endpoint("grpc")
        send(here, "failing", [failed_compile("matmul") for _ in range(12)])
        send(here, "slow", [compile_span("matmul", 5.1) for _ in range(12)])
        send(here, "serving", [request("matmul") for _ in range(12)])
        send(here, "serving-misses", [request("matmul", "miss") for _ in range(12)])
        send(here, "fast", [compile_span("matmul", 4.9) for _ in range(100)])
        send(here, "serving-warm", [request("matmul", "disk") for _ in range(100)])
        poll_until(lambda: collector.own_metric(_DECIDED) == 248, "all 248 traces to be judged", 60)
        kept = collector.own_metric(_DECIDED, sampled="true")
        services = ("failing", "slow", "serving", "serving-misses", "fast", "serving-warm")
        poll_until(
            lambda: sum(len(jaeger.traces(service)) for service in services) == kept,
            f"the {kept:g} traces that were kept in Jaeger",
        )
        yield jaeger, collector


@pytest.mark.parametrize("service", ["failing", "slow", "serving", "serving-misses"])
def test_trace_that_matters_is_kept(service: str, sampled: tuple[Jaeger, Collector]) -> None:
    """Every failure, every slow compile and every compile inside a request is in Jaeger."""
    jaeger, _ = sampled
    assert len(jaeger.traces(service)) == 12


@pytest.mark.parametrize("service", ["fast", "serving-warm"])
def test_rest_is_thinned(service: str, sampled: tuple[Jaeger, Collector]) -> None:
    """About one in ten of the others is kept: more than 40 of 100 has no chance."""
    jaeger, _ = sampled
    assert 1 <= len(jaeger.traces(service)) <= 40


def test_kept_trace_is_whole(sampled: tuple[Jaeger, Collector]) -> None:
    """Sampling keeps or drops a trace, never a part of it."""
    jaeger, _ = sampled
    assert {tuple(outline(trace)) for trace in jaeger.traces("failing")} == {
        ("compile matmul!", "  Lower!")
    }
    assert {tuple(outline(trace)) for trace in jaeger.traces("serving")} == {
        ("POST /generate", "  compile matmul")
    }


def test_failures_are_found_as_the_alert_says(sampled: tuple[Jaeger, Collector]) -> None:
    """The search that the alert's text gives finds every failed compile."""
    jaeger, _ = sampled
    assert len(jaeger.traces("failing", tags='{"error":"true"}')) == 12


def test_nothing_is_lost_while_jaeger_is_away_and_the_collector_is_killed(tmp_path: Path) -> None:
    """What waits for Jaeger waits on disk, and is there when both are back."""
    jaeger = production_jaeger(tmp_path)
    collector = Collector(tmp_path, jaeger.grpc_endpoint, environment=_KEEP_ALL)
    with collector.service:
        send(collector.endpoint("grpc"), "patient", [failed_compile("matmul") for _ in range(300)])
        poll_until(lambda: collector.own_metric(_DECIDED) == 300, "the traces to be judged", 60)
        poll_until(
            lambda: collector.own_metric("otelcol_exporter_queue_size") > 0, "the queue to fill"
        )
        # Without a chance to say goodbye.
        collector.service.kill()
        with jaeger.service:
            collector.service.start()
            poll_until(lambda: len(jaeger.traces("patient")) == 300, "all 300 traces in Jaeger", 90)
            assert sum(len(trace) for trace in jaeger.traces("patient")) == 600


def test_real_compile_goes_through_whole(tmp_path: Path) -> None:
    """A failing compile of TVM arrives with every span that it has without the Collector."""
    require_tvm()
    jaeger = production_jaeger(tmp_path)
    collector = Collector(tmp_path, jaeger.grpc_endpoint)
    with jaeger.service, collector.service:
        for protocol in PROTOCOLS:
            service = f"through-{protocol[:4]}"
            done = run_zero_code(
                "passes.py", cwd=tmp_path, environment=collector.environment(protocol, service)
            )
            assert done.returncode == 0, done.stderr
            assert outline(jaeger.wait_for_trace(service, spans=7)) == [
                "PassContext",
                "  pipeline!",
                "    Prepare",
                "    lower!",
                "      Legalize",
                "        Simplify",
                "      Lower!*",
            ]


def test_real_compile_inside_a_request_is_kept_and_a_fast_one_is_not(tmp_path: Path) -> None:
    """What the Collector looks for in a trace is what real compiles have."""
    require_tvm()
    jaeger = production_jaeger(tmp_path)
    collector = Collector(
        tmp_path, jaeger.grpc_endpoint, environment={"COLLECTOR_KEEP_PERCENT": "0"}
    )
    with jaeger.service, collector.service:
        for program, service in (("compile.py", "nobody-waited"), ("request.py", "server")):
            done = run_zero_code(
                program, cwd=tmp_path, environment=collector.environment("grpc", service)
            )
            assert done.returncode == 0, done.stderr
        spans = jaeger.wait_for_trace("server", spans=50)
        assert outline(spans)[:2] == ["POST /scale", "  compile scale"]
        poll_until(lambda: collector.own_metric(_DECIDED) == 2, "both traces to be judged")
        assert jaeger.services() == {"server"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_receiver_with_tls_and_token_takes_spans_of_those_who_know_it(
    protocol: Protocol, tmp_path: Path
) -> None:
    """With both variants on, the README's variables are what it takes; without the token,
    nothing gets in, and the program does not mind."""
    require_tvm()
    require_tool("openssl")
    secrets = tmp_path / "secrets"
    subprocess.run([COLLECTOR_FOLDER / "make-secrets.sh", secrets], check=True, timeout=60)
    token = (secrets / "tokens").read_text().split()[0]
    jaeger = production_jaeger(tmp_path)
    collector = Collector(
        tmp_path,
        jaeger.grpc_endpoint,
        ["auth.yaml", "tls.yaml"],
        {
            **_KEEP_ALL,
            "COLLECTOR_TOKENS_FILE": str(secrets / "tokens"),
            "COLLECTOR_TLS_CERT_FILE": str(secrets / "tls.crt"),
            "COLLECTOR_TLS_KEY_FILE": str(secrets / "tls.key"),
        },
    )
    trusting = {
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(secrets / "tls.crt"),
        # Where they are set, Python's HTTP client believes them instead.
        "REQUESTS_CA_BUNDLE": "",
        "CURL_CA_BUNDLE": "",
    }
    knowing = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{token}"}
    wrong = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20guessed"}
    with jaeger.service, collector.service:
        for service, extra in (
            ("no-token", trusting),
            ("wrong-token", {**trusting, **wrong}),
            ("welcome", {**trusting, **knowing}),
        ):
            done = run_zero_code(
                "passes.py",
                cwd=tmp_path,
                environment={
                    **collector.environment(protocol, service, "https"),
                    **extra,
                    "OTEL_EXPORTER_OTLP_TIMEOUT": "30",
                },
            )
            assert (done.returncode, done.stdout) == (0, "failed: cannot lower loop i\n")
        jaeger.wait_for_trace("welcome", spans=7)
        assert jaeger.services() == {"welcome"}
        # Nobody is served in plain text.
        done = run_zero_code(
            "passes.py",
            cwd=tmp_path,
            environment={
                **collector.environment(protocol, "plain"),
                **knowing,
                "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
            },
        )
        assert (done.returncode, done.stdout) == (0, "failed: cannot lower loop i\n")
        assert collector.own_metric("otelcol_receiver_accepted_spans") == 7


def test_two_tiers_judge_whole_traces(tmp_path: Path) -> None:
    """The gateway gives both Collectors work, and never splits a trace between them."""
    scaled = COLLECTOR_FOLDER.parent / "scaled"
    jaeger = production_jaeger(tmp_path)
    folders = [tmp_path / "one", tmp_path / "two", tmp_path / "gateway"]
    for folder in folders:
        folder.mkdir()
    samplers = [Collector(folder, jaeger.grpc_endpoint) for folder in folders[:2]]
    # In place of gateway-dns.yaml: here, both have the same address.
    resolver = tmp_path / "resolver.yaml"
    addresses = [each.endpoint("grpc").removeprefix("http://") for each in samplers]
    to_both = {"resolver": {"static": {"hostnames": addresses}}}
    resolver.write_text(
        json.dumps({"exporters": {"loadbalancing": to_both, "loadbalancing/metrics": to_both}})
    )
    gateway = Collector(
        folders[2], "http://127.0.0.1:9", [resolver], config=scaled / "gateway.yaml"
    )
    with jaeger.service, samplers[0].service, samplers[1].service, gateway.service:
        made = [request("matmul") for _ in range(200)]
        spans = send(gateway.endpoint("grpc"), "scaled", made)
        poll_until(lambda: len(jaeger.traces("scaled")) == 200, "all 200 traces in Jaeger", 60)
        assert {tuple(outline(trace)) for trace in jaeger.traces("scaled")} == {
            ("POST /generate", "  compile matmul")
        }
        received = [each.own_metric("otelcol_receiver_accepted_spans") for each in samplers]
        assert sum(received) == spans == 400
        assert min(received) > 50
        # A trace in two places would have been judged twice.
        assert sum(each.own_metric(_DECIDED) for each in samplers) == 200

        # So are the metrics of a process, which would be two that each know a part.
        with ProgramMetrics(gateway.endpoint("grpc"), "scaled", 1) as program:
            program.count()
            program.count()
            pages = [f"http://127.0.0.1:{each.program_metrics_port}/metrics" for each in samplers]

            def counted() -> list[float]:
                return [
                    value
                    for page in pages
                    for name, value in samples(fetch(page))
                    if name.startswith("tilelang_compile_after_warmup_total{")
                ]

            poll_until(lambda: counted() == [2], "what was counted, in one place", 30)


def test_gateway_finds_the_second_tier_by_name(tmp_path: Path) -> None:
    """With the resolver that ships, a name is enough."""
    scaled = COLLECTOR_FOLDER.parent / "scaled"
    jaeger = production_jaeger(tmp_path)
    folders = [tmp_path / "one", tmp_path / "gateway"]
    for folder in folders:
        folder.mkdir()
    sampler = Collector(folders[0], jaeger.grpc_endpoint, environment=_KEEP_ALL)
    gateway = Collector(
        folders[1],
        "http://127.0.0.1:9",
        [scaled / "gateway-dns.yaml"],
        {"SAMPLERS_HOST": "localhost", "SAMPLERS_PORT": sampler.endpoint("grpc").split(":")[-1]},
        scaled / "gateway.yaml",
    )
    with jaeger.service, sampler.service, gateway.service:
        send(gateway.endpoint("grpc"), "by-name", [compile_span("matmul")])
        jaeger.wait_for_trace("by-name")
