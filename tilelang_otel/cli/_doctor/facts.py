"""What ``doctor`` finds: compilers, versions, settings, and where traces would go.

Owns looking, without importing a compiler and without sending anything. What is
wrong with what is found is up to ``_doctor.advice``.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilelang_otel import environment_variables
from tilelang_otel._config import Settings, as_text, read_settings
from tilelang_otel._otel.environment import OtelEnvironment
from tilelang_otel._otel.targets import exporter_names, target_of
from tilelang_otel._sdk.export_errors import listening
from tilelang_otel.version import __version__

__all__ = [
    "Compiler",
    "Export",
    "Setting",
    "find_compilers",
    "find_exports",
    "find_service_name",
    "find_settings",
    "find_versions",
]

_PACKAGES: Final = (
    "opentelemetry-api",
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-grpc",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-instrumentation",
    "opentelemetry-distro",
    "opentelemetry-configuration",
)


@dataclass(frozen=True)
class Compiler:
    """A compiler that can be traced here."""

    name: str
    version: str | None
    location: str
    kind: str
    """How it got there, in words."""


@dataclass(frozen=True)
class Export:
    """Where one exporter sends traces to."""

    exporter: str
    protocol: str | None
    target: str
    """Free of secrets."""

    variable: str | None
    """The variable that names the target; None for a default."""

    headers: tuple[str, ...]
    """Names only."""

    compression: str | None
    certificate: str | None
    timeout_s: float | None


@dataclass(frozen=True)
class Setting:
    """One setting of this package."""

    variable: str
    value: str
    is_default: bool


def find_compilers() -> list[Compiler]:
    """Return TVM and TileLang, as far as they are installed."""
    found: list[Compiler] = []
    tvm = _directory_of("tvm")
    if tvm is not None:
        version = _version_of("apache-tvm")
        kind = "the distribution apache-tvm" if version else "a source tree, no distribution"
        found.append(Compiler("tvm", version or _version_in(tvm), str(tvm), kind))
    tilelang = _directory_of("tilelang")
    if tilelang is not None:
        version = _version_of("tilelang")
        kind = "the distribution tilelang" if version else "a source tree, no distribution"
        found.append(Compiler("tilelang", version, str(tilelang), kind))
        bundled = tilelang / "3rdparty" / "tvm" / "python" / "tvm"
        if tvm is None and bundled.is_dir():
            kind = "bundled with TileLang: `import tvm` works after `import tilelang`"
            found.append(Compiler("tvm", _version_in(bundled), str(bundled), kind))
    return found


def find_versions() -> dict[str, str | None]:
    """Return the versions of what takes part; None for what is not installed."""
    versions: dict[str, str | None] = {
        "tilelang-otel": __version__,
        "python": platform.python_version(),
    }
    return versions | {name: _version_of(name) for name in _PACKAGES}


def find_exports(environment: OtelEnvironment) -> list[Export]:
    """Return where ``configure()`` would send traces to."""
    return [
        _export(environment, exporter) for exporter in exporter_names(environment, default="otlp")
    ]


def find_service_name(environment: OtelEnvironment) -> str | None:
    """Return what variables and detectors call the service; None when nothing does."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    with environment.applied(), listening([], to="opentelemetry.sdk"):
        name = str(Resource.create().attributes.get(SERVICE_NAME, ""))
    return None if name.startswith("unknown_service") else name


def find_settings() -> tuple[Settings, list[Setting], list[str]]:
    """Return this package's settings as they are, as they are shown, and what is wrong."""
    problems: list[str] = []
    with listening(problems, to="tilelang_otel._config"):
        settings = read_settings()
    found: list[Setting] = []
    for field in dataclasses.fields(Settings):
        variable = f"OTEL_PYTHON_TILELANG_{field.name.removesuffix('_s').upper()}"
        is_given = bool(os.environ.get(variable, "").strip())
        is_wrong = any(problem.startswith(f"{variable}=") for problem in problems)
        value = as_text(field.name, getattr(settings, field.name))
        found.append(Setting(variable, value, is_default=not is_given or is_wrong))
    known = set(environment_variables.__all__)
    return settings, [setting for setting in found if setting.variable in known], problems


def _export(environment: OtelEnvironment, exporter: str) -> Export:
    target = environment.otlp_target(exporter)
    if target is None:
        return Export(exporter, None, target_of(environment, exporter), None, (), None, None, None)

    def get(name: str) -> str | None:
        own = environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}")
        return own or environment.get(f"OTEL_EXPORTER_OTLP_{name}")

    names = [entry.partition("=")[0].strip() for entry in (get("HEADERS") or "").split(",")]
    return Export(
        exporter,
        target.protocol,
        target.shown,
        target.variable,
        tuple(name for name in names if name),
        get("COMPRESSION"),
        get("CERTIFICATE"),
        float(get("TIMEOUT") or 10),
    )


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _directory_of(module: str) -> Path | None:
    """Return where a top-level package is, without importing it."""
    loaded = sys.modules.get(module)
    try:
        spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(module)
    except ValueError:
        return None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def _version_in(package: Path) -> str | None:
    """Return the version that a package without a distribution says it has."""
    for name in ("version.py", "_version.py", "libinfo.py"):
        try:
            text = (package / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        match = re.search(r"""^__version__\s*(?::\s*\w+\s*)?=\s*["']([^"']+)""", text, re.MULTILINE)
        if match:
            return match[1]
    return None
