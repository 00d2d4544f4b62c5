"""Metrics and logs, for whoever asks for them by their variables.

Owns the SDK's meter and logger provider when ``OTEL_METRICS_EXPORTER`` or
``OTEL_LOGS_EXPORTER`` names an exporter. An application's own are kept. Traces
are up to ``_sdk.setup``.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.sdk.resources import Resource

from tilelang_otel._config import warn_once
from tilelang_otel._otel.environment import OtelEnvironment
from tilelang_otel._sdk.exit import ShutDown
from tilelang_otel._sdk.setup import load_component

__all__ = ["set_up_other_signals"]


def set_up_other_signals(environment: OtelEnvironment, resource: Resource) -> list[ShutDown]:
    """Set the global meter and logger provider, if their variables say so. Never raises.

    Args:
        environment: OpenTelemetry's variables.
        resource: What the tracer provider describes its process with.

    Returns:
        What has to be shut down when the process exits.
    """
    found: list[ShutDown] = []
    signals: tuple[tuple[str, Callable[[tuple[str, ...], Resource], ShutDown | None]], ...] = (
        ("metrics", _metrics),
        ("logs", _logs),
    )
    for signal, set_up in signals:
        exporters = environment.exporters(signal)
        if not exporters:
            continue
        try:
            shut_down = set_up(exporters, resource)
        except Exception as error:  # noqa: BLE001 - an exporter's constructor may raise anything
            variable = f"OTEL_{signal.upper()}_EXPORTER"
            reason = environment.mask(f"{type(error).__name__}: {error}")[:200]
            warn_once(variable, f"{variable}: {signal} are not exported: {reason}")
        else:
            found += [shut_down] if shut_down else []
    return found


def _is_set(provider: object) -> bool:
    # The API's placeholders have no public name.
    return "Proxy" not in type(provider).__name__


def _metrics(exporters: tuple[str, ...], resource: Resource) -> ShutDown | None:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

    if _is_set(metrics.get_meter_provider()):
        return None
    readers: list[MetricReader] = []
    for name in exporters:
        component = load_component("opentelemetry_metrics_exporter", name)()
        is_reader = isinstance(component, MetricReader)
        readers.append(component if is_reader else PeriodicExportingMetricReader(component))
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return ShutDown(provider.shutdown, "metrics")


def _logs(exporters: tuple[str, ...], resource: Resource) -> ShutDown | None:
    from opentelemetry import _logs
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    if _is_set(_logs.get_logger_provider()):
        return None
    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    for name in exporters:
        exporter = load_component("opentelemetry_logs_exporter", name)()
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    _logs.set_logger_provider(provider)
    return ShutDown(provider.shutdown, "logs")
