"""Instrumentation that needs no change to the program: put on, take off.

Nothing is imported before the program imports it. What is wrapped, and how, is
up to the adapters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import wrapt
from opentelemetry import trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from tilelang_otel._config import Settings
from tilelang_otel._context import load_propagators
from tilelang_otel._guard import guard
from tilelang_otel._options import Options, read_options
from tilelang_otel._recorder import Recorder

# The import below raises on a wrong OTEL_PROPAGATORS if nothing has been done about it.
load_propagators()

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # noqa: E402

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["TVMInstrumentor", "TileLangInstrumentor", "instrument", "uninstrument"]

_logger = logging.getLogger(__name__)


class _Adapter(Protocol):
    def put_on(self) -> None: ...
    def take_off(self) -> None: ...


class _Layer:
    """The adapters for one package, put on once it is imported, for all who need them.

    TileLang compiles with TVM, so both instrumentors need TVM's adapters; passes
    nest, so they may be put on only once.

    Attributes:
        recorder: Who records; None while the adapters are off.
    """

    def __init__(self, package: str, make: Callable[[Recorder], list[_Adapter]]) -> None:
        self._package = package
        self._make = make
        self._users: list[object] = []
        self.recorder: Recorder | None = None
        self._adapters: list[_Adapter] = []

    def acquire(self, user: object, recorder: Recorder) -> Recorder:
        """Put the adapters on, now or when the package is imported. Never raises.

        Returns:
            Who records: that of whoever came first.
        """
        self._users.append(user)
        if self.recorder is None:
            self.recorder = recorder
            with guard:
                wrapt.register_post_import_hook(self._hook(recorder), self._package)
        return self.recorder

    def release(self, user: object) -> None:
        """Take the adapters off, unless somebody else needs them. Never raises."""
        self._users = [other for other in self._users if other is not user]
        if self._users:
            return
        self.recorder = None
        while self._adapters:
            self._adapters.pop().take_off()

    def _hook(self, recorder: Recorder) -> Callable[[Any], None]:
        def hook(module: Any) -> None:
            # A hook cannot be unregistered, so it may come from an earlier life.
            if recorder is self.recorder and not self._adapters:
                # The API loads its context when first used: not within a compile's span.
                trace.get_current_span()
                with guard:
                    self._adapters = self._make(recorder)
                for adapter in self._adapters:
                    with guard:
                        adapter.put_on()

        return hook


def _tvm_adapters(recorder: Recorder) -> list[_Adapter]:
    from tilelang_otel._adapters.compilers import Compilers
    from tilelang_otel._adapters.tvm_codegen import TVMCodegen
    from tilelang_otel._adapters.tvm_compile import TVMCompile
    from tilelang_otel._adapters.tvm_export import TVMExport
    from tilelang_otel._adapters.tvm_passes import TVMPasses

    return [
        TVMPasses(recorder),
        TVMCompile(recorder),
        TVMCodegen(recorder),
        TVMExport(recorder),
        Compilers(recorder, "tvm"),
    ]


def _tilelang_adapters(recorder: Recorder) -> list[_Adapter]:
    from tilelang_otel._adapters.compilers import Compilers
    from tilelang_otel._adapters.tilelang_compile import TileLangCompile
    from tilelang_otel._adapters.tilelang_many import TileLangMany
    from tilelang_otel._adapters.tilelang_stages import TileLangStages

    return [
        TileLangCompile(recorder),
        TileLangStages(recorder),
        TileLangMany(recorder),
        Compilers(recorder, "tilelang"),
    ]


_tvm = _Layer("tvm", _tvm_adapters)
_tilelang = _Layer("tilelang", _tilelang_adapters)


class TVMInstrumentor(BaseInstrumentor):
    """Traces every compile and every pass of TVM, once the program imports it.

    ``instrument()`` takes what :func:`tilelang_otel.instrument` takes. It may be called
    before or after ``import tvm``; a TVM that it does not know leaves the program
    untouched, with one warning.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: TVM may be part of TileLang, without a distribution of its own."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        _tvm.acquire(self, _recorder_of(kwargs))

    def _uninstrument(self, **kwargs: Any) -> None:
        _tvm.release(self)


class TileLangInstrumentor(BaseInstrumentor):
    """Traces every kernel that TileLang compiles, once the program imports it.

    Takes what :class:`TVMInstrumentor` takes, and includes it: a kernel's passes are
    TVM's.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: TileLang may be a build of the user's own."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        _tilelang.acquire(self, _tvm.acquire(self, _recorder_of(kwargs)))

    def _uninstrument(self, **kwargs: Any) -> None:
        _tilelang.release(self)
        _tvm.release(self)


def _recorder_of(kwargs: dict[str, Any]) -> Recorder:
    options: Any = {name: kwargs.get(name) for name in Options.__annotations__}
    return Recorder(
        kwargs.get("tracer_provider"),
        read_options(options),
        meter_provider=kwargs.get("meter_provider"),
    )


def instrument(
    tracer_provider: TracerProvider | None = None,
    *,
    meter_provider: MeterProvider | None = None,
    **options: Unpack[Options],
) -> None:
    """Trace every compile of TVM and TileLang from here on.

    May be called before or after a compiler is imported, and imports none. What is
    traced already stays as it is; asked for otherwise, it says so in a warning.

    Args:
        tracer_provider: Where spans go; None means the global one, looked up at
            each compile.
        meter_provider: Where metrics go, likewise.
        **options: Those of :class:`tilelang_otel.Options`.

    Raises:
        TypeError: There is no such option.
        ValueError: An option has a value that it does not accept.
    """
    asked: dict[str, Any] = {
        "tracer_provider": tracer_provider,
        "meter_provider": meter_provider,
        **options,
    }
    _warn_of_ignored(asked, read_options(options))
    for instrumentor in (TVMInstrumentor(), TileLangInstrumentor()):
        if not instrumentor.is_instrumented_by_opentelemetry:
            instrumentor.instrument(**asked)


def _warn_of_ignored(asked: Mapping[str, Any], settings: Settings) -> None:
    """Warn of what is asked for and comes too late: whoever was first has chosen."""
    recorder = _tvm.recorder
    if recorder is None:
        return
    chosen = {
        "tracer_provider": recorder.tracer_provider,
        "meter_provider": recorder.meter_provider,
        **vars(recorder.settings),
    }
    wanted = {**asked, **vars(settings)}
    ignored = [
        name for name, value in asked.items() if value is not None and wanted[name] != chosen[name]
    ]
    if ignored:
        _logger.warning(
            "instrument(%s) has no effect: compiles are traced already, and not like that; "
            "call uninstrument() first",
            ", ".join(f"{name}=…" for name in ignored),
        )


def uninstrument() -> None:
    """Trace nothing from here on, and restore every function that was wrapped."""
    for instrumentor in (TileLangInstrumentor(), TVMInstrumentor()):
        if instrumentor.is_instrumented_by_opentelemetry:
            instrumentor.uninstrument()
