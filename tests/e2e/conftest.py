"""One Jaeger for all tests that do not stop it, and what has to be installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jaeger import Jaeger
from tests.support.require import require_distribution, require_tool

_BUILD_TIMEOUT_S = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow for building, where `make e2e` has not done that beforehand."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(_BUILD_TIMEOUT_S))


@pytest.fixture(scope="session")
def installed() -> None:
    """Skip everything here that needs Jaeger, where it can neither be found nor built."""
    require_tool("jaeger", "go")
    require_distribution("opentelemetry-distro")
    require_distribution("tilelang-otel")


@pytest.fixture(scope="session")
def jaeger(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """Jaeger as it ships, up for the whole run: each test uses a service name of its own."""
    jaeger = Jaeger(tmp_path_factory.mktemp("jaeger"))
    with jaeger.service:
        yield jaeger
