"""``tilelang-otel demo``: a real model, compiled, checked and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import read_spans, run_command, run_python
from tests.support.received import ReceivedSpan
from tests.support.receiver import OTLPReceiver
from tests.support.require import require_tvm
from tests.support.spans import SpanTree, assert_sound, covered_fraction, outline, trees

_FILE = "tilelang-otel-demo.jsonl"

_WITHOUT_TVM = (
    "import sys\n"
    "sys.modules['tvm'] = sys.modules['tilelang'] = None\n"
    "from tilelang_otel.cli import main\n"
    "sys.exit(main(['demo']))\n"
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[ReceivedSpan]]:
    """What the demo prints, and its spans."""
    require_tvm()
    folder = tmp_path_factory.mktemp("demo")
    done = run_command("demo", cwd=folder, environment={"OTEL_TRACES_EXPORTER": ""})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, read_spans(folder / _FILE)


def _depth(tree: SpanTree) -> int:
    """Return how many passes deep a tree is."""
    below = max(map(_depth, tree.children), default=0)
    return below + ("tvm.pass.name" in tree.attributes)


def test_demo_checks_its_numbers_and_prints_the_tree(demo: tuple[str, list[ReceivedSpan]]) -> None:
    """What was compiled computes what NumPy computes, and the tree says what it took."""
    stdout, _ = demo
    assert "its numbers match NumPy's" in " ".join(stdout.split())
    assert "compile transformer_block llvm" in stdout
    assert "─codegen llvm" in stdout
    assert stdout.splitlines()[-1].endswith(f"tilelang-otel show {_FILE}")


def test_demo_runs_about_a_hundred_passes_six_deep(
    demo: tuple[str, list[ReceivedSpan]],
) -> None:
    """It is a compile of some size, by a pipeline of TVM's own, in one trace."""
    _, spans = demo
    assert_sound(spans)
    [root] = trees(spans, "tvm.pass.name", "tvm.target.kind")
    assert (root.name, root.attributes) == (
        "compile transformer_block",
        {"tvm.target.kind": "llvm"},
    )
    passes = [span for span in spans if "tvm.pass.name" in span.attributes]
    assert 80 <= len(passes) <= 120
    assert _depth(root) == 6
    others = {span.name for span in spans if span not in passes}
    assert others == {"compile transformer_block", "codegen llvm", "codegen vm", "link"}
    assert not [line for line in outline(spans) if "!" in line]


def test_demo_gives_every_pass_a_phase(demo: tuple[str, list[ReceivedSpan]]) -> None:
    """Nobody set one, so it is the stage that ran."""
    _, spans = demo
    phases: list[str] = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        if "tvm.pass.name" in span.attributes:
            phase = span.attributes.get("tvm.pass.phase", f"none: {span.name}")
            phases += [phase] if phase not in phases else []
    assert phases == ["relax", "tirx", "host"]


def test_demo_names_almost_all_of_its_time(demo: tuple[str, list[ReceivedSpan]]) -> None:
    """Spans of work cover at least 95 % of the compile."""
    _, spans = demo
    [root] = [span for span in spans if not span.parent_span_id]
    assert covered_fraction(root, spans) >= 0.95


def test_failing_demo_shows_the_pass_that_failed_and_exits_with_0(tmp_path: Path) -> None:
    """The error is on the pass itself, once, and its ancestors point to it."""
    require_tvm()
    done = run_command("demo", "--fail", "--output", "failed.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "The compile failed, as it was meant to: ValueError: the model needs" in done.stdout
    assert "failed in LimitKernels: ValueError: the model needs" in done.stdout
    spans = read_spans(tmp_path / "failed.jsonl")
    failed = [line.strip() for line in outline(spans) if "!" in line]
    assert failed == ["compile transformer_block!", "_pipeline!", "sequential!", "LimitKernels!*"]
    assert not (tmp_path / _FILE).exists()


def test_demo_exports_to_the_receiver_in_the_environment(tmp_path: Path) -> None:
    """Then it prints where the trace went, and leaves no file."""
    require_tvm()
    with OTLPReceiver() as receiver:
        done = run_command("demo", "--fail", cwd=tmp_path, environment=receiver.environment())
        spans = receiver.wait_for(10)
        assert outline(spans)[0] == "compile transformer_block!"
    assert done.stdout.splitlines()[-1] == (
        f"tilelang-otel demo: traces are exported to {receiver.endpoint}"
    )
    assert list(tmp_path.iterdir()) == []


def test_demo_without_tvm_says_what_to_install(tmp_path: Path) -> None:
    """One line, and no traceback."""
    done = run_python("-c", _WITHOUT_TVM, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "tilelang-otel demo: neither TVM nor TileLang is installed: "
        "pip install 'tilelang-otel[tvm]' or 'tilelang-otel[tilelang]'"
    ]
    assert list(tmp_path.iterdir()) == []


def test_demo_refuses_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """Before it compiles anything."""
    done = run_command("demo", "--output", "no/folder/t.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tilelang-otel demo: cannot write ")
