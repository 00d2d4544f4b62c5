"""Trace files are read as far as they can be, and what cannot be read is named."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.trace_files import EPOCH_NS, error, line, span
from tilelang_otel.cli._traces.file import SpanReader
from tilelang_otel.cli._traces.otlp_json import Event, Span


def _read(*lines: bytes) -> SpanReader:
    reader = SpanReader()
    reader.read_lines(lines, "t.jsonl")
    return reader


def _names(reader: SpanReader) -> list[str]:
    return [span.name for span in reader.spans]


def _problems(reader: SpanReader) -> list[str]:
    return [str(problem) for problem in reader.problems]


def test_span_as_collector_writes_it_is_read_whole() -> None:
    """Every field of a span arrives, numbers as numbers, whichever way they were written."""
    collector = {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "serving"}}]
                },
                "scopeSpans": [
                    {
                        "scope": {"name": "tilelang_otel", "version": "0.1.0"},
                        "spans": [
                            {
                                "traceId": "5B8EFFF798038103D269B633813FC60C",
                                "spanId": "eee19b7ec3c1b174",
                                "parentSpanId": "eee19b7ec3c1b173",
                                "name": "nvcc",
                                "kind": 3,
                                "startTimeUnixNano": "1544712660000000000",
                                "endTimeUnixNano": 1544712661000000000,
                                "attributes": [
                                    {"key": "a", "value": {"intValue": "7"}},
                                    {"key": "b", "value": {"intValue": 8}},
                                    {"key": "c", "value": {"doubleValue": 1.5}},
                                    {"key": "d", "value": {"boolValue": True}},
                                    {
                                        "key": "e",
                                        "value": {"arrayValue": {"values": [{"stringValue": "x"}]}},
                                    },
                                    {
                                        "key": "f",
                                        "value": {
                                            "kvlistValue": {
                                                "values": [{"key": "g", "value": {"intValue": "1"}}]
                                            }
                                        },
                                    },
                                    {"key": "h", "value": {}},
                                    {"key": "i", "value": {"arrayValue": {}}},
                                ],
                                "events": [
                                    {
                                        "timeUnixNano": "1544712660500000000",
                                        "name": "exception",
                                        "attributes": [
                                            {
                                                "key": "exception.type",
                                                "value": {"stringValue": "ValueError"},
                                            }
                                        ],
                                    }
                                ],
                                "status": {"code": 2, "message": "no"},
                            }
                        ],
                    }
                ],
            }
        ]
    }
    reader = _read(json.dumps(collector).encode() + b"\n")
    assert reader.problems == []
    assert reader.spans == [
        Span(
            trace_id="5b8efff798038103d269b633813fc60c",
            span_id="eee19b7ec3c1b174",
            parent_id="eee19b7ec3c1b173",
            name="nvcc",
            kind=3,
            start_ns=1544712660000000000,
            end_ns=1544712661000000000,
            attributes={
                "a": 7,
                "b": 8,
                "c": 1.5,
                "d": True,
                "e": ["x"],
                "f": {"g": 1},
                "h": None,
                "i": [],
            },
            events=(Event("exception", 1544712660500000000, {"exception.type": "ValueError"}),),
            status=2,
            status_message="no",
            resource={"service.name": "serving"},
            scope="tilelang_otel",
        )
    ]


def test_enums_as_names_mean_the_same_as_numbers() -> None:
    """Writers that keep protobuf's names for enums are understood."""
    made = span(1, "g++", 0, 1, status={"code": "STATUS_CODE_ERROR"})
    made["kind"] = "SPAN_KIND_CLIENT"
    (got,) = _read(line(made)).spans
    assert (got.kind, got.status, got.is_error) == (3, 2, True)


def test_span_without_end_lasts_no_time() -> None:
    """A span that never ended, or ended before it began, has no negative duration."""
    unfinished = span(1, "a", 5, 0)
    del unfinished["endTimeUnixNano"]
    reader = _read(line(unfinished, span(2, "b", 5, 4)))
    assert [s.duration_ns for s in reader.spans] == [0, 0]


def test_zero_parent_id_means_no_parent() -> None:
    """Zeros instead of a missing parent id make a root, not an orphan."""
    reader = _read(line(span(1, "a", 0, 1, parentSpanId="0" * 16)))
    assert reader.spans[0].parent_id == ""


def test_truncated_last_line_is_named_and_its_whole_spans_are_kept() -> None:
    """A file that was cut off loses only the span that the cut went through."""
    first = line(span(1, "a", 0, 9))
    second = line(span(2, "b", 0, 1, parent=1), span(3, "c", 1, 2, parent=1))
    cut = second[: second.index(b'"c"') + 20]
    reader = _read(first, cut)
    assert _names(reader) == ["a", "b"]
    assert reader.spans[1].resource == {"service.name": "demo"}
    assert reader.spans[1].scope == "tilelang_otel"
    assert _problems(reader) == [
        f"t.jsonl:2: cut off after {len(cut)} bytes; 1 span of it could be read"
    ]


def test_every_possible_cut_is_one_problem_and_keeps_what_came_before() -> None:
    """Wherever a file ends, there is one complaint and every span before the cut."""
    whole = line(*(span(n, f"pass{n}", n, n + 1) for n in range(1, 4)))
    for length in range(1, len(whole) - 1):
        reader = _read(line(span(9, "first", 0, 1)), whole[:length])
        complete = sum(whole[:length].count(f'"pass{n}"'.encode()) for n in range(1, 4))
        assert len(reader.problems) == 1, length
        assert reader.problems[0].line == 2
        assert complete - 1 <= len(reader.spans) - 1 <= complete, length


def test_line_written_into_another_loses_only_the_torn_span() -> None:
    """Where a killed writer's half line runs into the next one, the next one is read."""
    half = line(span(1, "a", 0, 1))[:150]
    reader = _read(half + line(span(2, "b", 0, 1)), line(span(3, "c", 0, 1)))
    assert _names(reader) == ["b", "c"]
    assert [problem.line for problem in reader.problems] == [1]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"garbage\n", "not JSON: Expecting value (column 1)"),
        (b"[1, 2]\n", "not a TracesData object: it has no resourceSpans"),
        (b'{"spans": []}\n', "not a TracesData object: it has no resourceSpans"),
        (b'{"resourceSpans": 3}\n', "not a TracesData object: resourceSpans is not a list"),
        (
            b'{"resourceSpans": [3]}\n',
            "not a TracesData object: resourceSpans holds something that is no object",
        ),
        (b"\xff\xfe\n", "not JSON: Expecting value (column 1)"),
        (b"[" * 100_000 + b"\n", None),
        (b"9" * 10_000 + b"\n", None),
    ],
    ids=["text", "list", "other", "number", "numbers", "bytes", "deep", "huge"],
)
def test_damaged_line_is_named_and_the_others_are_read(damaged: bytes, message: str | None) -> None:
    """Whatever stands in one line, the lines around it are read and it is named."""
    reader = _read(line(span(1, "a", 0, 1)), damaged, line(span(2, "b", 0, 1)))
    assert _names(reader) == ["a", "b"]
    assert [problem.line for problem in reader.problems] == [2]
    if message is not None:
        assert _problems(reader) == [f"t.jsonl:2: {message}"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"spanId": ""}, "it has no spanId"),
        ({"traceId": "0" * 32}, "it has no traceId"),
        ({"spanId": 5}, "spanId is not text"),
        ({"startTimeUnixNano": "soon"}, "startTimeUnixNano is not a whole number"),
        ({"startTimeUnixNano": None}, "startTimeUnixNano is not a number"),
        ({"endTimeUnixNano": -1}, "endTimeUnixNano is out of range"),
        ({"endTimeUnixNano": 1e300}, "endTimeUnixNano is out of range"),
        ({"attributes": {"a": 1}}, "attributes is not a list"),
        ({"name": ["b"]}, "name is not text"),
    ],
)
def test_damaged_span_is_left_out_and_named(fields: dict[str, Any], message: str) -> None:
    """One bad span costs one span."""
    bad = {**span(2, "b", 0, 1), **fields}
    reader = _read(line(span(1, "a", 0, 1), bad, span(3, "c", 0, 1)))
    assert _names(reader) == ["a", "c"]
    (problem,) = reader.problems
    assert problem.message.startswith("span 2 (")
    assert problem.message.endswith(f"is left out: {message}")


def test_what_is_no_trace_but_belongs_in_such_files_is_passed_over() -> None:
    """Blank lines, a byte order mark and other signals are no damage."""
    reader = _read(
        b"\xef\xbb\xbf" + line(span(1, "a", 0, 1)),
        b"\n",
        b"  \r\n",
        b'{"resourceMetrics": []}\n',
        b'{"resourceSpans": []}\n',
        line(span(2, "b", 0, 1)).rstrip(),
    )
    assert _names(reader) == ["a", "b"]
    assert reader.problems == []


def test_span_that_is_there_twice_is_read_once() -> None:
    """A retried batch does not double the times."""
    reader = _read(line(span(1, "a", 0, 1)), line(span(1, "a", 0, 1), span(1, "a", 0, 1, trace=2)))
    assert [(s.trace_id[-1], s.name) for s in reader.spans] == [("1", "a"), ("2", "a")]
    assert reader.duplicates == 1


def test_file_is_read_by_its_path(tmp_path: Path) -> None:
    """A file's problems carry its path."""
    file = tmp_path / "t.jsonl"
    file.write_bytes(line(span(1, "a", 0, 1)) + b"oops\n")
    reader = SpanReader()
    reader.read_file(str(file))
    assert _names(reader) == ["a"]
    assert reader.spans[0].start_ns == EPOCH_NS
    assert _problems(reader) == [f"{file}:2: not JSON: Expecting value (column 1)"]


def test_missing_file_raises_oserror(tmp_path: Path) -> None:
    """That there is no file is the caller's to tell."""
    with pytest.raises(FileNotFoundError):
        SpanReader().read_file(str(tmp_path / "none"))


def test_random_damage_never_raises() -> None:
    """No file, however damaged, stops the reading of it."""
    whole = b"".join(
        line(span(n, "p", 0, 1, parent=n - 1, attributes={"k": n}, **error("E", "m")))
        for n in range(1, 6)
    )
    chance = random.Random(20)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 3)] = chance.choice(
                [b"", b"\n", b'"', b"{", b"]", b"\\", b"\x00", b"\xc3", b"9", b"null", b"-1e999"]
            )
        reader = SpanReader()
        reader.read_lines(io.BytesIO(bytes(data)), "t.jsonl")
        assert len(reader.spans) + reader.duplicates <= 6
