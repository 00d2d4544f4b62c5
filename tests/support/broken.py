"""A tracer provider that works except where the test breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, Tracer, TracerProvider

__all__ = ["BROKEN_CALLS", "BrokenProvider"]

BROKEN_CALLS = (
    "get_tracer",
    "start_span",
    "is_recording",
    "get_span_context",
    "set_attribute",
    "set_attributes",
    "set_status",
    "add_event",
    "end",
)
"""What can be broken, to parametrise with."""


class BrokenProvider(TracerProvider):
    """Passes everything on to ``provider``, but raises in one kind of call.

    Args:
        provider: One that works.
        call: One of :data:`BROKEN_CALLS`.
        breaks: Tells from a span's name whether its call is broken; by default all are.

    Attributes:
        raised: How often it raised.
    """

    def __init__(
        self,
        provider: TracerProvider,
        call: str,
        breaks: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.raised = 0
        self._provider = provider
        self._call = call
        self._breaks = breaks

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """Return a tracer that works as well as this provider."""
        self.check("get_tracer", "")
        return _BrokenTracer(self, self._provider.get_tracer(*args, **kwargs))

    def check(self, call: str, span_name: str) -> None:
        """Raise if ``call`` is the broken one."""
        if call == self._call and self._breaks(span_name):
            self.raised += 1
            raise LookupError(f"{call} is broken")


class _BrokenTracer(Tracer):
    def __init__(self, owner: BrokenProvider, tracer: Tracer) -> None:
        self._owner = owner
        self._tracer = tracer

    def start_span(self, name: str, context: Context | None = None, *args: Any, **kw: Any) -> Span:
        self._owner.check("start_span", name)
        return _BrokenSpan(self._owner, name, self._tracer.start_span(name, context, *args, **kw))

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("compiles have spans that are not current")


class _BrokenSpan(Span):
    def __init__(self, owner: BrokenProvider, name: str, span: Span) -> None:
        self._owner = owner
        self._name = name
        self._span = span

    def _forward(self, call: str, *args: Any, **kwargs: Any) -> Any:
        self._owner.check(call, self._name)
        return getattr(self._span, call)(*args, **kwargs)

    def end(self, *args: Any, **kwargs: Any) -> None:
        self._forward("end", *args, **kwargs)

    def get_span_context(self) -> Any:
        return self._forward("get_span_context")

    def set_attributes(self, *args: Any, **kwargs: Any) -> None:
        self._forward("set_attributes", *args, **kwargs)

    def set_attribute(self, *args: Any, **kwargs: Any) -> None:
        self._forward("set_attribute", *args, **kwargs)

    def add_event(self, *args: Any, **kwargs: Any) -> None:
        self._forward("add_event", *args, **kwargs)

    def update_name(self, name: str) -> None:
        self._forward("update_name", name)

    def is_recording(self) -> bool:
        return self._forward("is_recording")

    def set_status(self, *args: Any, **kwargs: Any) -> None:
        self._forward("set_status", *args, **kwargs)

    def record_exception(self, *args: Any, **kwargs: Any) -> None:
        self._forward("record_exception", *args, **kwargs)
