"""Executors and threads that carry the trace of whoever made them.

TileLang's compile threads know nothing of who asked, so a compile in one of
them would start a trace of its own. They carry OpenTelemetry's context along,
and nothing else: TileLang keeps state in context variables of its own, which
must stay as they would be without us.
"""

from __future__ import annotations

import concurrent.futures
import functools
import threading
from collections.abc import Callable
from typing import Any

import wrapt
from opentelemetry import context as otel_context

from tilelang_otel._adapters._tally import CONFIGURATION_KEY

__all__ = ["TracedConcurrent", "TracedThreading"]


class _Executor(concurrent.futures.ThreadPoolExecutor):
    """A thread pool whose tasks run in the trace of whoever submitted them."""

    _submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        # Both users submit their configurations in order, the tuner's groups apart.
        index, self._submitted = self._submitted, self._submitted + 1
        return super().submit(_in_trace(fn, index), *args, **kwargs)


class _Thread(threading.Thread):
    """A thread that runs in the trace of whoever made it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if callable(kwargs.get("target")):
            kwargs["target"] = _in_trace(kwargs["target"])
        super().__init__(*args, **kwargs)


class TracedThreading(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument,reportUntypedBaseClass]
    Thread = _Thread


class _Futures(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument,reportUntypedBaseClass]
    ThreadPoolExecutor = _Executor


class TracedConcurrent(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument,reportUntypedBaseClass]
    futures = _Futures(concurrent.futures)


def _in_trace(function: Callable[..., Any], index: int | None = None) -> Callable[..., Any]:
    context = otel_context.get_current()
    if index is not None:
        context = otel_context.set_value(CONFIGURATION_KEY, index, context)

    @functools.wraps(function)
    def in_trace(*args: Any, **kwargs: Any) -> Any:
        token = otel_context.attach(context)
        try:
            return function(*args, **kwargs)
        finally:
            otel_context.detach(token)

    return in_trace
