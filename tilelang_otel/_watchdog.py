"""Nothing yet."""

from typing import Any


def watch(limit_s: float, instruments: Any) -> None: ...
