"""Finished records by hand: what a recording hands on, without a compile."""

from __future__ import annotations

from tilelang_otel import semconv
from tilelang_otel._frames import Failure, Frame, Record

__all__ = ["finished_compile", "finished_pass"]

_START_NS = 1_000


def finished_pass(
    name: str, ms: float = 1, phase: str | None = None, failure: Failure | None = None
) -> Frame:
    """Return a pass that has run.

    Args:
        name: Its name.
        ms: How many milliseconds it took.
        phase: Its phase.
        failure: Why it failed.
    """
    frame = Frame()
    frame.name = name
    frame.phase = phase
    frame.start_ns, frame.end_ns = _START_NS, _START_NS + int(ms * 1e6)
    frame.failure = failure
    return frame


def finished_compile(ms: float = 1, failure: Failure | None = None, **attributes: str) -> Record:
    """Return a compile that has ended.

    Args:
        ms: How many milliseconds it took.
        failure: Why it failed.
        **attributes: Its attributes, with ``_`` for ``.``.
    """
    record = Record()
    record.name = "compile k"
    record.scope_kind = semconv.SPAN_COMPILE
    record.start_ns, record.end_ns = _START_NS, _START_NS + int(ms * 1e6)
    record.failure = failure
    record.attributes = {name.replace("_", "."): value for name, value in attributes.items()}
    return record
