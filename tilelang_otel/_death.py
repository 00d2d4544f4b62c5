"""How a process died: in words, and as attributes of the spans that died with it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from tilelang_otel import semconv

__all__ = ["Death"]


@dataclass(frozen=True)
class Death:
    """What is known of it; nothing by default.

    Attributes:
        signal: The name of the signal that it died of, if any.
        exit_code: What it has left with, if it was not a signal.
    """

    signal: str | None = None
    exit_code: int | None = None

    @classmethod
    def of_status(cls, status: int) -> Death:
        """Return what the parent of the process is told.

        Args:
            status: Its exit code, or the negative number of the signal that it died of.
        """
        return cls(exit_code=status) if status >= 0 else cls(signal=_name(-status))

    @property
    def message(self) -> str:
        """A sentence."""
        if self.signal:
            return f"the process died of {self.signal}"
        if self.exit_code is not None:
            return f"the process died with exit code {self.exit_code}"
        return "the process died"

    @property
    def attributes(self) -> dict[str, Any]:
        """What is known, as attributes of a span."""
        known = {
            semconv.TILELANG_PROCESS_SIGNAL: self.signal,
            semconv.PROCESS_EXIT_CODE: self.exit_code,
        }
        return {name: value for name, value in known.items() if value is not None}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the many real-time signals
        return f"signal {number}"
