"""Which trace a compile belongs to.

Owns reading ``TRACEPARENT`` and its like from the environment, and whether
anything is to be recorded at all. Uses OpenTelemetry's API only; which
propagators there are is configured there.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, TextMapPropagator

from tilelang_otel._config import warn_once
from tilelang_otel._guard import guard

try:
    _carrier: Any = importlib.import_module("opentelemetry.propagators._envcarrier")
except ImportError:  # an older API
    _carrier = None

__all__ = ["is_suppressed", "load_propagators", "parent_context"]

_SUPPRESSION_KEYS: tuple[str, ...] = tuple(
    # The API's key is made at run time, and private; the plain one is what
    # instrumentations used before it was, and some still do.
    key
    for key in (
        getattr(otel_context, "_SUPPRESS_INSTRUMENTATION_KEY", None),
        "suppress_instrumentation",
    )
    if key is not None
)


def parent_context() -> Context:
    """Return the context that a new compile starts in. Never raises.

    Returns:
        The current context if a span is current there. Otherwise the current
        context with what the environment says (``TRACEPARENT``, ``TRACESTATE``,
        ``BAGGAGE``, or what else the configured propagators read); what is
        malformed there is ignored.
    """
    current = otel_context.get_current()
    if trace.get_current_span(current).get_span_context().is_valid:
        return current
    with guard:
        inherited = _inherited.context()
        if inherited:
            return _merge(inherited, current)
    return current


def is_suppressed() -> bool:
    """Return whether somebody asked instrumentation to be quiet here."""
    context = otel_context.get_current()
    return any(bool(otel_context.get_value(key, context)) for key in _SUPPRESSION_KEYS)


def load_propagators() -> None:
    """Load OpenTelemetry's propagators, however wrong ``OTEL_PROPAGATORS`` is. Never raises.

    The API reads the variable when ``opentelemetry.propagate`` is first imported, and
    raises then: to be called before anything that imports it.
    """
    with guard:
        _propagator()


class _Inherited:
    """What the environment says, parsed again only when it says something else."""

    def __init__(self) -> None:
        self._key: tuple[TextMapPropagator, tuple[str | None, ...]] | None = None
        self._context = Context()

    def context(self) -> Context:
        """Return what is inherited, in a context of its own; empty when there is nothing."""
        propagator = _propagator()
        variables = sorted(_variable(field) for field in propagator.fields)
        values = tuple(os.environ.get(variable) for variable in variables)
        if not any(values):
            return _NOTHING
        key = (propagator, values)
        if key != self._key:
            self._context = propagator.extract(os.environ, Context(), _getter())
            self._key = key
        return self._context


_NOTHING = Context()
_inherited = _Inherited()


def _merge(inherited: Context, current: Context) -> Context:
    merged = current
    for key, value in inherited.items():
        merged = otel_context.set_value(key, value, merged)
    for name, value in baggage.get_all(current).items():
        merged = baggage.set_baggage(name, value, merged)
    return merged


def _propagator() -> TextMapPropagator:
    """Return the configured propagators; a wrong ``OTEL_PROPAGATORS`` counts as unset.

    The API reads that variable when it is first imported, and raises then.
    """
    if "opentelemetry.propagate" not in sys.modules and os.environ.get("OTEL_PROPAGATORS"):
        from tilelang_otel._otel.environment import read_environment

        environment = read_environment()
        for problem in environment.problems:
            if problem.variable == "OTEL_PROPAGATORS":
                warn_once(problem.variable, problem.message)
        with environment.applied():
            from opentelemetry import propagate
    else:
        from opentelemetry import propagate
    return propagate.get_global_textmap()


def _variable(field: str) -> str:
    """Return the variable of a propagator's field, as the specification names it."""
    return re.sub(r"[^A-Z0-9_]", "_", field.upper())


class _Getter(Getter[Mapping[str, str]]):
    """Reads variables, where the API has no getter for that."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(_variable(key))
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return [name for name in carrier if name == _variable(name)]


def _getter() -> Getter[Any]:
    return _Getter() if _carrier is None else _carrier.EnvironmentGetter()
