"""TVM's compile entry points: the root of a trace, and the stage that runs.

``tvm.compile`` calls ``tvm.relax.build``, and that calls ``tvm.tirx.build``.
The outermost one is the compile; those that it calls only tell the stage.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tilelang_otel import semconv
from tilelang_otel._adapters._describe import function_name, shapes_of, target_attributes
from tilelang_otel._adapters._patches import Patches
from tilelang_otel._recorder import Recorder
from tilelang_otel.events._model import move_stage, stage

__all__ = ["TVMCompile"]


class TVMCompile:
    """Wraps ``tvm.compile``, ``tvm.relax.build`` and ``tvm.tirx.build``.

    Args:
        recorder: Who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._patches = Patches()

    def put_on(self) -> None:
        """Wrap; raises on a TVM that lacks what is wrapped."""
        importlib.import_module("tvm")
        wrap = self._patches.wrap
        wrap("tvm.driver.build_module", "compile", self._entry(None), "tvm.driver", "tvm")
        wrap("tvm.relax.vm_build", "build", self._entry("relax"), "tvm.relax")
        wrap("tvm.tirx.build", "build", self._entry("tirx"), "tvm.tirx")
        for name in ("get_tir_pipeline", "get_default_tir_pipeline"):
            wrap("tvm.tirx", name, _finalizers)

    def take_off(self) -> None:
        """Restore everything."""
        self._patches.take_off()

    def _entry(self, stage_name: str | None) -> Any:
        def entry(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
            mod = args[0] if args else kwargs.get("mod")
            target = args[1] if len(args) > 1 else kwargs.get("target")

            def describe() -> tuple[str, dict[str, Any]]:
                name = function_name(mod)
                attributes = target_attributes(target)
                if name is None:
                    return semconv.SPAN_COMPILE, attributes
                attributes[semconv.TILELANG_KERNEL_NAME] = name
                return f"{semconv.SPAN_COMPILE} {name}", attributes

            scope = self._recorder.compile_scope(describe, shapes=lambda: shapes_of(mod))
            with scope, stage(stage_name):
                return wrapped(*args, **kwargs)

        return entry


def _finalizers(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    """Tell the stage from which finalizer ``tvm.tirx.build`` asks for.

    A pipeline is a triple: the passes on everything, then what makes those for
    the host part and those for the device part.
    """
    pipeline = wrapped(*args, **kwargs)
    if not isinstance(pipeline, tuple) or len(pipeline) != 3:  # pyright: ignore
        return pipeline  # pyright: ignore
    everything, host, device = pipeline  # pyright: ignore
    return (
        everything,
        _staging(("tirx",), "host", host),
        _staging(("host", "device"), "device", device),
    )


def _staging(after: tuple[str, ...], name: str, make: Any) -> Any:
    """Return ``make`` that also tells the stage.

    Constant folding builds functions through TVM's registry, past our wrapper, in
    the middle of another stage: that one goes on.
    """

    def make_and_tell(*args: Any, **kwargs: Any) -> Any:
        move_stage(after, name)
        return make(*args, **kwargs)

    return make_and_tell if callable(make) else make
