"""Instrumentation that needs no change to the program: put on, take off.

Nothing is imported before the program imports it. What is wrapped, and how, is
up to the adapters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

import wrapt
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # pyright: ignore
from opentelemetry.trace import TracerProvider

from tilelang_otel._config import read_settings
from tilelang_otel._guard import guard
from tilelang_otel._recorder import Recorder

__all__ = ["TVMInstrumentor", "instrument", "uninstrument"]

_OPTIONS = (
    "capture_nested",
    "include",
    "exclude",
    "context_span",
    "part_age_s",
    "part_spans",
)


class _Adapter(Protocol):
    def put_on(self) -> None: ...
    def take_off(self) -> None: ...


class TVMInstrumentor(BaseInstrumentor):
    """Traces every compile and every pass of TVM, once the program imports it.

    ``instrument()`` takes ``tracer_provider`` and the options of
    :class:`tilelang_otel.OTelPassObserver`. It may be called before or after
    ``import tvm``; a TVM that it does not know leaves the program untouched, with
    one warning.
    """

    _adapters: list[_Adapter] | None = None
    _recorder: Recorder | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: TVM may be part of TileLang, without a distribution of its own."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        settings = read_settings(**{name: kwargs.get(name) for name in _OPTIONS})
        with guard:
            self._recorder = Recorder(kwargs.get("tracer_provider"), settings)
            wrapt.register_post_import_hook(self._hook(self._recorder), "tvm")

    def _uninstrument(self, **kwargs: Any) -> None:
        self._recorder = None
        adapters, self._adapters = self._adapters, None
        for adapter in reversed(adapters or []):
            adapter.take_off()

    def _hook(self, recorder: Recorder) -> Any:
        def hook(module: Any) -> None:
            # A hook cannot be unregistered, so it may belong to an earlier life.
            if recorder is self._recorder and self._adapters is None:
                self._put_on(recorder)

        return hook

    def _put_on(self, recorder: Recorder) -> None:
        from tilelang_otel._adapters.tvm_codegen import TVMCodegen
        from tilelang_otel._adapters.tvm_compile import TVMCompile
        from tilelang_otel._adapters.tvm_passes import TVMPasses

        # The API loads its context when it is first used: not within a compile's span.
        trace.get_current_span()
        passes = TVMPasses(recorder)
        self._adapters = []
        for adapter in (passes, TVMCompile(recorder, passes), TVMCodegen(recorder)):
            with guard:
                self._adapters.append(adapter)
                adapter.put_on()


def instrument(
    tracer_provider: TracerProvider | None = None,
    *,
    capture_nested: bool | None = None,
    include: Iterable[str] | str | None = None,
    exclude: Iterable[str] | str | None = None,
    context_span: bool | None = None,
    part_age_s: float | None = None,
    part_spans: int | None = None,
) -> None:
    """Trace every compile from here on. Does nothing when that is already so.

    May be called before or after the compiler is imported, and imports none.

    Args:
        tracer_provider: Where spans go; None means the global one, looked up at
            each compile.
        capture_nested: See :class:`tilelang_otel.OTelPassObserver`.
        include: See there.
        exclude: See there.
        context_span: See there.
        part_age_s: See there.
        part_spans: See there.

    Raises:
        ValueError: An option has a value that it does not accept.
    """
    options = {
        "capture_nested": capture_nested,
        "include": include,
        "exclude": exclude,
        "context_span": context_span,
        "part_age_s": part_age_s,
        "part_spans": part_spans,
    }
    read_settings(**options)
    instrumentor = TVMInstrumentor()
    if not instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.instrument(tracer_provider=tracer_provider, **options)


def uninstrument() -> None:
    """Trace nothing from here on, and restore every function that was wrapped."""
    instrumentor = TVMInstrumentor()
    if instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.uninstrument()
