"""An SDK tracer provider out of OpenTelemetry's variables.

Owns which components are loaded and put together. The components read their
variables themselves: exporters, batch processor, limits and resource detectors
are the SDK's own, and every entry point that the SDK's configurator knows works
here too. The configurator itself is not used, because it sets a meter and a
logger provider as well, and an application could not set its own afterwards.

Everything here runs while ``OtelEnvironment.applied()`` hides what is wrong.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import PurePath
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler

from tilelang_otel._config import warn_once
from tilelang_otel._otel.environment import OtelEnvironment
from tilelang_otel._otel.targets import target_of
from tilelang_otel._otel.variables import DEFAULT_QUEUE_SIZE
from tilelang_otel._providers import Facts, remember
from tilelang_otel._sdk.delivery import CountingExporter, Delivery

__all__ = ["build_provider", "load_component", "make_exporter", "make_resource"]

_UNKNOWN_SERVICE = "unknown_service"


def build_provider(
    environment: OtelEnvironment, exporters: tuple[str, ...], exit_timeout_s: float
) -> tuple[TracerProvider, list[Delivery]]:
    """Build a provider with one delivery for each exporter.

    Args:
        environment: OpenTelemetry's variables.
        exporters: Names of span exporters, as entry points.
        exit_timeout_s: How many seconds without progress are waited for.

    Returns:
        The provider, which shuts nothing down on exit, and its deliveries. An
        exporter that cannot be made is warned about and left out.
    """
    provider = TracerProvider(
        sampler=_make_sampler(environment),
        resource=make_resource(),
        id_generator=_make_id_generator(environment),
        shutdown_on_exit=False,
    )
    queue_spans = int(environment.get("OTEL_BSP_MAX_QUEUE_SIZE") or DEFAULT_QUEUE_SIZE)
    deliveries: list[Delivery] = []
    for name in exporters:
        try:
            exporter = _counting_exporter(environment, name)
        except Exception as error:  # noqa: BLE001 - a constructor may raise anything
            warn_once(f"exporter {name}", _no_exporter(environment, name, error))
            continue
        deliveries.append(Delivery(exporter, exit_timeout_s, queue_spans))
        provider.add_span_processor(deliveries[-1])
    remember(provider, Facts(is_ours=True, queue_spans=queue_spans, tells_exports=True))
    return provider, deliveries


def load_component(group: str, name: str) -> Any:
    """Load a component by its entry point.

    Raises:
        LookupError: It is not installed.
        Exception: Whatever loading it raises.
    """
    if (group, name) == ("opentelemetry_traces_exporter", "otlp_jsonl"):
        from tilelang_otel._otlp_file import OTLPJSONLinesSpanExporter

        return OTLPJSONLinesSpanExporter
    points = importlib.metadata.entry_points(group=group, name=name)
    if not points:
        raise LookupError(f"{name} is not installed")
    return next(iter(points)).load()


def make_exporter(name: str) -> SpanExporter:
    """Make a span exporter by its entry point's name.

    Raises:
        LookupError: It is not installed.
        TypeError: It is no span exporter.
        Exception: Whatever its constructor raises.
    """
    component = load_component("opentelemetry_traces_exporter", name)
    if not issubclass(component, SpanExporter):
        raise TypeError(f"{name} is no span exporter")
    return component()


def make_resource() -> Resource:
    """Return what the variables and detectors say, with the program as the default service."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, _UNKNOWN_SERVICE)).startswith(_UNKNOWN_SERVICE):
        resource = resource.merge(Resource({SERVICE_NAME: _program_name()}))
    return resource


def _program_name() -> str:
    """Return the script's name without suffix, a package's for ``python -m``, else python."""
    path = PurePath(sys.argv[0] if sys.argv else "")
    name = path.parent.name if path.stem == "__main__" else path.stem
    name = name.encode("utf-8", "replace").decode("utf-8")
    return name if name and name != "-c" else "python"


def _counting_exporter(environment: OtelEnvironment, name: str) -> CountingExporter:
    def make() -> SpanExporter:
        with environment.applied():
            return make_exporter(name)

    return CountingExporter(make, target_of(environment, name), environment.mask)


def _no_exporter(environment: OtelEnvironment, name: str, error: Exception) -> str:
    if isinstance(error, LookupError | ImportError) and name.startswith("otlp_proto_"):
        package = f"opentelemetry-exporter-{name.replace('_', '-')}"
        return f"traces cannot be exported over OTLP: install {package}, or 'tilelang-otel[otlp]'"
    reason = environment.mask(f"{type(error).__name__}: {error}")[:200]
    return f"the span exporter {name} cannot be set up and is left out: {reason}"


def _make_sampler(environment: OtelEnvironment) -> Sampler | None:
    """Return the sampler that is asked for; None means the SDK's default."""
    name = environment.get("OTEL_TRACES_SAMPLER")
    if name is None:
        return None
    argument: Any = environment.get("OTEL_TRACES_SAMPLER_ARG")
    if name.endswith("traceidratio"):
        argument = float(argument)
    try:
        sampler = load_component("opentelemetry_traces_sampler", name)(argument)
        if isinstance(sampler, Sampler):
            return sampler
        reason = "it is no sampler"
    except Exception as error:  # noqa: BLE001 - a sampler of somebody else's may raise anything
        reason = environment.mask(f"{type(error).__name__}: {error}")[:200]
    warn_once(
        "OTEL_TRACES_SAMPLER",
        f"OTEL_TRACES_SAMPLER={name!r} is ignored, using parentbased_always_on: {reason}",
    )
    # None would make the SDK read the variable again, and complain.
    return DEFAULT_ON


def _make_id_generator(environment: OtelEnvironment) -> IdGenerator | None:
    name = environment.get("OTEL_PYTHON_ID_GENERATOR")
    if name is None:
        return None
    try:
        generator = load_component("opentelemetry_id_generator", name)()
        if isinstance(generator, IdGenerator):
            return generator
        reason = "it is no id generator"
    except Exception as error:  # noqa: BLE001 - a generator of somebody else's may raise anything
        reason = environment.mask(f"{type(error).__name__}: {error}")[:200]
    warn_once(
        "OTEL_PYTHON_ID_GENERATOR",
        f"OTEL_PYTHON_ID_GENERATOR={name!r} is ignored, using random: {reason}",
    )
    return None
