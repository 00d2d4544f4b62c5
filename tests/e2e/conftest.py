"""One Jaeger for all tests that do not stop it, and what has to be installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.jaeger import Jaeger
from tests.support.require import require_distribution, require_tool


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skip everything here where Jaeger can neither be found nor built."""
    require_tool("jaeger", "go")
    require_distribution("opentelemetry-distro")
    require_distribution("tilelang-otel")


@pytest.fixture(scope="session")
def jaeger(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """Jaeger as it ships, up for the whole run: each test uses a service name of its own."""
    jaeger = Jaeger(tmp_path_factory.mktemp("jaeger"))
    with jaeger.service:
        yield jaeger
