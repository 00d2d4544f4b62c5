"""The real OpenTelemetry Collector, with the production configuration that ships.

Owns starting it and what it says of itself; building the program is up to
``deploy/production/collector/collector.sh``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.receiver import Protocol
from tests.support.services import Service, fetch, free_ports

__all__ = ["COLLECTOR_FOLDER", "Collector", "find_collector", "samples"]

COLLECTOR_FOLDER = Path(__file__).parents[2] / "deploy" / "production" / "collector"

_BUILD_TIMEOUT_S = 1200


def find_collector() -> str:
    """Return the path of the Collector, building it where there is none."""
    done = subprocess.run(
        [COLLECTOR_FOLDER / "collector.sh", "path"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=True,
    )
    return done.stdout.strip()


class Collector:
    """The Collector on free ports of 127.0.0.1.

    Args:
        folder: Where its log and its queue go.
        jaeger_endpoint: Where Jaeger takes OTLP over gRPC.
        variants: Configurations to use beside ``config``, by name or path.
        environment: Variables that the configuration reads, beside addresses.
        config: The first configuration.
    """

    def __init__(
        self,
        folder: Path,
        jaeger_endpoint: str,
        variants: Iterable[str | Path] = (),
        environment: Mapping[str, str] | None = None,
        config: str | Path = "config.yaml",
    ) -> None:
        grpc, http, health, metrics, span_metrics, programs = free_ports(6)
        self._grpc = grpc
        self._http = http
        self.metrics_port = metrics
        self.span_metrics_port = span_metrics
        self.program_metrics_port = programs
        # Building it is not part of starting it.
        program = find_collector()
        # As the README says, but for the first tier, which has no script.
        command: list[str | Path] = (
            [COLLECTOR_FOLDER / "collector.sh"]
            if config == "config.yaml"
            else [program, f"--config=file:{COLLECTOR_FOLDER / config}"]
        )
        command += [f"--config=file:{COLLECTOR_FOLDER / name}" for name in variants]
        self.service = Service(
            "the Collector",
            command,
            {
                "COLLECTOR_OTLP_GRPC_PORT": str(grpc),
                "COLLECTOR_OTLP_HTTP_PORT": str(http),
                "COLLECTOR_HEALTH_PORT": str(health),
                "COLLECTOR_METRICS_PORT": str(metrics),
                "COLLECTOR_SPAN_METRICS_PORT": str(span_metrics),
                "COLLECTOR_PROGRAM_METRICS_PORT": str(programs),
                "COLLECTOR_QUEUE_DIR": str(folder / "queue"),
                "JAEGER_OTLP_ENDPOINT": jaeger_endpoint.removeprefix("http://"),
                "COLLECTOR_DECISION_WAIT": "2s",
                "COLLECTOR_METRICS_INTERVAL": "1s",
                **(environment or {}),
            },
            lambda: fetch(f"http://127.0.0.1:{health}/"),
            folder / "collector.log",
        )

    def endpoint(self, protocol: Protocol, scheme: str = "http") -> str:
        """Return where it takes OTLP.

        Args:
            protocol: How.
            scheme: ``http`` or ``https``.
        """
        return f"{scheme}://127.0.0.1:{self._grpc if protocol == 'grpc' else self._http}"

    def environment(self, protocol: Protocol, service: str, scheme: str = "http") -> dict[str, str]:
        """Return the variables that make a program send its traces here.

        Args:
            protocol: How.
            service: The service's name.
            scheme: ``http`` or ``https``.
        """
        return {
            "OTEL_SERVICE_NAME": service,
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint(protocol, scheme),
        }

    def own_metric(self, name: str, **labels: str) -> float:
        """Return the sum of what it counts about itself.

        Args:
            name: The metric.
            **labels: Those that a sample has to have.
        """
        return sum(
            value
            for found, value in samples(fetch(f"http://127.0.0.1:{self.metrics_port}/metrics"))
            if found.startswith(f"{name}{{")
            and all(f'{key}="{wanted}"' in found for key, wanted in labels.items())
        )


def samples(text: str) -> list[tuple[str, float]]:
    """Return the samples in a page of metrics, each as its name with labels, and its value.

    Args:
        text: Prometheus's text format.
    """
    found: list[tuple[str, float]] = []
    for line in text.splitlines():
        match = re.match(r"(\w+(?:\{.*\})?) (\S+)(?: .*)?$", line)
        if match and not line.startswith("#"):
            found.append((match[1], float(match[2])))
    return found
