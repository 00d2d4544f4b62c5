"""Where spans go: a tracer provider from OpenTelemetry's standard variables.

Owns :func:`configure` and :func:`flush`. An application's provider is kept and
never replaced, and shutting it down stays its own business. What the variables
may be is up to ``_otel.environment``, putting the SDK together to
``_sdk.setup``, and the last seconds of the process to ``_sdk.exit``.
"""

from __future__ import annotations

import atexit
import importlib
import threading
import time
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace

from tilelang_otel import _background
from tilelang_otel._config import crash_directory, read_settings, warn_once
from tilelang_otel._courier import Courier
from tilelang_otel._otel.environment import OtelEnvironment, read_environment
from tilelang_otel._otel.targets import exporter_names
from tilelang_otel._providers import Facts, remember
from tilelang_otel._sdk.export_errors import listening

if TYPE_CHECKING:
    from tilelang_otel._sdk.delivery import Delivery

__all__ = ["configure", "flush"]

_lock = threading.Lock()
_deliveries: list[Delivery] = []
_provider: trace.TracerProvider | None = None


def configure(
    *, default_exporter: str = "otlp", exit_timeout_s: float | None = None
) -> trace.TracerProvider:
    """Return the tracer provider in force; build and set one if there is none.

    It is built from OpenTelemetry's standard variables: exporters and their
    protocol, endpoint, headers, TLS, compression and timeout, sampler, batches,
    limits, resource, id generator, ``OTEL_SDK_DISABLED``, ``OTEL_CONFIG_FILE``.
    A wrong value is warned about in one line and counts as unset. Defaults of
    our own, which yield to the variable, are the service's name (the program's)
    and the span queue (65,536). Metrics and logs are set up when their exporter
    variables ask for them.

    On exit, what is left is exported. A receiver that accepts nothing for
    ``exit_timeout_s`` is given up, one that goes on accepting gets six times as
    long.

    Args:
        default_exporter: The exporter when neither ``OTEL_TRACES_EXPORTER`` nor
            an OTLP endpoint is set: the name of an entry point.
        exit_timeout_s: How many seconds exit waits for a receiver that accepts
            nothing. Default 5; ``OTEL_PYTHON_TILELANG_EXIT_TIMEOUT``.

    Returns:
        The application's provider if it has set one, else ours; the API's
        placeholder when the SDK is disabled or not installed.

    Raises:
        ValueError: ``exit_timeout_s`` is not a number above 0.
    """
    timeout_s = read_settings(exit_timeout_s=exit_timeout_s).exit_timeout_s
    with _lock:
        environment = read_environment()
        with environment.applied():
            current = trace.get_tracer_provider()
            if not isinstance(current, trace.ProxyTracerProvider):
                return current
            for problem in environment.problems:
                warn_once(problem.variable, problem.message)
            if environment.is_disabled:
                return current
            try:
                if not _configure_from_file(environment, timeout_s):
                    _configure_from_variables(environment, default_exporter, timeout_s)
            except ImportError as error:
                warn_once(
                    "SDK",
                    "traces are not recorded: OpenTelemetry's SDK cannot be loaded "
                    f"({error}); install 'tilelang-otel[otlp]'",
                )
            except Exception as error:  # noqa: BLE001 - components of others may raise anything
                reason = environment.mask(f"{type(error).__name__}: {error}")[:200]
                warn_once("configure", f"traces are not recorded: {reason}")
    return trace.get_tracer_provider()


def flush(timeout_s: float | None = None) -> bool:
    """Export what has ended and been counted, and wait for it. Never raises because of an exporter.

    Args:
        timeout_s: How many seconds to wait. Default 5;
            ``OTEL_PYTHON_TILELANG_EXIT_TIMEOUT``.

    Returns:
        Whether everything arrived in time, as far as the provider tells. True
        when there is nothing that could be flushed.

    Raises:
        ValueError: ``timeout_s`` is not a number above 0.
    """
    try:
        timeout_s = read_settings(exit_timeout_s=timeout_s).exit_timeout_s
    except ValueError:
        expected = "expected a number of seconds above 0"
        raise ValueError(f"timeout_s={timeout_s!r}: {expected}") from None
    provider = trace.get_tracer_provider()
    force_flush = getattr(provider, "force_flush", None)
    if force_flush is None:
        return True
    deadline_s = time.monotonic() + timeout_s
    if not _background.drain(timeout_s):
        return False
    timeout_s = max(deadline_s - time.monotonic(), 0.001)
    deliveries = _deliveries if provider is _provider else []
    failed = [delivery.exporter.failed for delivery in deliveries]
    # All at once; the provider would flush them one after the other.
    for delivery in deliveries:
        delivery.start_flush()

    def work() -> bool:
        is_in_time = force_flush(int(timeout_s * 1000)) is not False
        _flush_metrics(timeout_s)
        return is_in_time and failed == [delivery.exporter.failed for delivery in deliveries]

    try:
        courier = Courier("tilelang-otel-flush", restarts=False)
    except RuntimeError:  # the process exits, and this Python starts no thread any more
        return work()
    errand = courier.send(work)
    courier.close()
    return errand.wait(timeout_s) and errand.result is True


def _flush_metrics(timeout_s: float) -> None:
    """Export what has been counted, where the SDK counts; what became of it, it does not tell."""
    force_flush = getattr(metrics.get_meter_provider(), "force_flush", None)
    if force_flush is not None:
        force_flush(timeout_s * 1000)


def _configure_from_variables(
    environment: OtelEnvironment, default_exporter: str, timeout_s: float
) -> None:
    global _provider
    from tilelang_otel._sdk.dropped_spans import observe_dropped
    from tilelang_otel._sdk.exit import ExitHandler, ShutDown
    from tilelang_otel._sdk.other_signals import set_up_other_signals
    from tilelang_otel._sdk.recovery import start_recovery
    from tilelang_otel._sdk.setup import build_provider

    exporters = exporter_names(environment, default_exporter)
    provider, deliveries = build_provider(environment, exporters, timeout_s)
    trace.set_tracer_provider(provider)
    if trace.get_tracer_provider() is not provider:
        # Somebody else was faster, and so it is theirs.
        provider.shutdown()
        return
    _provider = provider
    _deliveries.extend(deliveries)
    _background.prepare()
    observe_dropped(deliveries)
    handler = ExitHandler(timeout_s)
    for leaving in (*deliveries, *set_up_other_signals(environment, provider.resource)):
        handler.add(leaving)
    # Processors that the application has added; deliveries are closed by then.
    handler.add(ShutDown(provider.shutdown, "traces of other processors", is_ours=False))
    settings = read_settings()
    if settings.crash_record:
        # After the handler, so that the exit waits for it before all that takes spans.
        start_recovery(provider, crash_directory(settings))


def _configure_from_file(environment: OtelEnvironment, timeout_s: float) -> bool:
    """Do as ``OTEL_CONFIG_FILE`` says; return False when the variables have to do."""
    path = environment.get("OTEL_CONFIG_FILE")
    if path is None:
        return False
    from tilelang_otel._sdk.exit import ExitHandler, ShutDown

    try:
        library: Any = importlib.import_module("opentelemetry.configuration")
        # It logs what it raises, with a traceback.
        with listening([], to="opentelemetry.configuration"):
            library.configure_sdk(library.load_config_file(path))
    except ImportError:
        warn_once(
            "OTEL_CONFIG_FILE",
            "OTEL_CONFIG_FILE is ignored, using the other variables: reading it needs the "
            "package opentelemetry-configuration",
        )
        return False
    except Exception as error:  # noqa: BLE001 - the file may hold anything
        reason = environment.mask(f"{type(error).__name__}: {error}")[:200]
        warn_once(
            "OTEL_CONFIG_FILE",
            f"OTEL_CONFIG_FILE={path!r} is ignored, using the other variables: {reason}",
        )
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return False
    provider = trace.get_tracer_provider()
    shutdown = getattr(provider, "shutdown", None)
    if shutdown is not None:
        # The SDK's own handler has no deadline that anybody could choose.
        atexit.unregister(shutdown)
        remember(provider, Facts(is_ours=True))
        _background.prepare()
        ExitHandler(timeout_s).add(ShutDown(shutdown, "traces"))
    return True
