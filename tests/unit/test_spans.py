"""Finished records become spans; nothing else decides what a span says."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import SpanKind, set_span_in_context

from tests.support.broken import BrokenProvider
from tests.support.spans import SpanMemory, SpanTree, outline, trees
from tilelang_otel._frames import Failure, Frame, Record
from tilelang_otel._spans import context_below, emit

_OFFSET_NS = 1000


def _record(name: str, start: int, end: int, parent: Record | None = None, **more: Any) -> Record:
    record = Record()
    record.name, record.start_ns, record.end_ns, record.parent = name, start, end, parent
    for key, value in more.items():
        setattr(record, key, value)
    return record


def _emit(memory: SpanMemory, *records: Record, context: Any = None) -> list[Record]:
    return emit(records, memory.provider.get_tracer("test"), context, _OFFSET_NS)


def test_records_become_spans_with_parents_times_kinds_and_attributes(memory: SpanMemory) -> None:
    """Work that a child process does is a client's span, all else internal."""
    outer = _record("codegen cuda", 1, 9, attributes={"tvm.target.kind": "cuda"})
    inner = _record("nvcc", 2, 8, outer, is_client=True)
    assert _emit(memory, outer, inner) == []
    assert trees(memory.spans, "tvm.target.kind", with_times=True) == [
        SpanTree(
            "codegen cuda",
            {"tvm.target.kind": "cuda"},
            times=(1001, 1009),
            children=(SpanTree("nvcc", times=(1002, 1008)),),
        )
    ]
    assert memory.named("nvcc").kind is SpanKind.CLIENT
    assert memory.named("codegen cuda").kind is SpanKind.INTERNAL


def test_open_records_are_started_and_given_back(memory: SpanMemory) -> None:
    """Their children need a parent; what their end tells is added when it comes."""
    outer = _record("outer", 1, 0, attributes={"early": 1})
    inner = _record("inner", 2, 3, outer)
    assert _emit(memory, outer, inner) == [outer]
    assert [span.name for span in memory.spans] == ["inner"]
    outer.end_ns = 4
    outer.attributes = {"early": 1, "late": 2}
    assert _emit(memory, outer) == []
    assert outline(memory.spans, "early", "late") == ["outer 1 2", "  inner"]


def test_record_without_parent_starts_in_the_given_context(memory: SpanMemory) -> None:
    """Not in whatever is current when it is emitted."""
    tracer = memory.provider.get_tracer("program")
    request = tracer.start_span("request", start_time=1000)
    with tracer.start_as_current_span("elsewhere", start_time=1000, end_on_exit=False) as other:
        _emit(memory, _record("A", 1, 2), context=set_span_in_context(request))
    other.end(2000)
    request.end(2000)
    assert outline(memory.spans) == ["request", "  A", "elsewhere"]


def test_failure_is_on_the_first_to_fail_and_only_told_by_the_others(memory: SpanMemory) -> None:
    """One exception event a failure, at the time of the end."""
    outer = _record("outer", 1, 9, failure=Failure("E", "no layout", origin="in\0ner"))
    inner = _record("in\0ner", 2, 8, outer, failure=Failure("E", "no layout", "trace"))
    unseen = _record("unseen", 3, 4, failure=Failure("_OTHER"))
    silent = _record("silent", 5, 6, failure=Failure("SystemExit"))
    _emit(memory, outer, inner, unseen, silent)
    assert trees(memory.spans, "error.type") == [
        SpanTree(
            "outer",
            {"error.type": "E"},
            (SpanTree("in ner", {"error.type": "E"}, (), "ERROR", "no layout", ("exception",)),),
            "ERROR",
            "failed in in ner",
        ),
        SpanTree(
            "unseen",
            {"error.type": "_OTHER"},
            (),
            "ERROR",
            "did not finish; its exception was not seen",
        ),
        SpanTree("silent", {"error.type": "SystemExit"}, (), "ERROR", "SystemExit", ("exception",)),
    ]
    [event] = memory.named("in ner").events
    assert event.timestamp == 1008
    assert dict(event.attributes or {}) == {
        "exception.type": "E",
        "exception.message": "no layout",
        "exception.stacktrace": "trace",
    }


@pytest.mark.parametrize("name", ["x" * 200_000, "a\0b", "tab\n", "%s{}", "", "\ud800"])
def test_names_of_any_kind_make_spans_that_can_be_sent(name: str, memory: SpanMemory) -> None:
    """A name that cannot be encoded would fail a whole batch."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    frame = Frame()
    frame.name, frame.phase = name, name
    frame.sequence, frame.start_ns, frame.end_ns = 0, 1, 2
    frame.failure = Failure("E", "m", origin=name)
    _emit(memory, frame)
    [span] = memory.spans
    attributes = dict(span.attributes or {})
    assert 0 < len(span.name) <= 256
    assert span.name.isprintable()
    assert attributes["tvm.pass.name"] == span.name
    assert attributes["tvm.pass.phase"] == span.name
    assert encode_spans([span]).ByteSize() < 2000


def test_self_time_is_never_below_zero(memory: SpanMemory) -> None:
    """Children that outlast a pass, as clocks may have it, leave it nothing."""
    frame = Frame()
    frame.name, frame.start_ns, frame.end_ns, frame.children_ns = "A", 1, 5, 9
    _emit(memory, frame)
    assert dict(memory.named("A").attributes or {})["tvm.pass.self_duration"] == 0


@pytest.mark.usefixtures("swallowing")
def test_children_of_a_span_that_could_not_be_started_hang_higher(memory: SpanMemory) -> None:
    """They stay in the compile's trace."""
    provider = BrokenProvider(memory.provider, "start_span", lambda name: name == "broken")
    root = _record("root", 1, 9)
    broken = _record("broken", 2, 8, root)
    leaf = _record("leaf", 3, 4, broken)
    assert emit([root, broken, leaf], provider.get_tracer("test"), None, 0) == []
    assert outline(memory.spans) == ["root", "  leaf"]
    assert context_below(broken, None) is context_below(root, None)
