"""Which way a compile's records go: who makes their spans, and who keeps them for a crash.

Owns the choice between a thread of ours and the compile's own, what is made before the
first compile, and that a forked child exports at once. What happens on the way is up to
``_emission``, ``_background`` and ``_crash``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Tracer

from tilelang_otel import _background, _crash
from tilelang_otel._config import Settings, crash_directory
from tilelang_otel._courier import Courier
from tilelang_otel._emission import Emission
from tilelang_otel._folding import Folding
from tilelang_otel._frames import Record
from tilelang_otel._guard import guard
from tilelang_otel._metrics import Instruments
from tilelang_otel._providers import facts_of

__all__ = ["emission", "flush_in_child", "prepare"]


class _Child:
    """What holds in a forked child: it may leave at any moment, without notice."""

    flushes = False


def prepare(settings: Settings, provider: Any) -> None:
    """Make what takes time, before a compile's own time begins.

    Args:
        settings: The options in force.
        provider: The tracer provider of the spans.
    """
    _crash_record(settings, provider)


def emission(
    settings: Settings,
    provider: Any,
    tracer: Tracer | None,
    root: Record | None,
    context: Context,
    wall_offset_ns: int,
    instruments: Instruments | None,
) -> tuple[Emission, _crash.CompileLog | None]:
    """Return what takes a recording's records, and who keeps them for a crash.

    Args:
        settings: The options in force.
        provider: The tracer provider of the spans.
        tracer: What starts the spans; None if there are to be none.
        root: The record of the root span, if there is one.
        context: What the outermost spans are in.
        wall_offset_ns: What to add to a record's times to get wall clock times.
        instruments: The metrics in force, if any.
    """
    facts = facts_of(provider)
    trace_id = 0
    crash_log = None
    if tracer is not None:
        parent = trace.get_current_span(context).get_span_context()
        own = root.span.get_span_context() if root is not None else parent
        trace_id = own.trace_id
        with guard:
            record = _crash_record(settings, provider)
            if record is not None and root is not None:
                crash_log = record.compile_began(
                    trace_id,
                    own.span_id,
                    parent.span_id,
                    root,
                    wall_offset_ns,
                    facts.tells_exports,
                )
    is_background = facts.is_ours if settings.background is None else settings.background
    return (
        Emission(
            provider,
            tracer,
            context,
            wall_offset_ns,
            Folding(settings, root, trace_id),
            instruments,
            crash_log,
            _background.send if is_background else _background.inline,
        ),
        crash_log,
    )


def flush_in_child(provider: Any, timeout_s: float) -> None:
    """Export what has ended, in a forked child; once in vain is enough.

    Args:
        provider: The tracer provider of the spans.
        timeout_s: How many seconds to wait for it.
    """
    force_flush = getattr(provider, "force_flush", None)
    if not _Child.flushes or force_flush is None:
        return
    courier = Courier("tilelang-otel-child", restarts=False)
    errand = courier.send(lambda: force_flush(int(timeout_s * 1000)))
    courier.close()
    _Child.flushes = errand.wait(timeout_s) and errand.result is not False


def _crash_record(settings: Settings, provider: Any) -> _crash.CrashRecord | None:
    """Return what keeps compiles for the case that this process dies, if asked for."""
    if not settings.crash_record:
        return None
    directory = crash_directory(settings)
    _recover(provider, directory)
    return _crash.for_process(directory, lambda: _resource_of(provider))


def _recover(provider: Any, directory: str) -> None:
    """Have spans made of what other processes have left there, if the SDK is installed."""
    try:
        from tilelang_otel._sdk.recovery import start_recovery
    except ImportError:
        return
    start_recovery(provider, directory)


def _resource_of(provider: Any) -> Mapping[str, Any]:
    """Return the attributes of a provider's resource, where it is the SDK's."""
    return getattr(getattr(provider, "resource", None), "attributes", None) or {}


def _forked() -> None:
    _Child.flushes = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
