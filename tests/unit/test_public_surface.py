"""What users see: names, signatures and variables, pinned so that a change shows."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import tilelang_otel
from tilelang_otel import _config, environment_variables, events, semconv

_PUBLIC = (
    "tilelang_otel",
    "tilelang_otel.environment_variables",
    "tilelang_otel.events",
    "tilelang_otel.instrumentor",
    "tilelang_otel.observer",
    "tilelang_otel.provider",
    "tilelang_otel.semconv",
    "tilelang_otel.version",
)

_README = Path(__file__).parents[2] / "README.md"

_EVENT_SIGNATURES = {
    "pass_phase": "(name)",
    "current_pass_phase": "()",
    "PassEvent": "(name, sequence, depth, parent_sequence, phase)",
    "IncompletePass": "(name, depth, event, state)",
    "PassEventObserver.enter_pass_context": "(self)",
    "PassEventObserver.exit_pass_context": "(self)",
    "PassEventObserver.pass_started": "(self, mod, event)",
    "PassEventObserver.pass_finished": "(self, mod, event, state)",
    "PassEventObserver.passes_incomplete": "(self, passes, error)",
    "PassEventObserver.callback_mismatch": "(self, actual, expected)",
}
"""Of the reference page, what needs no compiler; a contract test has the instrument's."""


def _defined(module: ModuleType) -> set[str]:
    """Return the public names that a module binds itself, or loads when asked."""
    names: set[str] = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("name", _PUBLIC)
def test_public_module_lists_what_it_offers_in_order(name: str) -> None:
    """``__all__`` is sorted, has everything that is public, and nothing that is not there."""
    module = importlib.import_module(name)
    listed = list(module.__all__)
    assert listed == sorted(listed)
    assert len(set(listed)) == len(listed)
    if name not in ("tilelang_otel", "tilelang_otel.events"):  # these offer others' names
        assert _defined(module) <= set(listed)
    for public in listed:
        if name == "tilelang_otel.events" and public in events._NEED_TVM:
            continue
        assert getattr(module, public) is not None


def test_top_level_names_are_these() -> None:
    """Adding a name here is a decision: who needs it?"""
    assert tilelang_otel.__all__ == [
        "OTelPassObserver",
        "Options",
        "TVMInstrumentor",
        "TileLangInstrumentor",
        "__version__",
        "configure",
        "flush",
        "instrument",
        "mark_warmup_done",
        "uninstrument",
    ]
    assert dir(tilelang_otel) == tilelang_otel.__all__


def test_unknown_name_raises_attribute_error() -> None:
    """A typo fails as on any module."""
    with pytest.raises(AttributeError, match="instrumnet"):
        tilelang_otel.instrumnet  # noqa: B018  # pyright: ignore
    with pytest.raises(AttributeError, match="PassEvents"):
        events.PassEvents  # noqa: B018  # pyright: ignore


def test_event_names_are_those_of_the_reference() -> None:
    """The event API offers what ``tilelang.instrumentation.events`` offers."""
    assert events.__all__ == [
        "CapturePredicate",
        "IncompletePass",
        "PassEvent",
        "PassEventObserver",
        "SequenceAllocator",
        "StackedPassInstrument",
        "active_stacked_pass_instruments",
        "current_pass_phase",
        "pass_phase",
    ]


@pytest.mark.parametrize(("name", "expected"), _EVENT_SIGNATURES.items())
def test_event_signature_is_that_of_the_reference(name: str, expected: str) -> None:
    """Whoever calls TileLang's event API can call this one."""
    found: object = events
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    parameters = inspect.signature(found).parameters
    assert f"({', '.join(parameters)})" == expected


def test_pass_event_is_frozen_and_compares_by_value() -> None:
    """Events can be kept, compared and put into sets."""
    event = events.PassEvent("a", 0, 0, None, None)
    assert event == events.PassEvent("a", 0, 0, None, None)
    assert len({event, events.PassEvent("a", 0, 0, None, None)}) == 1
    with pytest.raises(AttributeError):
        event.name = "b"  # type: ignore[misc]


def test_variables_settings_and_readme_name_the_same() -> None:
    """A variable that exists is read, and is in the README; and the other way round."""
    variables = {name for name in vars(environment_variables) if name.isupper()}
    assert variables == set(environment_variables.__all__)
    assert variables == {source.variable for source in _config._SOURCES.values()}
    rows = re.findall(r"^\| `(OTEL_PYTHON_TILELANG_\w+)` \|", _README.read_text("utf-8"), re.M)
    assert sorted(rows) == sorted(variables)


def test_semantic_names_are_documented_and_in_our_namespaces() -> None:
    """Each name says when it is set; what is not OpenTelemetry's is under tvm or tilelang."""
    body = ast.parse(inspect.getsource(semconv)).body
    for position, node in enumerate(body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        after = body[position + 1] if position + 1 < len(body) else None
        assert isinstance(after, ast.Expr), f"{node.target.id} has no documentation"
        assert isinstance(after.value, ast.Constant), f"{node.target.id} has no documentation"
    for name in semconv.__all__:
        if name.startswith(("TVM_", "TILELANG_")):
            value = getattr(semconv, name)
            assert value.startswith(("tvm.", "tilelang.")), name
            assert value == value.lower()
