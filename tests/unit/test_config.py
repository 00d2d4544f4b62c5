"""Settings: keywords raise, variables warn once, the rest are defaults."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilelang_otel import OTelPassObserver, environment_variables, flush, instrument
from tilelang_otel._config import Settings, read_settings, warn_once

_VARIABLES = {
    "capture_nested": "OTEL_PYTHON_TILELANG_CAPTURE_NESTED",
    "include": "OTEL_PYTHON_TILELANG_INCLUDE",
    "exclude": "OTEL_PYTHON_TILELANG_EXCLUDE",
    "context_span": "OTEL_PYTHON_TILELANG_CONTEXT_SPAN",
    "part_age_s": "OTEL_PYTHON_TILELANG_PART_AGE",
    "part_spans": "OTEL_PYTHON_TILELANG_PART_SPANS",
    "file": "OTEL_PYTHON_TILELANG_FILE",
    "exit_timeout_s": "OTEL_PYTHON_TILELANG_EXIT_TIMEOUT",
    "emit": "OTEL_PYTHON_TILELANG_EMIT",
    "slow_s": "OTEL_PYTHON_TILELANG_SLOW",
    "trace_spans": "OTEL_PYTHON_TILELANG_TRACE_SPANS",
    "background": "OTEL_PYTHON_TILELANG_BACKGROUND",
    "crash_record": "OTEL_PYTHON_TILELANG_CRASH_RECORD",
    "crash_directory": "OTEL_PYTHON_TILELANG_CRASH_DIRECTORY",
    "stall_limit_s": "OTEL_PYTHON_TILELANG_STALL_LIMIT",
    "flush_on_sigterm": "OTEL_PYTHON_TILELANG_FLUSH_ON_SIGTERM",
}


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("tilelang_otel")]


def test_settings_without_anything_are_the_defaults() -> None:
    """What the documentation says applies."""
    assert read_settings() == Settings()
    assert dataclasses.asdict(Settings()) == {
        "capture_nested": True,
        "include": (),
        "exclude": (),
        "context_span": True,
        "part_age_s": 10.0,
        "part_spans": 2048,
        "file": "tilelang-otel.jsonl",
        "exit_timeout_s": 5.0,
        "emit": "all",
        "slow_s": 5.0,
        "trace_spans": 100_000,
        "background": None,
        "crash_record": False,
        "crash_directory": "",
        "stall_limit_s": None,
        "flush_on_sigterm": False,
    }


def test_every_setting_has_a_variable_that_is_registered() -> None:
    """What can be chosen in code can be chosen in the environment."""
    assert set(_VARIABLES) == {field.name for field in dataclasses.fields(Settings)}
    assert set(_VARIABLES.values()) == set(environment_variables.__all__)


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("capture_nested", "false", False),
        ("capture_nested", " TRUE ", True),
        ("include", "tir.*, relax.Fuse?", ("tir.*", "relax.Fuse?")),
        ("exclude", ",,A,", ("A",)),
        ("context_span", "False", False),
        ("crash_record", "on", True),
        ("crash_record", "true", True),
        ("flush_on_sigterm", "On", True),
        ("background", "off", False),
        ("part_age_s", "0.5", 0.5),
        ("part_age_s", "1e300", 1e9),
        ("part_spans", "100", 100),
        ("file", "/somewhere/trace.jsonl", "/somewhere/trace.jsonl"),
        ("exit_timeout_s", "2", 2.0),
    ],
)
def test_variable_sets_the_setting(
    setting: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spaces and case do not matter."""
    monkeypatch.setenv(_VARIABLES[setting], text)
    assert read_settings() == dataclasses.replace(Settings(), **{setting: value})


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_variable_counts_as_not_set(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As the OpenTelemetry specification asks."""
    for variable in _VARIABLES.values():
        monkeypatch.setenv(variable, text)
    assert read_settings() == Settings()
    assert _messages(caplog) == []


@pytest.mark.parametrize(
    ("setting", "text", "accepted", "default"),
    [
        ("capture_nested", "1", "true or false", "true"),
        ("context_span", "yes", "true or false", "true"),
        ("crash_record", "1", "on or off", "off"),
        ("background", "on and off", "true or false", "true for a provider of configure()"),
        ("part_age_s", "abc", "a number of seconds above 0", "10"),
        ("part_age_s", "nan", "a number of seconds above 0", "10"),
        ("part_age_s", "-1", "a number of seconds above 0", "10"),
        ("part_age_s", "0", "a number of seconds above 0", "10"),
        ("stall_limit_s", "0", "a number of seconds above 0", "no limit"),
        ("exit_timeout_s", "1e999", "a number of seconds above 0", "5"),
        ("part_spans", "0", "a whole number above 0", "2048"),
        ("part_spans", "1.5", "a whole number above 0", "2048"),
        ("part_spans", "9" * 5000, "a whole number above 0", "2048"),
        ("emit", "some", "all, slow or compile", "all"),
    ],
)
def test_bad_variable_warns_once_and_keeps_the_default(
    setting: str,
    text: str,
    accepted: str,
    default: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line that names the variable, its value and what it accepts; nothing fails."""
    monkeypatch.setenv(_VARIABLES[setting], text)
    for _ in range(3):
        assert read_settings() == Settings()
        OTelPassObserver()
    [message] = _messages(caplog)
    assert message.startswith(f"{_VARIABLES[setting]}={text[:80]!r} is ignored")
    assert accepted in message
    assert message.endswith(f"using {default}")
    assert "\n" not in message
    assert len(message) < 300


def test_keyword_wins_over_the_variable_even_a_bad_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is written in the program is meant; then the variable is not even read."""
    monkeypatch.setenv(_VARIABLES["part_spans"], "nonsense")
    monkeypatch.setenv(_VARIABLES["include"], "tir.*")
    settings = read_settings(part_spans=5, include=["A", " B "], exclude=None)
    assert settings == dataclasses.replace(Settings(), part_spans=5, include=("A", "B"))
    assert _messages(caplog) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("capture_nested", 1),
        ("capture_nested", "maybe"),
        ("include", 5),
        ("include", [1, 2]),
        ("exclude", [None]),
        ("context_span", "1"),
        ("part_age_s", 0),
        ("part_age_s", True),
        ("part_age_s", "soon"),
        ("part_age_s", float("inf")),
        ("part_age_s", 10**400),
        ("part_spans", 0),
        ("part_spans", 2.5),
        ("part_spans", True),
    ],
)
def test_bad_keyword_raises_and_says_what_is_accepted(setting: str, value: Any) -> None:
    """A mistake in the program is found where it is made, wherever options are taken."""
    for take in (read_settings, OTelPassObserver, instrument):
        with pytest.raises(ValueError, match=f"{setting}=.*expected "):
            take(**{setting: value})


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("caputre_nested", r"did you mean capture_nested\?"),
        ("slow", r"did you mean slow_s\?"),
        ("colour", "there are background, .*, trace_spans"),
    ],
)
def test_unknown_keyword_raises_and_says_what_there_is(option: str, advice: str) -> None:
    """A misspelt option does not go unnoticed."""
    takers: list[Callable[..., object]] = [read_settings, instrument]
    for take in takers:
        with pytest.raises(TypeError, match=f"unknown option {option}: {advice}"):
            take(**{option: True})


def test_flush_with_a_bad_timeout_names_its_own_parameter() -> None:
    """The message is about what the caller has written."""
    with pytest.raises(ValueError, match="timeout_s=0: expected a number of seconds above 0"):
        flush(0)


def test_file_takes_any_path() -> None:
    """Also ones that are no text."""
    assert read_settings(file=Path("a.jsonl")).file == "a.jsonl"
    assert read_settings(file=b"a.jsonl").file == "a.jsonl"


def test_warning_comes_once_for_each_key(caplog: pytest.LogCaptureFixture) -> None:
    """And a value with a percent sign in it is no format string."""
    with caplog.at_level(logging.WARNING):
        for key in ("A", "B", "A"):
            warn_once(key, f"{key}=100%s")
    assert _messages(caplog) == ["A=100%s", "B=100%s"]
