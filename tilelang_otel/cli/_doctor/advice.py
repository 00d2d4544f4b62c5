"""What ``doctor`` warns about: mistakes that are right values in the wrong place.

Owns one check for each classic mistake. Values that are wrong in themselves are
found by ``_otel.environment``, and what only shows when something is sent by
``_doctor.send``.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from tilelang_otel._otel.environment import OtelEnvironment, OtlpTarget
from tilelang_otel._otel.targets import exporter_names
from tilelang_otel._otel.values import OTLP_EXPORTERS, installed_names
from tilelang_otel._otel.variables import COMMON, SIGNALS, otlp_variables

__all__ = ["advise"]

_TRACES_PATH: Final = "/v1/traces"
_NO_SPANS: Final = ("always_off", "parentbased_always_off")
_OURS: Final = "OTEL_PYTHON_TILELANG_"


def advise(environment: OtelEnvironment) -> list[str]:
    """Return a line for each likely mistake. Never raises, and never shows a secret."""
    return [environment.mask(line) for check in _CHECKS for line in check(environment)]


def _otlp_targets(environment: OtelEnvironment) -> Iterator[tuple[OtlpTarget, SplitResult]]:
    for exporter in exporter_names(environment, default="otlp"):
        target = environment.otlp_target(exporter)
        if target is not None:
            yield target, urlsplit(target.url)


def _switched_off(environment: OtelEnvironment) -> Iterator[str]:
    if environment.is_disabled:
        yield "OTEL_SDK_DISABLED=true switches all telemetry off"
    elif environment.get("OTEL_CONFIG_FILE"):
        yield "OTEL_CONFIG_FILE is set: other OTEL_* variables count only where it refers to them"
    elif environment.get("OTEL_TRACES_EXPORTER") == "none":
        yield "OTEL_TRACES_EXPORTER=none: traces are not exported"
    elif not environment.get("OTEL_TRACES_EXPORTER") and not environment.has_endpoint:
        yield (
            "nothing says where traces go: `tilelang-otel run` writes a file, everything else "
            "sends to this machine; OTEL_EXPORTER_OTLP_ENDPOINT chooses a receiver"
        )


def _not_sampled(environment: OtelEnvironment) -> Iterator[str]:
    sampler = environment.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    ratio = environment.get("OTEL_TRACES_SAMPLER_ARG") or "1"
    if sampler in _NO_SPANS or (sampler.endswith("traceidratio") and float(ratio) == 0):
        yield f"OTEL_TRACES_SAMPLER={sampler} records nothing unless a parent is sampled"
    parent = re.fullmatch(r"\s*..-.{32}-.{16}-(..).*", environment.given.get("TRACEPARENT", ""))
    if parent and sampler.startswith("parentbased_") and parent[1][1] in "02468ace":
        yield "TRACEPARENT says that its trace is not sampled, so nothing below it is recorded"


def _packages(environment: OtelEnvironment) -> Iterator[str]:
    installed = installed_names("opentelemetry_traces_exporter")
    for exporter in exporter_names(environment, default="otlp"):
        if exporter in OTLP_EXPORTERS.values() and exporter not in installed:
            package = f"opentelemetry-exporter-{exporter.replace('_', '-')}"
            yield f"the exporter {exporter} is not installed: pip install {package}"
    if environment.get("OTEL_CONFIG_FILE") and not _has("opentelemetry-configuration"):
        yield ("OTEL_CONFIG_FILE is not read: pip install opentelemetry-configuration, or unset it")


def _ports(environment: OtelEnvironment) -> Iterator[str]:
    usual = {"grpc": 4317, "http/protobuf": 4318}
    for target, url in _otlp_targets(environment):
        for protocol, port in usual.items():
            if url.port == port and protocol != target.protocol:
                yield (
                    f"port {port} is usually {protocol}, but {target.protocol} is spoken to "
                    f"{target.shown}: use port {usual[target.protocol]}, or set "
                    f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}"
                )


def _paths(environment: OtelEnvironment) -> Iterator[str]:
    for target, url in _otlp_targets(environment):
        path = url.path.rstrip("/")
        if target.protocol == "grpc":
            if path and url.scheme in ("http", "https"):
                yield f"gRPC has no paths: {path} in {target.variable} is not used"
        elif target.variable == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":
            if not path.endswith(_TRACES_PATH):
                yield (
                    f"{target.variable} is used as it is over HTTP, and does not end with "
                    f"{_TRACES_PATH}: add that, or use OTEL_EXPORTER_OTLP_ENDPOINT"
                )
        elif path.removesuffix(_TRACES_PATH).endswith(_TRACES_PATH):
            yield (
                f"{_TRACES_PATH} is added to {target.variable} over HTTP, which ends with it "
                "already: leave it out there"
            )


def _tls(environment: OtelEnvironment) -> Iterator[str]:
    insecure = [
        name
        for name in ("OTEL_EXPORTER_OTLP_INSECURE", "OTEL_EXPORTER_OTLP_TRACES_INSECURE")
        if environment.get(name)
    ]
    for target, url in _otlp_targets(environment):
        is_secure = url.scheme == "https"
        if is_secure and _is_loopback(url):
            yield f"{target.shown} is TLS; a receiver on this machine usually speaks plain http://"
        if insecure and (is_secure or target.protocol != "grpc") and url.scheme.startswith("http"):
            yield f"{insecure[0]} has no effect: the scheme of the endpoint decides"
        certificate = [
            name
            for name in ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE")
            if environment.get(name)
        ]
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            if certificate and target.protocol != "grpc" and environment.given.get(name):
                yield f"{name} is set, and over HTTP it is used instead of {certificate[0]}"
                break


def _proxies(environment: OtelEnvironment) -> Iterator[str]:
    proxies = urllib.request.getproxies()
    for target, url in _otlp_targets(environment):
        scheme = url.scheme if url.scheme in ("http", "https") else "http"
        has_proxy = any(proxies.get(name) for name in (scheme, "all", "grpc"))
        if has_proxy and _is_loopback(url) and not urllib.request.proxy_bypass(url.hostname or ""):
            yield (
                f"a proxy of the environment (HTTP_PROXY and the like) stands between this "
                f"machine and {target.shown}: add {url.hostname} to NO_PROXY"
            )


def _units(environment: OtelEnvironment) -> Iterator[str]:
    for name in ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"):
        value = environment.get(name)
        if value and float(value) >= 1000:
            yield f"{name}={value} is read as seconds by Python's exporters, not milliseconds"


def _unknown_names(environment: OtelEnvironment) -> Iterator[str]:
    prefixes = ("OTEL_EXPORTER_OTLP_", "OTEL_TRACES_", "OTEL_BSP_", _OURS)
    suspects = [name for name in environment.given if name.startswith(prefixes)]
    known = _known_names() if suspects else set[str]()
    for name in suspects:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1, 0.8)
            hint = f": {close[0]} is meant?" if close else ""
            yield f"nothing reads {name}{hint}"
    if any(name.startswith("OTEL_EXPORTER_JAEGER_") for name in environment.given):
        yield "nothing reads OTEL_EXPORTER_JAEGER_*: for Jaeger set OTEL_EXPORTER_OTLP_ENDPOINT"


def _known_names() -> set[str]:
    prefixes = ["OTEL_EXPORTER_OTLP_", *(f"OTEL_EXPORTER_OTLP_{s.upper()}_" for s in SIGNALS)]
    known = {*COMMON, "OTEL_TRACES_SAMPLER_ARG"}
    for prefix in prefixes:
        known |= otlp_variables(prefix, is_grpc=True, is_insecure=False).keys()
    for point in importlib.metadata.entry_points(group="opentelemetry_environment_variables"):
        try:
            module: Any = point.load()
        except Exception:  # noqa: BLE001 - somebody else's module may be broken
            continue
        known |= {str(getattr(module, name)) for name in dir(module) if name.isupper()}
    from tilelang_otel import environment_variables

    return known | set(environment_variables.__all__)


def _has(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _is_loopback(url: SplitResult) -> bool:
    host = url.hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


_CHECKS: Final[tuple[Callable[[OtelEnvironment], Iterator[str]], ...]] = (
    _switched_off,
    _not_sampled,
    _packages,
    _ports,
    _paths,
    _tls,
    _proxies,
    _units,
    _unknown_names,
)
