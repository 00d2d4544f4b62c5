"""Tests that need a compiler are skipped where it may be missing, and nowhere else."""

from __future__ import annotations

import importlib.machinery
import importlib.util

import pytest

from tests.support import require


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed, and nobody said what should be."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv(require.ENVIRONMENT_VARIABLE, raising=False)


def test_missing_tvm_outside_ci_is_skipped_with_its_name() -> None:
    """A developer without TVM sees what to install."""
    with pytest.raises(pytest.skip.Exception, match="apache-tvm is not installed"):
        require.require_tvm()


def test_tvm_that_tilelang_ships_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be found once something has imported TileLang, and has no LLVM."""
    origin = "/site-packages/tilelang/3rdparty/tvm/python/tvm/__init__.py"
    spec = importlib.machinery.ModuleSpec("tvm", None, origin=origin)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(pytest.skip.Exception, match="apache-tvm is not installed"):
        require.require_tvm()


@pytest.mark.parametrize("environment", ["", "tvm"])
def test_missing_tvm_in_ci_fails(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken environment does not pass as a green run."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(require.ENVIRONMENT_VARIABLE, environment)
    with pytest.raises(pytest.fail.Exception, match="nothing may be skipped"):
        require.require_tvm()


@pytest.mark.parametrize("environment", ["none", "tilelang"])
def test_missing_tvm_in_ci_environment_without_it_is_skipped(
    environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that is not meant to have TVM skips what needs it."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(require.ENVIRONMENT_VARIABLE, environment)
    with pytest.raises(pytest.skip.Exception):
        require.require_tvm()


def test_missing_tilelang_in_its_own_ci_environment_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for TileLang."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(require.ENVIRONMENT_VARIABLE, "tilelang")
    with pytest.raises(pytest.fail.Exception, match="tilelang is not installed"):
        require.require_tilelang()


def test_unknown_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typo does not switch the check off."""
    monkeypatch.setenv(require.ENVIRONMENT_VARIABLE, "tmv")
    with pytest.raises(ValueError, match="expected tvm, tilelang, none"):
        require.require_tvm()


def test_installed_compiler_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiler is there, nothing is skipped."""
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: importlib.machinery.ModuleSpec(name, None)
    )
    require.require_tvm()
    require.require_tilelang()


def test_missing_tools_outside_ci_are_skipped_with_their_names() -> None:
    """A user without them sees what would do."""
    with pytest.raises(pytest.skip.Exception, match="no-such-tool or nor-this is not on the PATH"):
        require.require_tool("no-such-tool", "nor-this")


def test_missing_tool_in_ci_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI has what the tests need, whatever its compilers are."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(require.ENVIRONMENT_VARIABLE, "none")
    with pytest.raises(pytest.fail.Exception, match="no-such-tool is not on the PATH"):
        require.require_tool("no-such-tool")


def test_one_of_several_tools_is_enough() -> None:
    """A test that can use either tool runs with the one that is there."""
    require.require_tool("no-such-tool", "sh")


def test_missing_distribution_is_skipped_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed without a module of its own is treated the same."""
    with pytest.raises(pytest.skip.Exception, match="no-such-distribution is not installed"):
        require.require_distribution("no-such-distribution")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-distribution is not installed"):
        require.require_distribution("no-such-distribution")


def test_installed_distribution_is_used() -> None:
    """Where the distribution is there, nothing is skipped."""
    require.require_distribution("pytest")
