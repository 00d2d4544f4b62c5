"""The table of OpenTelemetry's variables that this package checks.

Owns which variable is of which kind and what its default is, as Python's SDK
and exporters have it. What the kinds accept is up to ``_otel.values`` and
``_otel.transport``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilelang_otel._otel.transport import compression, endpoint, headers
from tilelang_otel._otel.values import (
    OTLP_EXPORTERS,
    Kind,
    attributes,
    boolean,
    choice,
    component,
    components,
    number,
    readable_file,
    text,
    whole_number,
    words,
)

__all__ = ["COMMON", "DEFAULT_QUEUE_SIZE", "SIGNALS", "otlp_variables"]

DEFAULT_QUEUE_SIZE: Final = 65536
"""How many spans may wait for export; the SDK's own 2048 lose most of a large compile."""

SIGNALS: Final = ("traces", "metrics", "logs")

_GRPC_STATUS_CODES: Final = [
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED"),
    *("FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL"),
    *("UNAVAILABLE", "DATA_LOSS"),
]


def _batches(prefix: str, queue_size: int, delay_ms: int) -> dict[str, Kind]:
    return {
        f"{prefix}_SCHEDULE_DELAY": whole_number(1, f"{delay_ms} ms"),
        f"{prefix}_EXPORT_TIMEOUT": whole_number(0, "30000 ms"),
        f"{prefix}_MAX_QUEUE_SIZE": whole_number(1, str(queue_size)),
        f"{prefix}_MAX_EXPORT_BATCH_SIZE": whole_number(1, "512"),
    }


COMMON: Final[Mapping[str, Kind]] = {
    "OTEL_SDK_DISABLED": boolean("does not disable anything"),
    "OTEL_CONFIG_FILE": readable_file("the other variables"),
    "OTEL_TRACES_EXPORTER": components(
        "opentelemetry_traces_exporter", "the default exporter", hint=" (for Jaeger: otlp)"
    ),
    "OTEL_METRICS_EXPORTER": components("opentelemetry_metrics_exporter", "none"),
    "OTEL_LOGS_EXPORTER": components("opentelemetry_logs_exporter", "none"),
    "OTEL_TRACES_SAMPLER": component("opentelemetry_traces_sampler", "parentbased_always_on"),
    "OTEL_PYTHON_ID_GENERATOR": component("opentelemetry_id_generator", "random"),
    "OTEL_PYTHON_TRACER_PROVIDER": component("opentelemetry_tracer_provider", "the default"),
    "OTEL_PROPAGATORS": components("opentelemetry_propagator", "tracecontext,baggage"),
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": components(
        "opentelemetry_resource_detector", "the default ones", star=True
    ),
    "OTEL_RESOURCE_ATTRIBUTES": attributes(),
    "OTEL_SERVICE_NAME": text("the program's name"),
    "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED": boolean("is ignored, using false"),
    "OTEL_PYTHON_EXPORTER_OTLP_GRPC_RETRYABLE_ERROR_CODES": words(
        _GRPC_STATUS_CODES, "the default ones"
    ),
    **_batches("OTEL_BSP", DEFAULT_QUEUE_SIZE, 5000),
    **_batches("OTEL_BLRP", 2048, 1000),
    "OTEL_METRIC_EXPORT_INTERVAL": number("60000", "milliseconds"),
    "OTEL_METRIC_EXPORT_TIMEOUT": number("30000", "milliseconds"),
    "OTEL_METRICS_EXEMPLAR_FILTER": choice(
        lambda: ("always_on", "always_off", "trace_based"), "trace_based"
    ),
    "OTEL_ATTRIBUTE_COUNT_LIMIT": whole_number(0, "128"),
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": whole_number(0, "128"),
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": whole_number(0, "128"),
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": whole_number(0, "128"),
    "OTEL_SPAN_EVENT_COUNT_LIMIT": whole_number(0, "128"),
    "OTEL_SPAN_LINK_COUNT_LIMIT": whole_number(0, "128"),
    "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": whole_number(0, "128"),
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": whole_number(0, "no limit"),
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": whole_number(0, "no limit"),
    "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT": whole_number(0, "no limit"),
    "OTEL_EXPORTER_OTLP_PROTOCOL": choice(lambda: OTLP_EXPORTERS, "the default"),
    **{
        f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL": choice(
            lambda: OTLP_EXPORTERS, "the protocol of all signals"
        )
        for signal in SIGNALS
    },
    **{
        f"OTEL_PYTHON_EXPORTER_OTLP_{transport}{signal}CREDENTIAL_PROVIDER": component(
            "opentelemetry_otlp_credential_provider", "none"
        )
        for transport in ("GRPC_", "HTTP_")
        for signal in ("", "TRACES_", "METRICS_", "LOGS_")
    },
}
"""What does not depend on the protocol."""


def otlp_variables(prefix: str, is_grpc: bool, is_insecure: bool) -> dict[str, Kind]:
    """Return what depends on the protocol of an OTLP exporter.

    Args:
        prefix: ``OTEL_EXPORTER_OTLP_``, or that followed by a signal.
        is_grpc: Whether it is gRPC.
        is_insecure: Whether a variable asks for plain text.
    """
    is_common = prefix == "OTEL_EXPORTER_OTLP_"
    port = 4317 if is_grpc else 4318
    default = f"http://localhost:{port}" if is_common else "the endpoint of all signals"
    return {
        f"{prefix}ENDPOINT": endpoint(is_grpc, is_insecure, default),
        f"{prefix}HEADERS": headers(is_grpc),
        f"{prefix}TIMEOUT": number("10", "seconds"),
        f"{prefix}COMPRESSION": compression(is_grpc),
        f"{prefix}INSECURE": boolean("is ignored, using false"),
        f"{prefix}CERTIFICATE": readable_file("the system's certificates"),
        f"{prefix}CLIENT_KEY": readable_file("none"),
        f"{prefix}CLIENT_CERTIFICATE": readable_file("none"),
    }
