"""What Jaeger has stored is what was compiled: every edge, phase, duration and failure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.command import read_spans
from tests.support.jaeger import Jaeger
from tests.support.received import ReceivedSpan
from tests.support.receiver import PROTOCOLS, Protocol
from tests.support.require import require_tvm
from tests.support.spans import SpanTree, outline, trees
from tests.support.zero_code import run_zero_code

require_tvm()

_ROUNDING_NS = 2_000
"""Jaeger cuts starts and durations to microseconds: an end may be off by nearly two."""


def assert_within_parents(spans: Sequence[ReceivedSpan]) -> None:
    """Assert that children lie within their parents, as well as Jaeger can tell."""
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        if span.parent_span_id:
            parent = by_id[span.parent_span_id]
            assert parent.start_ns <= span.start_ns, f"{span.name} starts before {parent.name}"
            assert span.end_ns <= parent.end_ns + _ROUNDING_NS, f"{span.name} outlives its parent"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_failing_pipeline_is_stored_as_it_ran(
    protocol: Protocol, jaeger: Jaeger, tmp_path: Path
) -> None:
    """The tree in Jaeger is the pipeline, up to the pass that failed, and says why."""
    service = f"passes-{protocol[:4]}"
    done = run_zero_code(
        "passes.py", cwd=tmp_path, environment=jaeger.environment(protocol, service)
    )
    assert (done.returncode, done.stdout) == (0, "failed: cannot lower loop i\n"), done.stderr
    assert "Traceback" not in done.stderr
    spans = jaeger.wait_for_trace(service, spans=7)
    failed = {"tvm.pass.incomplete": True, "error.type": "ValueError"}
    assert trees(spans, "tvm.pass.incomplete", "error.type") == [
        SpanTree(
            "PassContext",
            children=(
                SpanTree(
                    "pipeline",
                    failed,
                    (
                        SpanTree("Prepare"),
                        SpanTree(
                            "lower",
                            failed,
                            (
                                SpanTree("Legalize", children=(SpanTree("Simplify"),)),
                                SpanTree(
                                    "Lower",
                                    failed,
                                    status="ERROR",
                                    message="cannot lower loop i",
                                    events=("exception",),
                                ),
                            ),
                            status="ERROR",
                            message="failed in Lower",
                        ),
                    ),
                    status="ERROR",
                    message="failed in Lower",
                ),
            ),
        )
    ]
    [culprit] = [span for span in spans if span.events]
    [event] = culprit.events
    assert event.attributes["exception.type"] == "ValueError"
    assert event.attributes["exception.message"] == "cannot lower loop i"
    assert culprit.start_ns <= event.time_ns <= culprit.end_ns + _ROUNDING_NS
    assert_within_parents(spans)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_compile_is_stored_whole(protocol: Protocol, jaeger: Jaeger, tmp_path: Path) -> None:
    """Every span of a real compile is in Jaeger as it was in the process."""
    service = f"compile-{protocol[:4]}"
    done = run_zero_code(
        "compile.py",
        cwd=tmp_path,
        environment={
            **jaeger.environment(protocol, service),
            # The second exporter writes down what the first one sends.
            "OTEL_TRACES_EXPORTER": "otlp,otlp_jsonl",
            "OTEL_PYTHON_TILELANG_FILE": "sent.jsonl",
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[["), done.stdout
    sent = read_spans(tmp_path / "sent.jsonl")
    stored = jaeger.wait_for_trace(service, spans=len(sent))

    assert _edges(stored) == _edges(sent)
    assert len(stored) > 50
    assert _cut(stored) == _cut(sent)
    assert_within_parents(stored)
    assert outline(stored)[0] == "compile forward"
    assert {span.attributes.get("tvm.pass.phase") for span in stored} >= {"relax", "tirx", "host"}
    assert {span.scope_name for span in stored} == {"tilelang_otel"}
    [root] = [span for span in stored if not span.parent_span_id]
    below = {span.name for span in stored if span.parent_span_id == root.span_id}
    assert {"codegen llvm", "link"} <= below


def test_services_and_operations_are_listed(jaeger: Jaeger, tmp_path: Path) -> None:
    """Jaeger's search form offers the program and the names of its passes."""
    done = run_zero_code(
        "passes.py", cwd=tmp_path, environment=jaeger.environment("grpc", "operations")
    )
    assert done.returncode == 0, done.stderr
    jaeger.wait_for_trace("operations", spans=7)
    assert "operations" in jaeger.services()
    assert jaeger.operations("operations") == {
        "PassContext",
        "pipeline",
        "Prepare",
        "lower",
        "Legalize",
        "Simplify",
        "Lower",
    }


def test_failed_compile_is_found_by_its_error(jaeger: Jaeger, tmp_path: Path) -> None:
    """The search that the README gives for failures finds them, and no others."""
    for program in ("passes.py", "compile.py"):
        done = run_zero_code(
            program, cwd=tmp_path, environment=jaeger.environment("grpc", "search")
        )
        assert done.returncode == 0, done.stderr
    [found] = jaeger.traces("search", tags='{"error.type":"ValueError"}')
    assert outline(found)[0] == "PassContext"
    [found] = jaeger.traces("search", tags='{"tvm.target.kind":"llvm"}')
    assert outline(found)[0] == "compile forward"


def _edges(spans: Sequence[ReceivedSpan]) -> set[tuple[str, str, str, str]]:
    """Return every span's id and name with its parent's."""
    by_id = {span.span_id: span.name for span in spans}
    return {
        (span.parent_span_id, by_id.get(span.parent_span_id, ""), span.span_id, span.name)
        for span in spans
    }


def _cut(spans: Sequence[ReceivedSpan]) -> dict[str, object]:
    """Return what Jaeger keeps of each span, by id."""
    return {
        span.span_id: (
            span.status,
            span.start_ns // 1000,
            # Cut as a duration, not as an end.
            (span.end_ns - span.start_ns) // 1000,
            # Jaeger's own tag, in place of the status.
            {key: _short(value) for key, value in span.attributes.items() if key != "error"},
        )
        for span in spans
    }


def _short(value: object) -> object:
    return round(value, 9) if isinstance(value, float) else value
