"""Every example in the README does what it says."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.readme import KINDS, ROOT, Block, blocks
from tests.support.receiver import OTLPReceiver
from tests.support.require import require_tvm

require_tvm()

_BLOCKS = blocks()

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_DEFAULT_ENDPOINT = "http://localhost:4317"

_PROGRAM = """\
import sys

import tvm
from tvm import te

A = te.placeholder((64,), name="A")
B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
tvm.compile(te.create_prim_func([A, B]), target="llvm")
print("compiled", sys.argv[1:])
"""


def _of(*kinds: str) -> list[object]:
    return [
        pytest.param(block, id=f"line-{block.line}") for block in _BLOCKS if block.kind in kinds
    ]


def _run(
    command: list[str], folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("OTEL_")}
    scripts = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join((scripts, environment["PATH"]))
    environment["COLUMNS"] = "80"
    environment.update(variables)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the program that the README's commands are about."""
    (tmp_path / "compile.py").write_text(_PROGRAM, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("block", [pytest.param(b, id=f"line-{b.line}") for b in _BLOCKS])
def test_block_is_of_a_kind_that_is_tested(block: Block) -> None:
    """No example goes unchecked because nobody knows what it is."""
    assert block.kind in KINDS


@pytest.mark.parametrize("block", _of("python"))
def test_python_block_runs_and_its_spans_arrive(block: Block, folder: Path) -> None:
    """Each script runs as it stands, without a warning, and exports what it traces."""
    (folder / "example.py").write_text(block.text, encoding="utf-8")
    with OTLPReceiver("grpc") as receiver:
        done = _run([sys.executable, "example.py"], folder, receiver.environment())
        assert (done.returncode, done.stderr) == (0, "")
        if "configure()" in block.text:
            spans = receiver.wait_for(1)
            assert any("tvm.pass.name" in span.attributes for span in spans)


@pytest.mark.parametrize("block", _of("sh"))
def test_command_block_runs(block: Block, folder: Path) -> None:
    """Each line of commands succeeds, in order, in one folder."""
    if "traces.jsonl" in block.text and "run --output" not in block.text:
        pytest.fail("a block must make the files that it reads")
    # What the user's own programs have left is not a test's to recover.
    done = _run(["sh", "-euc", block.text], folder, {"XDG_CACHE_HOME": str(folder)})
    assert done.returncode == 0, done.stderr
    expected = "nothing to recover" if "recover" in block.text else "compile main"
    assert expected in done.stdout + done.stderr


@pytest.mark.parametrize("block", _of("sh receiver"))
def test_command_block_with_a_receiver_delivers_spans(block: Block, folder: Path) -> None:
    """Each block exports to where it says, or to OpenTelemetry's default if it says nothing."""
    with OTLPReceiver("grpc") as receiver:
        text = block.text.replace(_DEFAULT_ENDPOINT, receiver.endpoint)
        variables = {} if text != block.text else {_ENDPOINT: receiver.endpoint}
        done = _run(["sh", "-euc", text], folder, variables)
        assert done.returncode == 0, done.stdout + done.stderr
        names = {span.name for span in receiver.wait_for(1)}
    assert "compile main" in names


@pytest.mark.parametrize("block", _of("sh setup"))
def test_setup_block_names_what_exists(block: Block) -> None:
    """Make targets, extras and images that the README names are there."""
    targets = re.findall(r"^make ([\w.-]+)", block.text, re.MULTILINE)
    extras = re.findall(r"pip install '\.\[([\w,-]+)\]'", block.text)
    images = re.findall(r"docker run .*?(\S+:\d+\.\d+\.\d+)$", block.text, re.MULTILINE)
    plain = re.findall(r"^pip install \. ", block.text, re.MULTILINE)
    assert targets or extras or images or plain
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in targets:
        assert re.search(rf"^{re.escape(target)}[ :]", makefile, re.MULTILINE), target
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in ",".join(extras).split(","):
        assert not extra or re.search(rf"^{re.escape(extra)} = \[", project, re.MULTILINE), extra


@pytest.mark.parametrize("block", _of("text demo"))
def test_printed_tree_is_what_the_demo_prints(block: Block, folder: Path) -> None:
    """The picture in the README shows the real tree: the same spans, in the same places."""
    shown = re.search(r"TVM (\d+\.\d+)", block.title)
    assert shown, "the line above the picture names the TVM that it is of"
    if not importlib.metadata.version("apache-tvm").startswith(shown[1] + "."):
        pytest.skip(f"the picture is of TVM {shown[1]}, each of which has passes of its own")
    commands = re.findall(r"^\$ (.+)$", block.text, re.MULTILINE)
    # The times differ each time, and with them what is too short to be shown.
    everything = re.sub(r"--min-duration \S+", "--min-duration 0", " && ".join(commands))
    done = _run(["sh", "-euc", everything], folder, {})
    assert done.returncode == 0, done.stderr
    real = _tree(done.stdout)
    assert real[0] == (0, "compile transformer_block llvm")
    position = 0
    for row in _tree(block.text):
        assert row in real[position:], row
        position += real[position:].index(row) + 1


def _tree(text: str) -> list[tuple[int, str]]:
    """Return (indent, name) of each row of the last tree in a text."""
    rows = re.findall(r"^([│├└─ ]*)((?:\S+ )*\S+) {2,}[\d,]+\.\d+ ", text, re.MULTILINE)
    # A phase stands where it begins, which depends on what is shown before.
    tree = [(len(indent), re.sub(r" \[\w+\]$", "", name)) for indent, name in rows]
    roots = [at for at, (indent, name) in enumerate(tree) if indent == 0 and name[:7] == "compile"]
    return tree[roots[-1] :]
