"""Which exporters are in force, and where they send to: for whoever has to say so.

Nothing here loads the SDK or an exporter.
"""

from __future__ import annotations

import os

from tilelang_otel._config import read_settings
from tilelang_otel._otel.environment import OtelEnvironment, read_environment

__all__ = ["exporter_names", "exporters_in_force", "target_of"]


def exporters_in_force(default_exporter: str = "otlp") -> list[tuple[str, str]]:
    """Return which exporters ``configure()`` would use, and where they send to.

    Args:
        default_exporter: As for ``configure()``.

    Returns:
        Names of entry points, each with its target, free of secrets. What
        ``OTEL_CONFIG_FILE`` says is not looked at.
    """
    environment = read_environment()
    names = exporter_names(environment, default_exporter)
    return [(name, target_of(environment, name)) for name in names]


def exporter_names(environment: OtelEnvironment, default: str) -> tuple[str, ...]:
    """Return the exporters of traces; ``default`` counts when nothing says where to."""
    return environment.exporters(default="otlp" if environment.has_endpoint else default)


def target_of(environment: OtelEnvironment, exporter: str) -> str:
    """Return where an exporter's spans go, with nothing secret in it."""
    target = environment.otlp_target(exporter)
    if target is not None:
        return target.shown
    return os.path.abspath(read_settings().file) if exporter == "otlp_jsonl" else exporter
