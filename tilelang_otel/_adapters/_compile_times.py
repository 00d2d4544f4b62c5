"""How long kernels once took to compile, so that a cache hit can say what it saved.

Kept in this process, and in a folder of our own for the next one: never in
TileLang's cache. One small file for each key, since processes share it.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from tilelang_otel import semconv
from tilelang_otel._config import cache_directory
from tilelang_otel._guard import guard
from tilelang_otel._scopes import CompileScope

__all__ = ["CompileTimes"]

_KEY = re.compile(r"[0-9a-f]{16,128}")
_MOST_FILES = 4096


class CompileTimes:
    """Remembers compile times by cache key. Never raises."""

    def __init__(self) -> None:
        self._known_s: dict[str, float] = {}

    def finished(self, scope: CompileScope, key: str | None, was_compiled: bool) -> None:
        """Note how long a compile took, or tell it on the span of a cache hit.

        Args:
            scope: The compile, just before its end.
            key: Under which the cache knows the kernel.
            was_compiled: Whether it had to be compiled.
        """
        with guard:
            if key is None or not _KEY.fullmatch(key):
                return
            if was_compiled:
                duration_s = scope.age_s()
                if duration_s is not None:
                    self._known_s[key] = duration_s
                    self._write(key, duration_s)
                return
            known_s = self._known_s.get(key) or self._read(key)
            if known_s is not None:
                scope.set_attribute(semconv.TILELANG_CACHE_COMPILE_DURATION, known_s)

    def _read(self, key: str) -> float | None:
        try:
            return float((_directory() / key).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def _write(self, key: str, duration_s: float) -> None:
        directory = _directory()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if sum(1 for _ in os.scandir(directory)) >= _MOST_FILES:
                return
            with tempfile.NamedTemporaryFile(
                "w", dir=directory, delete=False, encoding="ascii"
            ) as file:
                file.write(f"{duration_s:.6f}")
            os.replace(file.name, directory / key)
        except OSError:
            # A read-only home is no reason to fail or to speak up: only this process knows.
            return


def _directory() -> Path:
    return cache_directory() / "compile-times"
