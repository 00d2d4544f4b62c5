"""The real Jaeger, with the configuration that ships, and its query API.

Owns starting it and decoding what it has stored; finding or building the
program is up to ``deploy/jaeger/jaeger.sh``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.received import ReceivedEvent, ReceivedSpan
from tests.support.receiver import Protocol
from tests.support.services import Service, fetch, fetch_json, free_ports, poll_until

__all__ = ["JAEGER_FOLDER", "PRODUCTION_FOLDER", "Jaeger", "find_jaeger", "production_jaeger"]

JAEGER_FOLDER = Path(__file__).parents[2] / "deploy" / "jaeger"

PRODUCTION_FOLDER = JAEGER_FOLDER.parent / "production" / "jaeger"

_BUILD_TIMEOUT_S = 1800


def find_jaeger() -> str:
    """Return the path of a ``jaeger``, building it where there is none."""
    done = subprocess.run(
        [JAEGER_FOLDER / "jaeger.sh", "path"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=True,
    )
    return done.stdout.strip()


class Jaeger:
    """Jaeger on free ports of 127.0.0.1.

    Args:
        folder: Where its log goes.
        config: The configuration to run; by default the script is run as the README says.
        environment: Variables that the configuration reads, beside addresses.
    """

    def __init__(
        self,
        folder: Path,
        config: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        grpc, http, query, query_grpc, metrics, health = free_ports(6)
        self.grpc_endpoint = f"http://127.0.0.1:{grpc}"
        self.http_endpoint = f"http://127.0.0.1:{http}"
        self.query_url = f"http://127.0.0.1:{query}"
        self.metrics_port = metrics
        health_url = f"http://127.0.0.1:{health}/status"
        # Building it is not part of starting it.
        program = find_jaeger()
        script = [JAEGER_FOLDER / "jaeger.sh"]
        self.service = Service(
            "Jaeger",
            script if config is None else [program, "--config", f"file:{config}"],
            {
                "JAEGER_OTLP_GRPC_PORT": str(grpc),
                "JAEGER_OTLP_HTTP_PORT": str(http),
                "JAEGER_QUERY_PORT": str(query),
                "JAEGER_QUERY_GRPC_PORT": str(query_grpc),
                "JAEGER_METRICS_PORT": str(metrics),
                "JAEGER_HEALTH_PORT": str(health),
                **(environment or {}),
            },
            lambda: "StatusOK" in fetch(health_url) and fetch(f"{self.query_url}/api/services"),
            folder / "jaeger.log",
        )

    def environment(self, protocol: Protocol, service: str) -> dict[str, str]:
        """Return the variables that make a program send its traces here.

        Args:
            protocol: How.
            service: The service's name.
        """
        return {
            "OTEL_SERVICE_NAME": service,
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": (
                self.grpc_endpoint if protocol == "grpc" else self.http_endpoint
            ),
        }

    def services(self) -> set[str]:
        """Return the names of the services that sent something."""
        return set(fetch_json(f"{self.query_url}/api/services")["data"] or ())

    def operations(self, service: str) -> set[str]:
        """Return the span names of a service."""
        return set(fetch_json(f"{self.query_url}/api/services/{service}/operations")["data"] or ())

    def traces(self, service: str, **query: str | int) -> list[list[ReceivedSpan]]:
        """Return the stored traces of a service, each as its spans in start order.

        Args:
            service: The service's name.
            **query: More parameters of the search; by default, up to 1500 traces.
        """
        found = fetch_json(
            f"{self.query_url}/api/traces", {"service": service, "limit": 1500, **query}
        )
        assert not found.get("errors"), found["errors"]
        return [_spans(trace) for trace in found["data"]]

    def wait_for_trace(
        self, service: str, spans: int = 1, timeout_s: float = 30.0
    ) -> list[ReceivedSpan]:
        """Return the only trace of a service, once it has so many spans and is of one piece.

        Spans arrive in batches, those that end last in the last one.

        Args:
            service: The service's name.
            spans: The least number of spans.
            timeout_s: After how many seconds this fails.
        """

        def check() -> list[ReceivedSpan]:
            traces = self.traces(service)
            assert len(traces) == 1, f"{len(traces)} traces of {service}"
            assert len(traces[0]) >= spans, f"{len(traces[0])} spans"
            stored = {span.span_id for span in traces[0]}
            tops = [span.name for span in traces[0] if span.parent_span_id not in stored]
            assert len(tops) == 1, f"spans without their parents: {tops[:5]}"
            return traces[0]

        return poll_until(check, f"a trace of {service} with {spans} spans in Jaeger", timeout_s)


def production_jaeger(folder: Path, prometheus_url: str = "http://127.0.0.1:9090") -> Jaeger:
    """Return Jaeger as it is behind the Collector, with its traces on disk.

    Args:
        folder: Where its log and its traces go.
        prometheus_url: Where its Monitor tab has its numbers from.
    """
    return Jaeger(
        folder,
        PRODUCTION_FOLDER / "config.yaml",
        {
            "JAEGER_STORAGE_DIR": str(folder / "traces"),
            "JAEGER_UI_CONFIG": str(PRODUCTION_FOLDER / "ui.json"),
            "PROMETHEUS_URL": prometheus_url,
        },
    )


def _spans(trace: dict[str, Any]) -> list[ReceivedSpan]:
    """Decode one trace of ``/api/traces``: times are whole microseconds there."""
    resources = {
        key: _attributes(process.get("tags", ())) | {"service.name": process["serviceName"]}
        for key, process in trace["processes"].items()
    }
    spans: list[ReceivedSpan] = []
    for span in sorted(trace["spans"], key=lambda span: span["startTime"]):
        attributes = _attributes(span["tags"])
        parents = [ref["spanID"] for ref in span["references"] if ref["refType"] == "CHILD_OF"]
        start_ns = span["startTime"] * 1000
        spans.append(
            ReceivedSpan(
                name=span["operationName"],
                trace_id=span["traceID"],
                span_id=span["spanID"],
                parent_span_id=parents[0] if parents else "",
                kind=str(attributes.pop("span.kind", "internal")).upper(),
                start_ns=start_ns,
                end_ns=start_ns + span["duration"] * 1000,
                status=str(attributes.pop("otel.status_code", "UNSET")),
                status_message=str(attributes.pop("otel.status_description", "")),
                attributes=attributes,
                events=tuple(_event(log) for log in span["logs"]),
                links=(),
                resource=resources[span["processID"]],
                scope_name=str(attributes.pop("otel.scope.name", "")),
                scope_version=str(attributes.pop("otel.scope.version", "")),
                schema_url="",
            )
        )
    return spans


def _event(log: dict[str, Any]) -> ReceivedEvent:
    fields = _attributes(log["fields"])
    return ReceivedEvent(str(fields.pop("event", "")), log["timestamp"] * 1000, fields)


def _attributes(tags: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return tags as attributes; Jaeger's ``binary`` and ``string`` values stay text."""
    decode: dict[str, Any] = {"int64": int, "float64": float, "bool": bool}
    return {tag["key"]: decode.get(tag["type"], str)(tag["value"]) for tag in tags}
