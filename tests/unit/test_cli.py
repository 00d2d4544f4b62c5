"""The ``tilelang-otel`` command itself: which module runs, and what ends it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.trace_files import line, span
from tilelang_otel import cli
from tilelang_otel.cli import show
from tilelang_otel.version import __version__


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """``--version`` names the package's version."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"tilelang-otel {__version__}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` shows what there is, without importing any of it."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert [name in shown for name in ("run", "demo", "show", "doctor")] == [True] * 4


@pytest.mark.parametrize("arguments", [[], ["bake"]], ids=["none", "unknown"])
def test_wrong_command_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command that exists, there is a usage line and exit code 2."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("usage: tilelang-otel")


def test_help_imports_neither_sdk_nor_rich_nor_compiler() -> None:
    """What is not needed is not waited for."""
    code = (
        "import sys\n"
        "from tilelang_otel.cli import main\n"
        "try: main(['show', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('rich', 'opentelemetry.sdk', 'google.protobuf', 'tvm', 'tilelang')\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])\n"
    )
    assert _python(code).stdout.endswith("loaded: []\n")


def test_show_needs_no_sdk(tmp_path: Path) -> None:
    """A file can be looked at where nothing but rich is installed."""
    file = tmp_path / "t.jsonl"
    file.write_bytes(line(span(1, "compile f", 0, 1)))
    code = (
        "import sys\n"
        "from tilelang_otel.cli import main\n"
        "code = main(['show', sys.argv[1]])\n"
        "heavy = ('opentelemetry', 'google.protobuf')\n"
        "print(code, [name for name in heavy if name in sys.modules])"
    )
    assert _python(code, str(file)).stdout.endswith("\n0 []\n")


@pytest.mark.parametrize(
    ("command", "module"), [("show", "rich"), ("doctor", "rich"), ("demo", "opentelemetry.sdk")]
)
def test_missing_extra_says_what_to_install(
    command: str,
    module: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without the packages of the cli extra there is one line, not a traceback."""
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main([command, "t.jsonl"]) == 1
    assert capsys.readouterr().err == (
        f"tilelang-otel {command}: {module} is not installed; pip install 'tilelang-otel[cli]'\n"
    )


def test_ctrl_c_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupted command exits like one that the signal ended, without a traceback."""

    def interrupted(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "main", interrupted)
    assert cli.main(["show", "t.jsonl"]) == 130
    assert capsys.readouterr() == ("", "")


def test_reader_that_goes_away_ends_the_output_quietly(tmp_path: Path) -> None:
    """``show FILE | head -1`` ends without a complaint, and without reading on."""
    file = tmp_path / "t.jsonl"
    file.write_bytes(line(*(span(n, f"Pass{n}", n, n + 1) for n in range(1, 5_001))))
    writer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from tilelang_otel.cli import main; sys.exit(main())",
            "show",
            str(file),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    assert writer.stdout.readline().startswith(b"Pass1 and 4999 more roots")
    writer.stdout.close()
    assert writer.stderr.read() == b""
    assert writer.wait(timeout=60) == 141
    writer.stderr.close()
