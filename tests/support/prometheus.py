"""The real Prometheus, with the configuration and rules that ship.

Owns starting it with the addresses of a test's servers, and queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.services import Service, fetch, fetch_json, free_ports

__all__ = ["PROMETHEUS_FOLDER", "Prometheus"]

PROMETHEUS_FOLDER = Path(__file__).parents[2] / "deploy" / "production" / "prometheus"


class Prometheus:
    """Prometheus on a free port of 127.0.0.1.

    Args:
        folder: Where its data goes.
    """

    def __init__(self, folder: Path) -> None:
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        # The files that ship, but for the addresses: those are files of their own.
        for name in ("prometheus.yaml", "rules"):
            (folder / name).symlink_to(PROMETHEUS_FOLDER / name)
        (folder / "targets").mkdir()
        self.service = Service(
            "Prometheus",
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--enable-feature=exemplar-storage",
            ],
            {},
            lambda: fetch(f"{self.url}/-/ready"),
            folder / "prometheus.log",
        )

    def scrape(self, ports: Mapping[str, int]) -> None:
        """Say where there is something to scrape.

        Args:
            ports: Port on 127.0.0.1 of each of the configuration's jobs.
        """
        for job, port in ports.items():
            path = self._folder / "targets" / f"{job}.yaml"
            path.write_text(f'- targets: ["127.0.0.1:{port}"]\n')

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and values of a query's result; values that are no number are left out.

        Args:
            expression: PromQL.
        """
        answer = fetch_json(f"{self.url}/api/v1/query", {"query": expression})
        found = [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]
        return [(labels, value) for labels, value in found if not math.isnan(value)]

    def exemplars(self, expression: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """Return the exemplars of a query's series.

        Args:
            expression: PromQL.
            start_s: From when on, in seconds since the epoch.
            end_s: Until when.
        """
        answer = fetch_json(
            f"{self.url}/api/v1/query_exemplars",
            {"query": expression, "start": int(start_s), "end": int(end_s) + 1},
        )
        return [exemplar for series in answer["data"] for exemplar in series["exemplars"]]
