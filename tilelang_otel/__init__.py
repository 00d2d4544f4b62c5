"""OpenTelemetry traces of what a TVM or TileLang compilation does.

Loads neither a compiler nor OpenTelemetry's SDK: each name is loaded when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilelang_otel.version import __version__

if TYPE_CHECKING:
    from tilelang_otel._options import Options
    from tilelang_otel._warmup import mark_warmup_done
    from tilelang_otel.instrumentor import (
        TileLangInstrumentor,
        TVMInstrumentor,
        instrument,
        uninstrument,
    )
    from tilelang_otel.observer import OTelPassObserver
    from tilelang_otel.provider import configure, flush

__all__ = [
    "OTelPassObserver",
    "Options",
    "TVMInstrumentor",
    "TileLangInstrumentor",
    "__version__",
    "configure",
    "flush",
    "instrument",
    "mark_warmup_done",
    "uninstrument",
]

_MODULES = {
    "OTelPassObserver": "tilelang_otel.observer",
    "Options": "tilelang_otel._options",
    "TVMInstrumentor": "tilelang_otel.instrumentor",
    "TileLangInstrumentor": "tilelang_otel.instrumentor",
    "configure": "tilelang_otel.provider",
    "flush": "tilelang_otel.provider",
    "instrument": "tilelang_otel.instrumentor",
    "mark_warmup_done": "tilelang_otel._warmup",
    "uninstrument": "tilelang_otel.instrumentor",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
