"""The version of this package, also the version of its instrumentation scope."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
