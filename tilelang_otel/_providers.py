"""What is known of tracer providers that the API does not tell.

Written by whoever builds a provider; read where spans are made for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Facts", "facts_of", "remember"]


@dataclass(frozen=True)
class Facts:
    """What holds for a provider; by default, for an application's own."""

    is_ours: bool = False
    """Whether this package has built it, so that it lives until our exit handler has run."""

    queue_spans: int = 2048
    """How many spans fit into its exporter's queue; the SDK's default."""

    tells_exports: bool = False
    """Whether the crash record is told which spans have been exported."""


_known: list[tuple[Any, Facts]] = []
_UNKNOWN = Facts()


def remember(provider: Any, facts: Facts) -> None:
    """Have :func:`facts_of` return ``facts`` for ``provider`` from here on."""
    _known.append((provider, facts))


def facts_of(provider: Any) -> Facts:
    """Return what is known of a provider."""
    for known, facts in _known:
        if known is provider:
            return facts
    return _UNKNOWN
