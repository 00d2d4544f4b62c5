"""What cannot run here, because there is no Docker and no cluster, is at least as it should be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.require import require_distribution

require_distribution("PyYAML")

import yaml  # noqa: E402

_DEPLOY = Path(__file__).parents[2] / "deploy"

_COMPOSE_FILES = sorted(_DEPLOY.glob("*/compose.yaml"))


def _services() -> list[Any]:
    return [
        pytest.param(file.parent, service, id=f"{file.parent.name}-{name}")
        for file in _COMPOSE_FILES
        for name, service in yaml.safe_load(file.read_text())["services"].items()
    ]


@pytest.mark.parametrize(("folder", "service"), _services())
def test_service_is_pinned_unprivileged_and_local(folder: Path, service: dict[str, Any]) -> None:
    """Images have an exact version, ports are this machine's, and nothing has privileges."""
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+(@sha256:[0-9a-f]{64})?", service["image"])
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:")
    assert not service.get("privileged")
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("cap_add", ())) <= {"CHOWN"}
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["mem_limit"]
    assert service["cpus"]
    for volume in service.get("volumes", ()):
        source, _, mode = volume.split(":") if volume.count(":") == 2 else (*volume.split(":"), "")
        if source.startswith("."):
            assert mode == "ro", f"{volume}: what ships is not written to"
            assert (folder / source).exists()


@pytest.mark.parametrize("file", _COMPOSE_FILES, ids=lambda file: file.parent.name)
def test_compose_file_has_health_checks_where_an_image_can_ask(file: Path) -> None:
    """Only the Collector's image has nothing that could ask, and the one that ends needs none."""
    services = yaml.safe_load(file.read_text())["services"]
    without = {name for name, service in services.items() if "healthcheck" not in service}
    assert without <= {"collector", "volume-owners"}


@pytest.mark.parametrize(
    "readme", sorted(_DEPLOY.glob("*/README.md")), ids=lambda file: file.parent.name
)
def test_readme_names_only_variables_and_files_that_exist(readme: Path) -> None:
    """A setting that was renamed cannot be forgotten in the text."""
    text = readme.read_text()
    configured = "\n".join(
        path.read_text()
        for path in _DEPLOY.rglob("*")
        if path.is_file() and path.suffix in (".yaml", ".sh", ".json", ".env")
    )
    for name in set(re.findall(r"\b(?:JAEGER|COLLECTOR|PROMETHEUS|SAMPLERS)_[A-Z_]+\b", text)):
        assert name in configured, f"{readme}: nothing reads {name}"
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (readme.parent / target).exists(), f"{readme}: no {target}"


def test_collector_versions_agree() -> None:
    """The Collector of the image is of the release that the tests build."""
    production = _DEPLOY / "production"
    services = yaml.safe_load((production / "compose.yaml").read_text())["services"]
    tag = services["collector"]["image"].rpartition(":")[2]
    module = (production / "collector" / "go.mod").read_text()
    assert f"go.opentelemetry.io/collector/otelcol v{tag}\n" in module
    assert f'const version = "{tag}"' in (production / "collector" / "main.go").read_text()
