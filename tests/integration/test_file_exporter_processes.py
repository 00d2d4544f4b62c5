"""Several processes append to one trace file: every line is whole, every span is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# Exports batches of spans of very different sizes. A line on standard input starts it.
_WRITER = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tilelang_otel._otlp_file import OTLPJSONLinesSpanExporter

path, name, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
made = []
for batch in range(batches):
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for span in range(1 + batch * 7 % 40):
        attributes = {"padding": "x" * (batch * 997 % 5000)}
        provider.get_tracer("t").start_span(f"{name}/{batch}/{span}", attributes=attributes).end()
    made.append(memory.get_finished_spans())
exporter = OTLPJSONLinesSpanExporter(path)
print("ready", flush=True)
sys.stdin.readline()
for spans in made:
    exporter.export(spans)
"""

# Exports a span, forks while a thread goes on exporting, and exports in both.
_FORKER = """
import os, sys, threading
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tilelang_otel._otlp_file import OTLPJSONLinesSpanExporter

provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(SimpleSpanProcessor(OTLPJSONLinesSpanExporter(sys.argv[1])))
tracer = provider.get_tracer("t")
forked = threading.Event()

def busy():
    number = 0
    while not forked.is_set():
        tracer.start_span(f"thread/{number}").end()
        number += 1
    print(number, flush=True)

thread = threading.Thread(target=busy)
thread.start()
children = []
for child in range(10):
    pid = os.fork()
    if pid == 0:
        for number in range(20):
            tracer.start_span(f"child{child}/{number}").end()
        os._exit(0)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
forked.set()
thread.join()
sys.exit(any(codes))
"""


def _names(path: Path) -> list[str]:
    content = path.read_bytes()
    assert content.endswith(b"\n")
    return [
        span["name"]
        for line in content.split(b"\n")[:-1]
        for resource_spans in json.loads(line)["resourceSpans"]
        for scope_spans in resource_spans["scopeSpans"]
        for span in scope_spans["spans"]
    ]


def _start_writer(path: Path, name: str, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), name, str(batches)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _say_go(writer: subprocess.Popen[str]) -> None:
    assert writer.stdin is not None
    writer.stdin.write("go\n")
    writer.stdin.flush()


def _wait_ready(writer: subprocess.Popen[str]) -> None:
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"


def test_processes_that_write_at_once_never_tear_a_line(tmp_path: Path) -> None:
    """Four processes append 60 batches each, of up to 200 kB, and all of it can be read."""
    path = tmp_path / "t.jsonl"
    writers = [_start_writer(path, f"p{number}", 60) for number in range(4)]
    for writer in writers:
        _wait_ready(writer)
    for writer in writers:
        _say_go(writer)
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    assert Counter(_names(path)) == Counter(
        f"p{process}/{batch}/{span}"
        for process in range(4)
        for batch in range(60)
        for span in range(1 + batch * 7 % 40)
    )


def test_forked_processes_and_a_busy_thread_share_the_file(tmp_path: Path) -> None:
    """A fork at any moment of an export leaves no lock behind and loses no span."""
    path = tmp_path / "t.jsonl"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORKER, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert Counter(_names(path)) == Counter(
        [f"child{child}/{number}" for child in range(10) for number in range(20)]
        + [f"thread/{number}" for number in range(int(done.stdout))]
    )


def test_killed_writer_spoils_no_other_line(tmp_path: Path) -> None:
    """Of a process that is killed while writing, at most one line is lost, and no other's."""
    path = tmp_path / "t.jsonl"
    victim = _start_writer(path, "victim", 400)
    _wait_ready(victim)
    survivor = _start_writer(path, "survivor", 30)
    _wait_ready(survivor)
    _say_go(victim)
    _say_go(survivor)
    survivor.communicate(timeout=60)
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=60)
    last = _start_writer(path, "last", 1)
    _wait_ready(last)
    _say_go(last)
    last.communicate(timeout=60)
    unreadable = 0
    names: Counter[str] = Counter()
    for line in path.read_bytes().splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            unreadable += 1
            continue
        (scope_spans,) = data["resourceSpans"][0]["scopeSpans"]
        names.update(span["name"] for span in scope_spans["spans"])
    assert unreadable <= 1
    assert set(names.values()) == {1}
    expected = {
        f"survivor/{batch}/{span}" for batch in range(30) for span in range(1 + batch * 7 % 40)
    }
    assert expected | {"last/0/0"} <= names.keys()
