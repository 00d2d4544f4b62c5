"""Skips tests whose compiler or tool is missing, and sees to it that CI skips none by accident.

``TILELANG_OTEL_TEST_ENV`` says which compiler the environment is meant to have:
``tvm``, ``tilelang`` or ``none``. Where ``CI`` is ``true``, a missing compiler
is a failure, unless the variable says that it is not meant to be there. A
missing tool is a failure there in any case.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from typing import Final

import pytest

__all__ = ["require_distribution", "require_tilelang", "require_tool", "require_tvm"]

ENVIRONMENT_VARIABLE: Final = "TILELANG_OTEL_TEST_ENV"

_ENVIRONMENTS: Final = ("tvm", "tilelang", "none")
_SHIPPED: Final = os.path.join("tilelang", "3rdparty", "tvm", "")


def require_tvm() -> None:
    """Skip the module or test that calls it where TVM is not installed by itself.

    The TVM inside TileLang does not count: it has no LLVM.

    Raises:
        pytest.skip.Exception: TVM is missing, and may be.
        pytest.fail.Exception: TVM is missing in CI.
        ValueError: ``TILELANG_OTEL_TEST_ENV`` has an unknown value.
    """
    _require("tvm", "apache-tvm")


def require_tilelang() -> None:
    """Skip the module or test that calls it where TileLang is not installed.

    Raises:
        pytest.skip.Exception: TileLang is missing, and may be.
        pytest.fail.Exception: TileLang is missing in CI.
        ValueError: ``TILELANG_OTEL_TEST_ENV`` has an unknown value.
    """
    _require("tilelang", "tilelang")


def require_tool(*programs: str) -> None:
    """Skip the module or test that calls it where none of the programs is on the PATH.

    Args:
        *programs: Any of them will do.

    Raises:
        pytest.skip.Exception: They are missing, and may be.
        pytest.fail.Exception: They are missing in CI.
    """
    if not any(shutil.which(program) for program in programs):
        _missing(f"{' or '.join(programs)} is not on the PATH")


def require_distribution(name: str) -> None:
    """Skip the module or test that calls it where a distribution is not installed.

    Args:
        name: As ``pip`` knows it.

    Raises:
        pytest.skip.Exception: It is missing, and may be.
        pytest.fail.Exception: It is missing in CI.
    """
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        _missing(f"{name} is not installed")


def _missing(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}: in CI nothing may be skipped for that", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def _require(module: str, distribution: str) -> None:
    environment = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if environment and environment not in _ENVIRONMENTS:
        raise ValueError(
            f"{ENVIRONMENT_VARIABLE}={environment!r}: expected {', '.join(_ENVIRONMENTS)}"
        )
    spec = importlib.util.find_spec(module)
    # TileLang puts the TVM that it ships on the path when something imports it.
    if spec is not None and _SHIPPED not in (spec.origin or ""):
        return
    reason = f"{distribution} is not installed"
    if os.environ.get("CI") == "true" and environment in ("", module):
        pytest.fail(
            f"{reason}: nothing may be skipped here unless {ENVIRONMENT_VARIABLE} says that "
            "this environment is not meant to have it",
            pytrace=False,
        )
    pytest.skip(reason, allow_module_level=True)
