"""Jaeger may go away and come back; what was compiled is the same, and what was traced arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import run_command
from tests.support.jaeger import Jaeger
from tests.support.receiver import PROTOCOLS, Protocol
from tests.support.require import require_tvm
from tests.support.services import poll_until
from tests.support.spans import outline
from tests.support.zero_code import Conversation, run_zero_code

require_tvm()

pytestmark = pytest.mark.usefixtures("installed")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_jaeger_killed_in_a_pass_and_restarted_loses_no_later_compile(
    protocol: Protocol, tmp_path: Path
) -> None:
    """The compile does not notice, and once Jaeger is back, it gets what ends from then on."""
    jaeger = Jaeger(tmp_path)
    environment = {
        **jaeger.environment(protocol, "interrupted"),
        # Nothing is sent before the test says so: only what is flushed at the end.
        "OTEL_BSP_SCHEDULE_DELAY": "600000",
    }
    with jaeger.service, Conversation("interrupted.py", tmp_path, environment) as program:
        program.wait_for("in the pass")
        jaeger.service.kill()
        program.answer()
        program.wait_for("after the first")
        jaeger.service.start()
        program.answer()
        program.wait_for("done")
        assert program.finish() == 0
        stored = poll_until(
            lambda: sorted(outline(trace) for trace in jaeger.traces("interrupted")),
            "both compiles in the restarted Jaeger",
        )
        assert stored == [["PassContext", "  Long"], ["PassContext", "  Short"]]
        assert "Traceback" not in program.errors


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_jaeger_killed_for_good_changes_nothing_but_the_log(
    protocol: Protocol, tmp_path: Path
) -> None:
    """The compile ends as if nobody had wanted its trace, and soon."""
    jaeger = Jaeger(tmp_path)
    environment = {
        **jaeger.environment(protocol, "interrupted"),
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
    }
    with jaeger.service, Conversation("interrupted.py", tmp_path, environment) as program:
        program.wait_for("in the pass")
        jaeger.service.kill()
        program.answer()
        program.wait_for("after the first")
        program.answer()
        program.wait_for("done")
        assert program.finish(timeout_s=30) == 0


def test_retries_bridge_a_restart_of_jaeger(tmp_path: Path) -> None:
    """What could not be sent while Jaeger was away is sent again when it is back."""
    jaeger = Jaeger(tmp_path)
    environment = {
        **jaeger.environment("grpc", "interrupted"),
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "60",
    }
    with jaeger.service, Conversation("interrupted.py", tmp_path, environment) as program:
        program.wait_for("in the pass")
        jaeger.service.kill()
        program.answer()
        program.wait_for("after the first")
        poll_until(lambda: "retrying" in program.errors.lower(), "the exporter to find nobody", 30)
        jaeger.service.start()
        program.answer()
        assert program.finish() == 0
        stored = poll_until(
            lambda: sorted(outline(trace) for trace in jaeger.traces("interrupted")),
            "both compiles in the restarted Jaeger",
        )
        assert stored == [["PassContext", "  Long"], ["PassContext", "  Short"]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_burst_of_10000_spans_arrives_whole(
    protocol: Protocol, jaeger: Jaeger, tmp_path: Path
) -> None:
    """With room in the SDK's queue, as the README says, no span of a long compile is lost."""
    service = f"burst-{protocol[:4]}"
    environment = {**jaeger.environment(protocol, service), "OTEL_BSP_MAX_QUEUE_SIZE": "65536"}
    done = run_zero_code("burst.py", "9999", cwd=tmp_path, environment=environment)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    spans = jaeger.wait_for_trace(service, spans=10_000)
    assert len(spans) == 10_000
    assert len({span.span_id for span in spans}) == 10_000
    assert sorted(span.attributes.get("tvm.pass.sequence", -1) for span in spans) == list(
        range(-1, 9_999)
    )


def test_burst_under_the_command_needs_no_settings(jaeger: Jaeger, tmp_path: Path) -> None:
    """``tilelang-otel run`` makes room by itself."""
    program = Path(__file__).parent / "programs" / "burst.py"
    done = run_command(
        "run",
        program,
        "9999",
        cwd=tmp_path,
        environment=jaeger.environment("grpc", "burst-run"),
    )
    assert done.returncode == 0, done.stderr
    assert len(jaeger.wait_for_trace("burst-run", spans=10_000)) == 10_000
