"""TVM pass events: the event API of ``tilelang.instrumentation.events``, over any TVM.

Pairs TVM's before- and after-pass callbacks into events with a stable order,
parents and depth, and drains what a failing pass leaves open. Consumers remain
responsible for what to keep of a pass and how to show it.

Only the instrument itself needs a compiler; it is loaded when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilelang_otel.events._model import (
    CapturePredicate,
    IncompletePass,
    PassEvent,
    PassEventObserver,
    SequenceAllocator,
    current_pass_phase,
    pass_phase,
)

if TYPE_CHECKING:
    from tilelang_otel.events._instrument import (
        StackedPassInstrument,
        active_stacked_pass_instruments,
    )

__all__ = [
    "CapturePredicate",
    "IncompletePass",
    "PassEvent",
    "PassEventObserver",
    "SequenceAllocator",
    "StackedPassInstrument",
    "active_stacked_pass_instruments",
    "current_pass_phase",
    "pass_phase",
]

_NEED_TVM = ("StackedPassInstrument", "active_stacked_pass_instruments")


def __getattr__(name: str) -> Any:
    if name not in _NEED_TVM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tilelang_otel.events import _instrument
    except ModuleNotFoundError as error:
        if error.name != "tvm":
            raise
        raise ModuleNotFoundError(
            f"{name} needs TVM, which is not installed here: "
            "pip install 'tilelang-otel[tvm]' or 'tilelang-otel[tilelang]'",
            name="tvm",
        ) from error
    return getattr(_instrument, name)


def __dir__() -> list[str]:
    return sorted(__all__)
