"""A tool that TileLang finds by itself, where nothing else instruments the program.

TileLang builds that read the entry point group ``tilelang.instrumentation_tools``
make one for each compile session. Without the wrappers of the zero-code
instrumentation it sees less: the passes and code generation of a kernel, not
the cache and the compilers behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tilelang_otel import semconv
from tilelang_otel._adapters._context_log import ContextObserver, Stage, announce
from tilelang_otel._adapters.tilelang_stages import OTelInstrumentationTool, current_stage
from tilelang_otel._guard import guard
from tilelang_otel._recorder import Recorder

__all__ = ["create_tool"]


class _StandaloneTool(OTelInstrumentationTool):
    """Records a session from its first sign to its end."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self._stack = ExitStack()
        self._is_begun = False

    def create_pass_instrument(self) -> object | None:
        """Make an instrument for the pass context that is about to be entered."""
        with guard:
            from tilelang_otel.events import StackedPassInstrument

            self._begin()
            # ``tilelang.lower`` says no stage, as it makes no context of its own.
            announce(current_stage() or Stage(semconv.SPAN_LOWER, {}))
            return StackedPassInstrument(ContextObserver(self._recorder))
        return None

    def run_codegen(self, event: Any, next_call: Callable[[], Any]) -> Any:
        """Record one call of a code generator, and return what it returns."""
        self._begin()
        return super().run_codegen(event, next_call)

    def finish(self, error: BaseException | None) -> None:
        """End the compile's span."""
        with guard:
            self._stack.__exit__(type(error) if error else None, error, None)

    def _begin(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            with guard:
                self._stack.enter_context(self._recorder.compile_scope(_describe))


def create_tool() -> OTelInstrumentationTool:
    """Return a tool for one compile session of TileLang.

    It stands aside where :func:`tilelang_otel.instrument` or
    ``opentelemetry-instrument`` sees more. Raises only what reading the settings
    may raise, which is nothing.
    """
    from tilelang_otel.instrumentor import TileLangInstrumentor

    if TileLangInstrumentor().is_instrumented_by_opentelemetry:
        return _Idle(Recorder())
    return _StandaloneTool(Recorder())


class _Idle(OTelInstrumentationTool):
    def create_pass_instrument(self) -> object | None:
        return None

    def run_codegen(self, event: Any, next_call: Callable[[], Any]) -> Any:
        return next_call()


def _describe() -> tuple[str, dict[str, Any]]:
    stage = current_stage()
    attributes = {} if stage is None else dict(stage.attributes)
    name = attributes.get(semconv.TILELANG_KERNEL_NAME)
    return semconv.SPAN_COMPILE if name is None else f"{semconv.SPAN_COMPILE} {name}", attributes
