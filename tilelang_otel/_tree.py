"""What a compile has opened: what is inside what, what failed first, what is still open.

Owns how records are linked, and how a failure that is passed on from one to the other is
told from a new one. When they are handed on is up to ``_recording``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilelang_otel._frames import Failure, FrameLog, Record
from tilelang_otel._scrub import describe_failure

if TYPE_CHECKING:
    from tilelang_otel._crash import CompileLog

__all__ = ["RecordTree"]


class RecordTree(FrameLog):
    """The records of one thread's compile.

    Attributes:
        root: The record of the root span; None when there is no root.
        current: The innermost open record.
        now_ns: The clock of the records' times.

    Args:
        now_ns: See there.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.root: Record | None = None
        self.current: Record | None = None
        self.now_ns = now_ns
        self._records: list[Record] = []
        self._last_failed: Record | None = None
        self._crash_log: CompileLog | None = None

    def open(self, record: Record) -> None:
        """Start recording a piece of work below what is open."""
        record.parent = self.current
        self.current = record
        self._records.append(record)
        record.start_ns = self.now_ns()
        if self._crash_log is not None:
            self._crash_log.opened(record)

    def close(
        self,
        record: Record,
        error: BaseException | Failure | None,
        end_ns: int | None = None,
    ) -> None:
        """Finish recording a piece of work, with the exception that ended it, now."""
        end_ns = end_ns or self.now_ns()
        if error is None:
            self._close(record, end_ns)
        else:
            self.fail([record], error, end_ns)

    def fail(
        self,
        records: list[Record],
        error: BaseException | Failure | None,
        end_ns: int | None,
    ) -> None:
        """Finish records that an exception has ended.

        Args:
            records: Each inside the one before it; may be empty.
            error: The exception, if known, or what is to be said of it.
            end_ns: When it was seen; None when it happened at some time before now.
        """
        if not records:
            return
        failure = error if isinstance(error, Failure) else describe_failure(error)
        origin = failure.origin or self._origin(records[-1], failure)
        for record in reversed(records):
            record.failure = (
                Failure(failure.type, failure.message, origin=origin) if origin else failure
            )
            origin = origin or record.name
            record.end_estimated = end_ns is None
            self._close(record, max(record.start_ns, record.last_ns) if end_ns is None else end_ns)
        self._last_failed = records[0]

    def _origin(self, record: Record, failure: Failure) -> str:
        """Name what failed first, if ``record`` only passes a failure on.

        TVM makes a new exception at each crossing between Python and C++, so only
        the message tells; and the failure must be the last thing that happened in
        ``record``: one that was caught, with more work after it, is not passed on.
        """
        last = self._last_failed
        if last is None or last.failure is None or last.parent is not record:
            return ""
        if last.end_ns < record.last_ns:
            return ""
        # What is raised about a failed compiler quotes its output and the source.
        if last.failure.message != failure.message and not last.is_client:
            return ""
        return last.failure.origin or last.name

    def _close(self, record: Record, end_ns: int) -> None:
        record.end_ns = end_ns
        if self._crash_log is not None:
            self._crash_log.closed(record)
        parent = record.parent
        if parent is not None:
            parent.children_ns += end_ns - record.start_ns
            parent.last_ns = end_ns
            # Instruments that share this recording close in registration order.
            while parent is not None and parent.end_ns:
                parent = parent.parent
        if self.current is record:
            self.current = parent
