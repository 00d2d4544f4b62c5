"""Compiles that nobody wanted: those that come when the warm-up is over.

Owns :func:`mark_warmup_done` and what is said of such a compile. Which compiles those
are is found out where a compile ends, in ``_scopes``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from tilelang_otel import semconv

__all__ = ["explain", "is_done", "is_unwanted", "mark_warmup_done"]

_logger = logging.getLogger(__name__)

_HITS: Final = ("memory", "disk")

_REASONS: Final[Mapping[Any, str]] = {
    "miss": "it is in no cache",
    "disabled": "the kernel cache is disabled",
    None: "no cache was asked",
}

_MAX_KERNELS: Final = 4096
"""After how many kernels nothing more is logged."""


class _State:
    is_done = False
    known: ClassVar[set[tuple[str, str]]] = set()


def mark_warmup_done() -> None:
    """Declare that everything that should be compiled has been. Never raises.

    Every compile from here on that no cache answers has ``tilelang.compile.trigger`` =
    ``runtime`` on its span and in its metrics, counts in
    ``tilelang.compile.after_warmup``, whether its trace is sampled or not, and is
    logged as a warning, once for each kernel and shapes. Call it when the service
    begins to take requests; calling it again changes nothing.
    """
    _State.is_done = True


def is_done() -> bool:
    """Return whether the warm-up is over."""
    return _State.is_done


def is_unwanted(attributes: Mapping[str, Any]) -> bool:
    """Tell whether a compile that ends now should not have been.

    Args:
        attributes: What is known of the compile.
    """
    return _State.is_done and attributes.get(semconv.TILELANG_CACHE_RESULT) not in _HITS


def explain(name: str, attributes: Mapping[str, Any], shapes: Callable[[], str] | None) -> None:
    """Log an unwanted compile, unless one of the same kernel has been.

    Args:
        name: Name of the compile's span.
        attributes: What is known of the compile.
        shapes: Returns the shapes that it was compiled for, as text.
    """
    described = shapes() if shapes is not None else ""
    key = (name, described)
    known = _State.known
    if key in known or len(known) >= _MAX_KERNELS:
        return
    known.add(key)
    target = attributes.get(semconv.TVM_TARGET_KIND)
    cause = attributes.get(semconv.TILELANG_CACHE_RESULT)
    _logger.warning(
        "%s%s%s came after the warm-up: %s",
        name,
        f" for {described}" if described else "",
        f" on {target}" if target else "",
        _REASONS.get(cause, f"the cache says {cause}"),
    )
