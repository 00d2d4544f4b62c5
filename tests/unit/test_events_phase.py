"""Which phase a pass belongs to: the program's, TileLang's, or the stage that was seen."""

from __future__ import annotations

import contextvars
import sys
import types
from collections.abc import Generator

import pytest

from tests.support.threads import in_threads
from tilelang_otel.events import current_pass_phase, pass_phase
from tilelang_otel.events._model import move_stage, stage

_FOREIGN = "tilelang.instrumentation.events"


@pytest.fixture(autouse=True)
def no_phase_outside() -> None:
    """Every test starts without a phase."""
    assert current_pass_phase() is None


def _tilelang(monkeypatch: pytest.MonkeyPatch, phase: str | None) -> None:
    module = types.ModuleType(_FOREIGN)
    module.__dict__["current_pass_phase"] = lambda: phase
    monkeypatch.setitem(sys.modules, _FOREIGN, module)


def test_innermost_phase_counts_and_the_outer_one_comes_back() -> None:
    """Also when the scope is left by an exception."""

    def fail() -> None:
        with pass_phase("inner"):
            assert current_pass_phase() == "inner"
            raise ValueError("boom")

    with pass_phase("outer"):
        with pytest.raises(ValueError, match="boom"):
            fail()
        assert current_pass_phase() == "outer"
        with pass_phase(None):
            assert current_pass_phase() is None
        assert current_pass_phase() == "outer"
    assert current_pass_phase() is None


def test_phase_of_one_thread_is_not_that_of_another() -> None:
    """Each compile has its own."""
    with pass_phase("mine"), stage("relax"):

        def other(_: int) -> None:
            assert current_pass_phase() is None
            with pass_phase("theirs"):
                assert current_pass_phase() == "theirs"

        in_threads(1, other)
        assert current_pass_phase() == "mine"


def test_phase_follows_a_copied_context() -> None:
    """Work handed on with its context keeps its phase."""
    with pass_phase("mine"):
        context = contextvars.copy_context()
    assert context.run(current_pass_phase) == "mine"


def test_generator_with_a_phase_may_be_closed_in_another_context() -> None:
    """Where it is closed the phase was never set: there is nothing to complain about."""

    def held() -> Generator[None, None, None]:
        with pass_phase("held"):
            yield

    generator = held()
    contextvars.copy_context().run(next, generator)
    generator.close()
    assert current_pass_phase() is None


def test_order_is_the_programs_phase_then_tilelangs_then_the_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The more somebody knows of the compile, the more their word counts."""
    with stage("tirx"):
        assert current_pass_phase() == "tirx"
        _tilelang(monkeypatch, None)
        assert current_pass_phase() == "tirx"
        _tilelang(monkeypatch, "pipeline_cuda")
        assert current_pass_phase() == "pipeline_cuda"
        with pass_phase("mine"):
            assert current_pass_phase() == "mine"


def test_tilelang_without_phases_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that we do not know, or one that is just being imported."""
    monkeypatch.setitem(sys.modules, _FOREIGN, types.ModuleType(_FOREIGN))
    assert current_pass_phase() is None
    monkeypatch.delitem(sys.modules, _FOREIGN)
    with stage("relax"):
        assert current_pass_phase() == "relax"


def test_stage_moves_on_only_from_the_stages_it_can_follow() -> None:
    """Constant folding builds functions in the middle of another stage: that one goes on."""
    with stage("tirx"):
        move_stage(("tirx",), "host")
        assert current_pass_phase() == "host"
        move_stage(("tirx",), "device")
        assert current_pass_phase() == "host"
        with stage("relax"):
            assert current_pass_phase() == "relax"
        assert current_pass_phase() == "host"
    assert current_pass_phase() is None
