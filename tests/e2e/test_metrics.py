"""Metrics of real and made-up compiles, from the Collector to Prometheus, Grafana and Jaeger.

Those that the Collector makes from spans, and those that programs count themselves.

One run feeds all tests here: compiles of every kind go through the Collector
in two waves, so that there is a rate between two scrapes.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.collector import Collector
from tests.support.compiles import failed_compile, request, send, whole_compile
from tests.support.jaeger import Jaeger, production_jaeger
from tests.support.program_metrics import ProgramMetrics
from tests.support.prometheus import PROMETHEUS_FOLDER, Prometheus
from tests.support.require import require_tool, require_tvm
from tests.support.services import fetch_json, poll_until
from tests.support.zero_code import run_zero_code
from tilelang_otel import semconv

_DASHBOARD = PROMETHEUS_FOLDER.parent / "grafana" / "dashboards" / "compiles.json"
_RULE_TESTS = Path(__file__).parent / "rules"

_SERVICE = "trainer"

_TRACE_ID = 0x1234567890ABCDEF1234567890ABCDEF
"""What made-up exemplars link."""

_OTHER_LABELS = {
    # of every span metric, from the Collector
    "service_name",
    "span_name",
    "span_kind",
    "status_code",
    # of Prometheus, and of what the Collector says of itself
    "__name__",
    "le",
    "job",
    "instance",
    "exporter",
    "receiver",
}


@dataclass(frozen=True)
class Stack:
    """What runs."""

    jaeger: Jaeger
    collector: Collector
    prometheus: Prometheus
    started_s: float


@pytest.fixture(scope="module")
def stack(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The production stack, after two waves of compiles, each of them scraped."""
    require_tool("go")
    require_tool("prometheus")
    require_tvm()
    folder = tmp_path_factory.mktemp("stack")
    started_s = time.time()
    prometheus = Prometheus(folder)
    jaeger = production_jaeger(folder, prometheus.url)
    collector = Collector(
        folder,
        jaeger.grpc_endpoint,
        # As it ships: exemplars last for one interval, which is Prometheus's too.
        environment={"COLLECTOR_METRICS_INTERVAL": "15s"},
    )
    prometheus.scrape(
        {
            "span-metrics": collector.span_metrics_port,
            "programs": collector.program_metrics_port,
            "collector": collector.metrics_port,
            "jaeger": jaeger.metrics_port,
        }
    )
    endpoint = collector.endpoint("grpc")
    with (
        jaeger.service,
        collector.service,
        prometheus.service,
        ProgramMetrics(endpoint, _SERVICE, _TRACE_ID) as program,
    ):
        for wave in (1, 2):
            program.count()
            send(endpoint, _SERVICE, [whole_compile("matmul") for _ in range(10)])
            send(endpoint, _SERVICE, [whole_compile("matmul", "disk") for _ in range(5)])
            send(endpoint, _SERVICE, [failed_compile("attention") for _ in range(3)])
            send(endpoint, "server", [request("attention", "miss") for _ in range(4)])
            variables = {**collector.environment("grpc", "real"), "OTEL_METRICS_EXPORTER": "otlp"}
            done = run_zero_code("compile.py", cwd=folder, environment=variables)
            assert done.returncode == 0, done.stderr
            real = 'traces_span_metrics_calls_total{service_name="real",span_name="link"}'

            own = 'sum(tilelang_compile_duration_seconds_count{service_name="real"})'

            def wave_is_scraped(wave: int = wave, queries: tuple[str, ...] = (real, own)) -> bool:
                found = [prometheus.query(query) for query in queries]
                return [value for [(_, value)] in found] == [wave, wave]

            poll_until(wave_is_scraped, f"wave {wave} in Prometheus", 90)
        yield Stack(jaeger, collector, prometheus, started_s)


def test_every_compile_is_counted_whether_its_trace_is_kept_or_not(stack: Stack) -> None:
    """Metrics are made before sampling."""

    def count(labels: str) -> float:
        query = f"sum(traces_span_metrics_calls_total{{{labels}}})"
        [(_, value)] = stack.prometheus.query(query)
        return value

    assert count(f'service_name="{_SERVICE}",span_name="compile matmul"') == 30
    assert (
        count(
            f'service_name="{_SERVICE}",span_name=~"compile.*",status_code="STATUS_CODE_ERROR",'
            'error_type="ValueError"'
        )
        == 6
    )
    assert count('tilelang_cache_result="disk"') == 10
    assert count('process_executable_name="nvcc"') == 30
    assert count('service_name="real",tvm_pass_phase="relax",tvm_pass_name="LegalizeOps"') == 2


def test_self_time_is_summed_by_pass(stack: Stack) -> None:
    """What the spans say of the time in a pass itself adds up exactly."""
    found = stack.prometheus.query(
        "sum by (tvm_pass_name) (traces_span_metrics_self_duration_seconds_total"
        f'{{service_name="{_SERVICE}"}})'
    )
    assert {labels["tvm_pass_name"]: round(value, 6) for labels, value in found} == {
        "tirx.BindTarget": 0.3,
        "tl.LayoutInference": 1.5,
    }


def test_programs_count_for_themselves_and_are_told_apart(stack: Stack) -> None:
    """Two runs of a program, each with series of its own: what both counted adds up."""
    found = stack.prometheus.query(
        'tvm_pass_duration_seconds_count{service_name="real", tvm_pass_name="LegalizeOps"}'
    )
    assert [value for _, value in found] == [1, 1]
    assert len({labels["instance"] for labels, _ in found}) == 2
    assert {labels["tvm_pass_phase"] for labels, _ in found} == {"relax"}
    counted = {
        labels["tilelang_cache_result"]: value
        for labels, value in stack.prometheus.query(
            f'tilelang_cache_lookups_total{{service_name="{_SERVICE}"}}'
        )
    }
    assert counted == {"miss": 2, "disk": 2}
    [(_, after)] = stack.prometheus.query("sum(tilelang_compile_after_warmup_total)")
    assert after == 2


def test_exemplars_of_programs_come_through(stack: Stack) -> None:
    """With the trace that they were counted in."""
    for metric in ("tvm_pass_duration_seconds", "tilelang_compile_duration_seconds"):
        found = stack.prometheus.exemplars(
            f'{metric}_bucket{{service_name="{_SERVICE}"}}', stack.started_s, time.time()
        )
        assert {exemplar["labels"]["trace_id"] for exemplar in found} == {f"{_TRACE_ID:032x}"}


def test_exemplars_lead_to_traces(stack: Stack) -> None:
    """A dot in a graph is a compile, with the id that Jaeger knows it by."""
    failed = {trace[0].trace_id for trace in stack.jaeger.traces(_SERVICE)}
    exemplars = poll_until(
        lambda: stack.prometheus.exemplars(
            f'traces_span_metrics_duration_milliseconds_bucket{{service_name="{_SERVICE}"}}',
            stack.started_s,
            time.time(),
        ),
        "exemplars",
    )
    assert failed & {exemplar["labels"]["trace_id"] for exemplar in exemplars}


def test_jaeger_has_a_monitor_tab_for_compiles(stack: Stack) -> None:
    """Jaeger's own page of service performance has numbers from the same span metrics."""
    for name, more in (
        ("calls", {}),
        ("errors", {}),
        ("latencies", {"quantile": "0.95"}),
    ):
        query: dict[str, str | int] = {
            "service": _SERVICE,
            "spanKind": "internal",
            "groupByOperation": "true",
            "endTs": int(time.time() * 1000),
            "lookback": 600_000,
            "step": 15_000,
            "ratePer": 60_000,
            **more,
        }

        def values(name: str = name, query: dict[str, str | int] = query) -> set[str]:
            answer = fetch_json(f"{stack.jaeger.query_url}/api/metrics/{name}", query)
            return {
                label["value"]
                for series in answer["metrics"]
                for label in series["labels"]
                if label["name"] == "operation" and series["metricPoints"]
            }

        operations = poll_until(values, f"Jaeger's {name} by operation")
        assert operations >= ({"compile attention"} if name == "errors" else {"compile matmul"})


def test_everything_is_scraped(stack: Stack) -> None:
    """Each of the configuration's jobs has its targets."""
    up = poll_until(
        lambda: {
            labels["job"]: value
            for labels, value in stack.prometheus.query("max by (job) (up)")
            if value == 1
        },
        "targets",
    )
    assert up == {"span-metrics": 1, "programs": 1, "collector": 1, "jaeger": 1}


def _expressions() -> list[tuple[str, str]]:
    """Return title and query of everything that the dashboard shows or offers."""
    dashboard = json.loads(_DASHBOARD.read_text())
    return [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


def _filled_in(expression: str) -> str:
    """Replace Grafana's variables."""
    replaced = expression.replace("$service", ".*").replace("$kernel", ".*")
    # There is no last week in this run.
    replaced = replaced.replace(" offset 1w", "")
    return replaced.replace("$__range", "10m").replace("$__rate_interval", "2m")


@pytest.mark.parametrize(
    ("title", "expression"), [pytest.param(*each, id=each[0]) for each in _expressions()]
)
def test_dashboard_query_returns_data(title: str, expression: str, stack: Stack) -> None:
    """No panel stays empty."""
    poll_until(
        lambda: stack.prometheus.query(_filled_in(expression)),
        f"data for {title}: {expression}",
        # Recording rules are evaluated every 15 s.
        40,
    )


def test_dashboard_variables_offer_something(stack: Stack) -> None:
    """Services and kernels can be chosen."""
    dashboard = json.loads(_DASHBOARD.read_text())
    for variable in dashboard["templating"]["list"]:
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert match, variable["definition"]
        found = stack.prometheus.query(f"count by ({match[2]}) ({_filled_in(match[1])})")
        assert [labels for labels, _ in found if labels.get(match[2])], variable["name"]


def test_names_in_dashboard_and_rules_are_defined() -> None:
    """A renamed attribute cannot be forgotten here: every label is one of ours, or known."""
    ours = {
        str(value).replace(".", "_")
        for name, value in vars(semconv).items()
        if name in semconv.__all__ and "." in str(value)
    }
    texts = [expression for _, expression in _expressions()]
    texts += [path.read_text() for path in sorted((PROMETHEUS_FOLDER / "rules").glob("*.yaml"))]
    used: set[str] = set()
    for text in texts:
        used |= set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', text))
        for labels in re.findall(r"(?:\bby|\bon)\s*\(([^)]*)\)", text):
            used |= {label.strip() for label in labels.split(",")}
    assert used - ours - _OTHER_LABELS == set()
    assert used & ours, "the pattern finds nothing any more"


def test_metrics_of_programs_are_named_as_they_are_counted() -> None:
    """A panel that adds nothing up shows 0, and an alert for what is not there stays silent."""
    counted = {
        str(value).replace(".", "_") + suffix
        for name, value in vars(semconv).items()
        if name.startswith("METRIC_")
        for suffix in ("", "_total", "_seconds_bucket", "_seconds_sum", "_seconds_count")
    }
    labels = {
        str(value).replace(".", "_")
        for name, value in vars(semconv).items()
        if name.startswith(("TILELANG_", "TVM_"))
    }
    texts = [expression for _, expression in _expressions()]
    rules = PROMETHEUS_FOLDER / "rules" / "programs.yaml"
    texts += re.findall(r"expr: >-\n((?: {10,}.*\n)+)", rules.read_text())
    used = {name for text in texts for name in re.findall(r"\b(?:tilelang|tvm)_\w+", text)}
    assert used - labels <= counted
    assert len(used & counted) > 8


def test_span_metrics_have_the_dimensions_that_exist() -> None:
    """The Collector makes labels of our attributes, and of no name that we do not know."""
    text = (PROMETHEUS_FOLDER.parent / "collector" / "config.yaml").read_text()
    names = re.findall(r"- (?:name|key): ((?:tilelang|tvm|process|error)\.[\w.]+)", text)
    ours: set[Any] = {value for name, value in vars(semconv).items() if name in semconv.__all__}
    assert len(names) > 8
    assert set(names) <= ours


def test_rules_fire_when_they_should() -> None:
    """Prometheus's own test of the rules passes, on the files that ship."""
    require_tool("promtool")
    for command in (
        ["promtool", "check", "config", str(PROMETHEUS_FOLDER / "prometheus.yaml")],
        ["promtool", "test", "rules", *map(str, sorted(_RULE_TESTS.glob("*.yaml")))],
    ):
        done = subprocess.run(command, cwd=_RULE_TESTS, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
