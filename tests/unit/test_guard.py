"""The boundary between our own errors and the compile."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.instrumentation.utils import is_instrumentation_enabled

from tilelang_otel._guard import Guard


@pytest.fixture
def guard() -> Guard:
    """Make a boundary of the test's own, that swallows."""
    return Guard()


def test_guard_swallows_an_error_and_logs_it_with_its_traceback(
    guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    """The user is told that the program is fine, and we get something to work with."""
    with guard:
        raise LookupError("ours")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "The compile itself is not affected" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


def test_guard_logs_each_place_once(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    """A bug in a callback would otherwise fill the log with every pass."""
    for _ in range(3):
        with guard:
            raise LookupError("here")
    with guard:
        raise LookupError("there")
    assert [str(r.exc_info[1]) for r in caplog.records if r.exc_info] == ["here", "there"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_guard_lets_the_users_exceptions_through(
    guard: Guard, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C in one of our functions is still Ctrl-C."""
    with pytest.raises(kind), guard:
        raise kind
    assert caplog.records == []


def test_guard_is_suppressed_while_logging_and_only_then(guard: Guard) -> None:
    """A log handler that compiles, or exports spans, cannot come back to us."""
    seen: list[bool] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(is_instrumentation_enabled())

    handler = Handler()
    logger = logging.getLogger("tilelang_otel._guard")
    logger.addHandler(handler)
    try:
        with guard:
            raise LookupError("ours")
    finally:
        logger.removeHandler(handler)
    assert seen == [False]
    assert is_instrumentation_enabled()


def test_guard_survives_a_log_handler_that_raises(guard: Guard) -> None:
    """A broken handler must not fail a compile either."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("disk full")

    handler = Handler()
    logger = logging.getLogger("tilelang_otel._guard")
    logger.addHandler(handler)
    try:
        with guard:
            raise LookupError("ours")
    finally:
        logger.removeHandler(handler)
    assert is_instrumentation_enabled()


def test_guard_reraises_when_told_to(guard: Guard) -> None:
    """So that our own test run hides no bug."""
    guard.reraise = True
    with pytest.raises(LookupError), guard:
        raise LookupError("ours")


def test_guard_keeps_no_exception_alive(guard: Guard) -> None:
    """Nor what is in its frames."""
    import gc
    import weakref

    class OursError(Exception):
        pass

    def fail() -> weakref.ref[OursError]:
        error = OursError()
        with guard:
            raise error
        return weakref.ref(error)

    logging.disable(logging.WARNING)
    try:
        alive = fail()
    finally:
        logging.disable(logging.NOTSET)
    gc.collect()
    assert alive() is None
