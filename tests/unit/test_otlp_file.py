"""The file exporter writes OTLP JSON Lines, whole lines only, and never raises."""

from __future__ import annotations

import base64
import errno
import itertools
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]  # fmt: skip
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, set_span_in_context

from tilelang_otel import _config, _otlp_file
from tilelang_otel._otlp_file import OTLPJSONLinesSpanExporter

_SUCCESS = SpanExportResult.SUCCESS
_FAILURE = SpanExportResult.FAILURE


class _CountingIds(IdGenerator):
    """Ids that a test can write down; their bytes are no ASCII, as real ones aren't."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def generate_trace_id(self) -> int:
        return 0xFB << 120 | next(self._numbers)

    def generate_span_id(self) -> int:
        return 0xFA << 56 | next(self._numbers)


@pytest.fixture(autouse=True)
def _fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Whatever an earlier test was warned about is warned about again."""
    monkeypatch.setattr(_config, "_warned", set[str]())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the exporter writes."""
    return tmp_path / "traces.jsonl"


def _spans() -> list[ReadableSpan]:
    """Return a compile span and its child with everything a span can have."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": "serving"}),
        id_generator=_CountingIds(),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("tilelang_otel", "0.1.0", "https://example.org/schema")
    root = tracer.start_span("compile f", start_time=1_000)
    child = tracer.start_span(
        "nvcc",
        set_span_in_context(root),
        SpanKind.CLIENT,
        {"process.pid": 2**40, "ratio": 0.5, "ok": True, "names": ["é\u2028", "b"]},
        [Link(root.get_span_context(), {"why": "test"})],
        2_000,
    )
    child.add_event("exception", {"exception.type": "ValueError"}, 3_000)
    child.set_status(Status(StatusCode.ERROR, "no\nway"))
    child.end(4_000)
    root.end(2**62)
    return list(memory.get_finished_spans())


def _simple_spans(*names: str, start_ns: int = 1) -> list[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for name in names:
        provider.get_tracer("test").start_span(name, start_time=start_ns).end(start_ns + 1)
    return list(memory.get_finished_spans())


def _lines(path: Path) -> list[Any]:
    content = path.read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def _names(path: Path) -> list[list[str]]:
    return [
        [
            span["name"]
            for resource_spans in line["resourceSpans"]
            for scope_spans in resource_spans["scopeSpans"]
            for span in scope_spans["spans"]
        ]
        for line in _lines(path)
    ]


def _with_base64_ids(data: Any) -> Any:
    """Return OTLP JSON as protobuf's own JSON, which has ids in base64."""
    if isinstance(data, list):
        items: Sequence[Any] = data
        return [_with_base64_ids(item) for item in items]
    if isinstance(data, dict):
        fields: dict[str, Any] = data
        return {
            key: base64.b64encode(bytes.fromhex(value)).decode()
            if key in ("traceId", "spanId", "parentSpanId")
            else _with_base64_ids(value)
            for key, value in fields.items()
        }
    return data


def test_line_is_otlp_json(path: Path) -> None:
    """Names in camel case, ids in hex, enums as numbers, 64-bit integers as text."""
    assert OTLPJSONLinesSpanExporter(path).export(_spans()) is _SUCCESS
    trace_id = "fb000000000000000000000000000001"
    root_id = "fa00000000000002"
    assert _lines(path) == [
        {
            "resourceSpans": [
                {
                    "resource": {
                        "attributes": [{"key": "service.name", "value": {"stringValue": "serving"}}]
                    },
                    "scopeSpans": [
                        {
                            "scope": {"name": "tilelang_otel", "version": "0.1.0"},
                            "schemaUrl": "https://example.org/schema",
                            "spans": [
                                {
                                    "traceId": trace_id,
                                    "spanId": "fa00000000000003",
                                    "parentSpanId": root_id,
                                    "name": "nvcc",
                                    "kind": 3,
                                    "startTimeUnixNano": "2000",
                                    "endTimeUnixNano": "4000",
                                    "attributes": [
                                        {"key": "process.pid", "value": {"intValue": str(2**40)}},
                                        {"key": "ratio", "value": {"doubleValue": 0.5}},
                                        {"key": "ok", "value": {"boolValue": True}},
                                        {
                                            "key": "names",
                                            "value": {
                                                "arrayValue": {
                                                    "values": [
                                                        {"stringValue": "é\u2028"},
                                                        {"stringValue": "b"},
                                                    ]
                                                }
                                            },
                                        },
                                    ],
                                    "events": [
                                        {
                                            "name": "exception",
                                            "timeUnixNano": "3000",
                                            "attributes": [
                                                {
                                                    "key": "exception.type",
                                                    "value": {"stringValue": "ValueError"},
                                                }
                                            ],
                                        }
                                    ],
                                    "links": [
                                        {
                                            "traceId": trace_id,
                                            "spanId": root_id,
                                            "attributes": [
                                                {"key": "why", "value": {"stringValue": "test"}}
                                            ],
                                            "flags": 256,
                                        }
                                    ],
                                    "status": {"code": 2, "message": "no\nway"},
                                    "flags": 256,
                                },
                                {
                                    "traceId": trace_id,
                                    "spanId": root_id,
                                    "name": "compile f",
                                    "kind": 1,
                                    "startTimeUnixNano": "1000",
                                    "endTimeUnixNano": str(2**62),
                                    "status": {},
                                    "flags": 256,
                                },
                            ],
                        }
                    ],
                }
            ]
        }
    ]


def test_line_reads_back_as_the_message_that_was_encoded(path: Path) -> None:
    """Nothing is lost against what the same spans would be over the network."""
    spans = _spans()
    OTLPJSONLinesSpanExporter(path).export(spans)
    (data,) = map(_with_base64_ids, _lines(path))
    expected = encode_spans(spans)
    assert ParseDict(data, ExportTraceServiceRequest()) == expected
    assert ParseDict(data, TracesData()).resource_spans == expected.resource_spans


def test_line_is_ascii_without_odd_line_ends(path: Path) -> None:
    """No reader can take a character inside a name for the end of the line."""
    OTLPJSONLinesSpanExporter(path).export(_spans())
    text = path.read_bytes().decode("ascii")
    assert len(text.splitlines()) == 1


def test_number_that_json_lacks_is_written_as_text(path: Path) -> None:
    """NaN and infinity don't make the line something that is no JSON."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    values = {"a": float("nan"), "b": float("-inf")}
    provider.get_tracer("test").start_span("a", attributes=values).end()
    OTLPJSONLinesSpanExporter(path).export(memory.get_finished_spans())
    (data,) = _lines(path)
    attributes = data["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    assert [item["value"] for item in attributes] == [
        {"doubleValue": "NaN"},
        {"doubleValue": "-Infinity"},
    ]


def test_each_batch_is_one_more_line(path: Path) -> None:
    """What is in the file stays, of this exporter or another."""
    OTLPJSONLinesSpanExporter(path).export(_simple_spans("a", "b"))
    exporter = OTLPJSONLinesSpanExporter(path)
    exporter.export(_simple_spans("c"))
    exporter.export([])
    exporter.export(_simple_spans("d"))
    assert _names(path) == [["a", "b"], ["c"], ["d"]]


def test_file_that_was_moved_away_is_made_anew(path: Path, tmp_path: Path) -> None:
    """Log rotation loses nothing."""
    exporter = OTLPJSONLinesSpanExporter(path)
    exporter.export(_simple_spans("a"))
    path.rename(tmp_path / "old.jsonl")
    exporter.export(_simple_spans("b"))
    assert (_names(tmp_path / "old.jsonl"), _names(path)) == ([["a"]], [["b"]])


def test_line_that_a_killed_writer_left_unfinished_is_ended(path: Path) -> None:
    """Half a line does not spoil the next one."""
    path.write_bytes(b'{"resourceSpans":[{"res')
    OTLPJSONLinesSpanExporter(path).export(_simple_spans("a"))
    assert path.read_bytes().startswith(b'{"resourceSpans":[{"res\n{"resourceSpans":[{')


def _write_slowly(limit_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the disk take a few bytes at a time, and only so many in all."""
    write: Callable[[int, bytes], int] = os.write
    left = [limit_bytes]

    def short_write(file: int, data: bytes) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 7
        return write(file, data[:7])

    monkeypatch.setattr(os, "write", short_write)


def test_short_writes_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line arrives whole even if the system takes it in pieces."""
    _write_slowly(1_000_000, monkeypatch)
    assert OTLPJSONLinesSpanExporter(path).export(_simple_spans("a", "b")) is _SUCCESS
    assert _names(path) == [["a", "b"]]


def test_full_disk_leaves_whole_lines_only(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A line that does not fit is taken back, and the user told where it did not fit."""
    exporter = OTLPJSONLinesSpanExporter(path)
    exporter.export(_simple_spans("a"))
    with monkeypatch.context() as patch:
        _write_slowly(50, patch)
        assert exporter.export(_simple_spans("b")) is _FAILURE
    assert _names(path) == [["a"]]
    assert f"traces cannot be written to {path}: No space left on device" in caplog.text
    assert exporter.export(_simple_spans("c")) is _SUCCESS
    assert _names(path) == [["a"], ["c"]]


def test_unwritable_path_fails_and_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong path costs the traces, one line in the log, and nothing else."""
    path = tmp_path / "missing" / "t.jsonl"
    exporter = OTLPJSONLinesSpanExporter(path)
    results = [exporter.export(_simple_spans("a")) for _ in range(3)]
    assert results == [_FAILURE] * 3
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (
            logging.WARNING,
            f"traces cannot be written to {path}: No such file or directory; they are lost "
            "until that is mended. OTEL_PYTHON_TILELANG_FILE chooses another file",
        )
    ]


def test_span_that_otlp_cannot_express_costs_only_itself(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad span of the application does not take the batch with it."""
    batch = [
        *_simple_spans("a"),
        *_simple_spans("bad", start_ns=-5),
        *_simple_spans("b"),
        *_simple_spans("worse", start_ns=-6),
    ]
    exporter = OTLPJSONLinesSpanExporter(path)
    assert exporter.export(batch) is _FAILURE
    assert exporter.export(batch[1:2]) is _FAILURE
    assert _names(path) == [["a", "b"]]
    (record,) = caplog.records
    assert "span 'bad' is left out of the trace file" in record.getMessage()


def test_nothing_is_written_after_shutdown(path: Path) -> None:
    """A late batch is refused, and a flush has nothing to do."""
    exporter = OTLPJSONLinesSpanExporter(path)
    assert exporter.force_flush() is True
    exporter.shutdown()
    assert exporter.export(_simple_spans("a")) is _FAILURE
    assert not path.exists()


def test_path_comes_from_argument_else_variable_else_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest wins, and a relative path stays where the program started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTEL_PYTHON_TILELANG_FILE", raising=False)
    default = OTLPJSONLinesSpanExporter()
    monkeypatch.setenv("OTEL_PYTHON_TILELANG_FILE", "from-variable.jsonl")
    variable = OTLPJSONLinesSpanExporter()
    argument = OTLPJSONLinesSpanExporter(tmp_path / "argument.jsonl")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    default.export(_simple_spans("a"))
    assert (default.path, variable.path, argument.path) == (
        str(tmp_path / "tilelang-otel.jsonl"),
        str(tmp_path / "from-variable.jsonl"),
        str(tmp_path / "argument.jsonl"),
    )
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["tilelang-otel.jsonl"]


def test_empty_path_raises() -> None:
    """A wrong argument is the caller's error."""
    with pytest.raises(ValueError, match="file=''"):
        OTLPJSONLinesSpanExporter("")


def test_lock_that_is_never_released_does_not_hang(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process that holds the file delays others, but not for ever."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(_otlp_file, "_LOCK_TIMEOUT_S", 0.01)
    exporter = OTLPJSONLinesSpanExporter(path)
    exporter.export(_simple_spans("a"))
    with path.open("ab") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert exporter.export(_simple_spans("b")) is _SUCCESS
    assert _names(path) == [["a"], ["b"]]


def test_lock_is_released_though_a_child_still_has_the_file_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork in the middle of a write does not leave the file locked."""
    fcntl = pytest.importorskip("fcntl")
    inherited: list[int] = []
    write: Callable[[int, bytes], int] = os.write

    def write_and_fork(file: int, data: bytes) -> int:
        inherited.append(os.dup(file))
        return write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_and_fork)
        OTLPJSONLinesSpanExporter(path).export(_simple_spans("a"))
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for file in inherited:
        os.close(file)


def test_threads_share_a_file(path: Path) -> None:
    """Batches of several threads are whole lines, each once."""
    exporter = OTLPJSONLinesSpanExporter(path)
    start = threading.Barrier(4)
    batches = {
        f"t{thread}-{n}": _simple_spans(f"t{thread}-{n}") for thread in range(4) for n in range(25)
    }

    def work(thread: int) -> None:
        start.wait()
        for n in range(25):
            exporter.export(batches[f"t{thread}-{n}"])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for names in _names(path) for name in names) == sorted(batches)
