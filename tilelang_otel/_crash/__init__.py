"""Nothing yet."""

from __future__ import annotations
from typing import Any


class CompileLog: ...


def for_process(directory: str, resource: Any) -> Any:
    return None
