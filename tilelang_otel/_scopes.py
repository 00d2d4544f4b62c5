"""Scopes in which adapters put whole compiles, and named pieces of work within one.

Whether anything records, and for whom, is up to ``_recorder``. Nothing here raises
into the compile, and whatever a signal cuts short is undone all the same.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context

from tilelang_otel import _warmup, semconv
from tilelang_otel._frames import Failure, Record, is_running
from tilelang_otel._guard import guard
from tilelang_otel._recording import Recording
from tilelang_otel._scrub import clean_name

if TYPE_CHECKING:
    from tilelang_otel._metrics import Instruments
    from tilelang_otel._recorder import Recorder

__all__ = ["CompileScope", "Describe", "Work", "is_with_statement"]

_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]

Describe = Callable[[], tuple[str, dict[str, Any]]]
"""Gives the name and the attributes of a span that is about to be needed."""


class Work:
    """A named piece of work: a record while it runs, or nothing when nothing records.

    Attributes:
        record: What is recorded; None when nothing is.
    """

    def __init__(self, recording: Recording | None, describe: Describe, is_client: bool) -> None:
        self.record: Record | None = None
        self._recording = None if recording is None or recording.is_muted else recording
        self._describe = describe
        self._is_client = is_client
        self._failure: BaseException | Failure | None = None

    def __enter__(self) -> Work:
        recording = self._recording
        if recording is not None:
            with guard:
                record = Record()
                name, record.attributes = self._describe()
                record.name = clean_name(name)
                record.is_client = self._is_client
                recording.open(record)
                self.record = record
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(error if error is not None else self._failure)

    def end(self, error: BaseException | Failure | None) -> None:
        """End the work.

        Args:
            error: Why it failed; None if it did not.
        """
        if self._recording is not None and self.record is not None:
            with guard:
                self._recording.close(self.record, error)

    def fail(self, error: BaseException | Failure) -> None:
        """Mark the work as failed, although no exception leaves it.

        Args:
            error: What to report.
        """
        self._failure = error

    def set_attribute(self, name: str, value: Any) -> None:
        """Add an attribute, which only the end of the work could tell."""
        if self.record is not None:
            self.record.set_attribute(name, value)


class CompileScope:
    """A whole compile: the root of a recording, or work within one that is running.

    Entry points call each other. The outermost is the compile, and those that it
    calls directly only add what they know of it.

    The root is the current span for as long as the scope lasts, so that what the
    compile starts joins its trace: other spans, log lines, child processes.

    Attributes:
        record: What is recorded; None when nothing is.
        is_muted: Whether nothing in this scope is to be recorded.
        is_outermost: Whether this scope began the compile.
    """

    def __init__(
        self,
        recorder: Recorder,
        describe: Describe,
        kind: str,
        fans_out: bool,
        shapes: Callable[[], str] | None,
    ) -> None:
        self.record: Record | None = None
        self.is_muted = True
        self.is_outermost = False
        self._recorder = recorder
        self._describe = describe
        self._kind = kind
        self._fans_out = fans_out
        self._shapes = shapes
        self._instruments: Instruments | None = None
        self._outcome: tuple[BaseException | Failure | None] | None = None
        self._recording: Recording | None = None
        self._work: Work | None = None
        self._token: Any = None
        self._cover: AbstractContextManager[None] | None = None

    def __enter__(self) -> CompileScope:
        with guard:
            caller = _getframe(1)
            self._enter(caller)
            if self._recorder.cover is not None:
                cover = self._recorder.cover(self, caller)
                cover.__enter__()
                self._cover = cover
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A signal may cut any of these steps short; the others are done all the same.
        try:
            if self._cover is not None:
                self._cover.__exit__(kind, error, trace)
        except BaseException as other:
            if other is not error:
                error = other
                raise
        finally:
            self._end(self._outcome[0] if self._outcome is not None else error)

    def _end(self, outcome: BaseException | Failure | None) -> None:
        try:
            with guard:
                self._tell()
            if self._work is not None:
                self._work.end(outcome)
        finally:
            try:
                if self._token is not None:
                    with guard:
                        otel_context.detach(self._token)
            finally:
                if self._recording is not None:
                    self._recorder.leave(self._recording, outcome)

    def set_outcome(self, error: BaseException | Failure | None) -> None:
        """Decide how the scope ends, whatever leaves it.

        Args:
            error: What to report; None for a success.
        """
        self._outcome = (error,)

    def set_attribute(self, name: str, value: Any) -> None:
        """Add an attribute, which only the compile itself could tell."""
        with guard:
            if self.record is not None:
                self.record.set_attribute(name, value)

    def age_s(self) -> float | None:
        """Return how many seconds the compile has taken so far; None if not recorded."""
        return None if self.record is None else self._recorder.age_s(self.record)

    def _enter(self, caller: FrameType) -> None:
        self._recorder.drop_stale()
        running = self._recorder.current()
        if running is None:
            running = self._begin(caller)
        elif running.is_muted:
            return
        elif running.current is not None and running.current.scope_kind == self._kind:
            self.is_muted = False
            self.record = running.current
            self._add(*self._describe())
        else:
            self._join(running)
        record = self.record
        if record is None or self._kind != semconv.SPAN_COMPILE:
            return
        if record.shapes is None:
            # Whoever comes first knows what the user gave: it is transformed on the way.
            record.shapes = self._shapes
        if self.is_outermost and running.instruments is not None:
            self._instruments = running.instruments
            self._instruments.compile_began()

    def _tell(self) -> None:
        """Say what can be said of a compile that ends."""
        instruments, self._instruments = self._instruments, None
        if instruments is not None:
            instruments.compile_ended()
        record = self.record
        if record is None or not self.is_outermost or self._kind != semconv.SPAN_COMPILE:
            return
        shapes, record.shapes = record.shapes, None
        if _warmup.is_unwanted(record.attributes or {}):
            record.set_attribute(semconv.TILELANG_COMPILE_TRIGGER, "runtime")
            attributes = record.attributes or {}
            if instruments is not None:
                instruments.compiled_at_runtime(attributes)
            _warmup.explain(record.name, attributes, shapes)

    def _begin(self, caller: FrameType) -> Recording:
        name, attributes = self._describe()
        recording = self._recording = self._recorder.enter(name, attributes)
        if is_with_statement(caller):
            # With a ``with`` statement, so the scope lasts no longer than the frame runs.
            recording.is_alive = functools.partial(is_running, caller)
        self.is_outermost = True
        self.is_muted = recording.is_muted
        self.record = recording.root
        if recording.root is not None:
            recording.root.scope_kind = self._kind
            self._token = otel_context.attach(recording.root.span_context)
        return recording

    def _join(self, running: Recording) -> None:
        self.is_muted = False
        self.is_outermost = True
        self._work = Work(running, self._describe, is_client=False)
        record = self.record = self._work.__enter__().record
        if record is not None:
            record.scope_kind = self._kind
            if self._fans_out:
                # Other threads need a span to put theirs below.
                self._token = otel_context.attach(running.start_early(record))

    def _add(self, name: str, attributes: dict[str, Any]) -> None:
        record = self.record
        if record is None or record.attributes is None:
            return
        if (
            semconv.TILELANG_KERNEL_NAME in attributes
            and semconv.TILELANG_KERNEL_NAME not in record.attributes
        ):
            record.rename(clean_name(name))
        for key, value in attributes.items():
            record.set_attribute(key, value)


def is_with_statement(caller: FrameType) -> bool:
    """Tell whether what ``caller`` enters lasts no longer than ``caller`` runs.

    Not so where an ``ExitStack`` enters it, on behalf of whoever closes the stack.
    """
    return caller.f_code.co_filename != contextlib.__file__
