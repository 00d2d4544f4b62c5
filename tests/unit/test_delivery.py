"""Counting what arrives, saying once what does not, and work that nobody waits for."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tilelang_otel._courier import Courier
from tilelang_otel._sdk import export_errors
from tilelang_otel._sdk.delivery import CountingExporter, Delivery
from tilelang_otel._sdk.exit import ExitHandler, ShutDown, finish
from tilelang_otel._sdk.export_errors import listening, mute

_fake_logger = logging.getLogger("opentelemetry.exporter.fake")


class FakeExporter(SpanExporter):
    """Does what it is told with every batch."""

    def __init__(self, answer: Callable[[], SpanExportResult]) -> None:
        self.answer = answer
        self.is_shut_down = False
        self.sizes: list[int] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Answer as it was told."""
        self.sizes.append(len(spans))
        return self.answer()

    def shutdown(self) -> None:
        """Remember it."""
        self.is_shut_down = True

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Do nothing: nothing is held back."""
        return True


def succeed() -> SpanExportResult:
    """Take a batch."""
    return SpanExportResult.SUCCESS


def complain() -> SpanExportResult:
    """Refuse a batch, as the OTLP exporters do: the reason is only logged."""
    _fake_logger.error("Connection refused, key=hunter2")
    return SpanExportResult.FAILURE


def burst() -> SpanExportResult:
    """Fail with a message that holds a secret."""
    raise ValueError("metadata was invalid: hunter2")


def counting(answer: Callable[[], SpanExportResult]) -> CountingExporter:
    """Return a counting exporter around a fake one."""
    return CountingExporter(
        lambda: FakeExporter(answer), "http://there", lambda text: text.replace("hunter2", "***")
    )


def provider_of(delivery: Delivery, *, is_sampled: bool = True) -> TracerProvider:
    """Return a provider that exports through ``delivery`` only."""
    sampler = None if is_sampled else ALWAYS_OFF
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(delivery)
    return provider


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(complain, "connection refused"), (burst, "ValueError: metadata was invalid: ***")],
)
def test_failed_exports_are_counted_and_said_once(
    answer: Callable[[], SpanExportResult], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However an exporter fails, and however often, there is one line, without secrets."""
    exporter = counting(answer)
    delivery = Delivery(exporter, timeout_s=5)
    tracer = provider_of(delivery).get_tracer("t")
    for _ in range(3):
        tracer.start_span("span").end()
        assert not delivery.force_flush()
    delivery.shutdown()
    assert (exporter.delivered, exporter.failed) == (0, 3)
    assert delivery.loss() == f"3 spans could not be delivered to http://there: {reason}"
    [record] = caplog.records
    assert reason in record.getMessage()
    assert "\n" not in caplog.records[0].getMessage()
    assert "hunter2" not in caplog.text


def test_delivery_that_the_program_has_shut_down_is_not_waited_for_at_exit() -> None:
    """It is done, and is not begun again."""
    exporter = counting(succeed)
    delivery = Delivery(exporter, timeout_s=60)
    provider = provider_of(delivery)
    provider.get_tracer("t").start_span("span").end()
    provider.shutdown()
    assert delivery.start_close().wait(0)
    assert (delivery.progress, delivery.loss()) == (1, None)


def test_delivered_spans_are_no_loss() -> None:
    """What arrived is counted as such; what was not sampled is not missed."""
    delivery = Delivery(counting(succeed), timeout_s=5)
    for is_sampled in (True, False):
        tracer = provider_of(delivery, is_sampled=is_sampled).get_tracer("t")
        tracer.start_span("span").end()
    assert delivery.force_flush()
    delivery.shutdown()
    assert (delivery.progress, delivery.loss()) == (1, None)
    assert not delivery.force_flush()


def test_flush_gives_up_in_time_and_the_spans_are_not_lost() -> None:
    """A flush that takes too long says so; what it started goes on."""
    go_on = threading.Event()

    def wait() -> SpanExportResult:
        assert go_on.wait(10), "waited 10 s for the test to go on"
        return SpanExportResult.SUCCESS

    delivery = Delivery(counting(wait), timeout_s=5)
    provider_of(delivery).get_tracer("t").start_span("span").end()
    assert not delivery.force_flush(10)
    go_on.set()
    delivery.shutdown()
    assert delivery.loss() is None


def test_exporter_is_made_again_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child does not use its parent's connections."""
    made: list[FakeExporter] = []

    def make() -> FakeExporter:
        made.append(FakeExporter(succeed))
        return made[-1]

    exporter = CountingExporter(make, "there", str)
    exporter.export(())
    assert len(made) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    exporter.export(())
    exporter.export(())
    assert len(made) == 2
    exporter.shutdown()
    assert [item.is_shut_down for item in made] == [False, True]


def test_finish_waits_for_the_slower_one_too() -> None:
    """Everything is closed at once, and waited for whichever is done first."""
    first_may_end, order = threading.Event(), list[str]()

    def slow() -> None:
        assert first_may_end.wait(10), "waited 10 s for the second to be done"
        order.append("first")

    def fast() -> None:
        order.append("second")
        first_may_end.set()

    leaving = [ShutDown(slow, "metrics", is_ours=False), ShutDown(fast, "logs", is_ours=False)]
    finish(leaving, 10)
    assert order == ["second", "first"]
    assert [item.loss() for item in leaving] == [None, None]


def test_finish_gives_up_what_makes_no_progress() -> None:
    """What hangs is left behind, and named."""
    hang = threading.Event()
    leaving = ShutDown(lambda: hang.wait(10), "metrics", is_ours=False)
    finish([leaving], 0.05)
    assert leaving.loss() == "metrics could not all be delivered: no answer in time"
    hang.set()


def test_ctrl_c_while_the_process_exits_ends_the_waiting() -> None:
    """Whoever has no more time does not get a traceback of ours for it."""

    class Impatient(ShutDown):
        @property
        def progress(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
            raise KeyboardInterrupt

    handler = ExitHandler(10)
    try:
        handler.add(Impatient(lambda: None, "logs", is_ours=False))
        handler.run()
    finally:
        atexit.unregister(handler.run)


def test_finish_names_what_failed() -> None:
    """A shutdown that raises is a loss, not an error."""

    def fail() -> None:
        raise OSError

    leaving = ShutDown(fail, "logs", is_ours=False)
    finish([leaving], 10)
    assert leaving.loss() is not None


def test_courier_does_errands_in_order_and_survives_errors() -> None:
    """An errand that raises keeps its error to itself; the next one is done."""
    courier = Courier("tilelang-otel-test", restarts=False)
    bad = courier.send(lambda: 1 / 0)
    good = courier.send(lambda: "done")
    courier.close()
    assert good.wait(10)
    assert isinstance(bad.error, ZeroDivisionError)
    assert (good.result, good.error) == ("done", None)


def test_listening_takes_only_what_its_own_thread_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Exporters of the application go on to log where they always did."""
    said: list[str] = []
    with listening(said):
        _fake_logger.warning("heard")
        other = threading.Thread(target=lambda: _fake_logger.warning("of another thread"))
        other.start()
        other.join()
    _fake_logger.warning("afterwards")
    assert said == ["heard"]
    assert caplog.messages == ["of another thread", "afterwards"]


def test_listening_with_debug_logging_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Who debugs exporters sees what they log, where they log it."""
    with caplog.at_level(logging.DEBUG, "opentelemetry.exporter"), listening([]):
        _fake_logger.debug("detail")
    assert caplog.messages == ["detail"]


def test_mute_silences_a_logger_for_good(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the process exits, exporters say nothing any more; listeners still hear them."""
    monkeypatch.setattr(export_errors, "_listeners", {})
    logger = logging.getLogger("tilelang_otel.test_mute.child")
    mute("tilelang_otel.test_mute")
    said: list[str] = []
    with listening(said, to="tilelang_otel.test_mute"):
        logger.error("heard")
    logger.error("not shown")
    assert (said, caplog.messages) == (["heard"], [])


def test_batch_is_exported_in_portions_while_something_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Encoding a whole batch at once would hold up a compile that needs Python."""
    answers = iter([*[SpanExportResult.SUCCESS] * 3, SpanExportResult.FAILURE])
    fake = FakeExporter(lambda: next(answers))
    exporter = CountingExporter(lambda: fake, "there", str)
    exporter.is_quiet = True
    spans = [ReadableSpan(name=str(number)) for number in range(200)]
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    monkeypatch.setattr("tilelang_otel._sdk.delivery.running", lambda: ["a compile"])
    assert exporter.export(spans[:100]) is SpanExportResult.SUCCESS
    assert exporter.export(spans) is SpanExportResult.FAILURE
    assert fake.sizes == [200, 64, 36, 64]
    assert (exporter.delivered, exporter.failed) == (300, 200)


def test_spans_that_find_the_queue_full_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs one; what is being exported does not take room in the queue."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    is_exporting, may_go = threading.Event(), threading.Event()

    def wait() -> SpanExportResult:
        is_exporting.set()
        assert may_go.wait(20)
        return SpanExportResult.SUCCESS

    fake = FakeExporter(wait)
    delivery = Delivery(CountingExporter(lambda: fake, "there", str), 10, queue_spans=10)
    tracer = provider_of(delivery).get_tracer("t")
    for _ in range(4):
        tracer.start_span("span").end()
    assert is_exporting.wait(20), "a full batch was not exported"
    for _ in range(10):
        tracer.start_span("span").end()
    assert delivery.overflowed == 0
    for _ in range(3):
        tracer.start_span("span").end()
    assert delivery.overflowed == 3
    may_go.set()
    delivery.shutdown()
    assert delivery.exporter.delivered == 14
