"""What programs that get SIGTERM are made of: a recorder whose spans are printed, and hanging.

Imported by those programs, in their process. A line of what they print is ``exported``,
the span's name, its status, and what ended it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from tests.support.signalled import exported_line
from tilelang_otel._config import read_settings
from tilelang_otel._recorder import Recorder

__all__ = [
    "ALL_FINISHED",
    "FINISHED",
    "GIVEN_UP",
    "Program",
    "hang_in_c",
    "hang_in_python",
    "hold_the_interpreter",
    "say",
]


FINISHED = ["done UNSET"]
"""What a :class:`Program` has exported when only finished work was handed on."""

ALL_FINISHED = ["compile UNSET", "done UNSET", "open UNSET"]
"""What it has when its compile has ended."""

GIVEN_UP = [
    "compile ERROR process_died SIGTERM",
    "done UNSET",
    "open ERROR process_died SIGTERM",
]
"""What it has when the signal has ended it."""


class _Printer(SpanExporter):
    def __init__(self, hangs: bool) -> None:
        self._hangs = hangs

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        say(f"exporting {os.getpid()}")
        if self._hangs:
            threading.Event().wait()
        for span in spans:
            say(exported_line(span, os.getpid()))
        return SpanExportResult.SUCCESS


def say(line: str) -> None:
    """Print a line in one piece, whoever else prints."""
    os.write(1, f"{line}\n".encode())


class Program:
    """Compiles that are recorded, and exported only when they have to be.

    Args:
        exporter_hangs: Whether exporting never ends.
        timeout_s: How many seconds SIGTERM may wait for it.
        background: Whether another thread makes the spans.
    """

    def __init__(
        self, exporter_hangs: bool = False, timeout_s: float = 20.0, background: bool = False
    ) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(
            BatchSpanProcessor(
                _Printer(exporter_hangs), max_queue_size=8192, schedule_delay_millis=3_600_000
            )
        )
        settings = read_settings(
            flush_on_sigterm=True, exit_timeout_s=timeout_s, background=background
        )
        self.recorder = Recorder(self.provider, settings)

    def compile(self, body: Callable[[], object] = lambda: None, name: str = "compile") -> None:
        """Compile: a piece of work that is done, and one that calls ``body``."""
        with self.recorder.compile_scope(lambda: (name, {})):
            with self.recorder.work(lambda: ("done", {})):
                pass
            with self.recorder.work(lambda: ("open", {})):
                body()


def hang_in_c() -> None:
    """Never come back from C, which lets other threads run Python; say when that is so."""
    libc = ctypes.CDLL(None)
    mutex, condition = ctypes.create_string_buffer(128), ctypes.create_string_buffer(128)
    libc.pthread_mutex_lock(mutex)

    def tell() -> None:
        libc.pthread_mutex_lock(mutex)  # waiting for the condition has set it free
        say("ready")

    threading.Thread(target=tell, daemon=True).start()
    libc.pthread_cond_wait(condition, mutex)


def hang_in_python() -> None:
    """Never come back, but run signal handlers."""
    say("ready")
    threading.Event().wait()


def hold_the_interpreter(seconds: float) -> None:
    """Stay in C, and let nobody run Python meanwhile.

    Args:
        seconds: For how long.
    """

    class Timespec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    end_s = time.time() + seconds
    until = Timespec(int(end_s), int(end_s % 1 * 1e9))
    say("ready")
    libc = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(128)
    libc.pthread_mutex_lock(mutex)
    # Unlike sleeping, not ended by a signal.
    libc.pthread_mutex_timedlock(mutex, ctypes.byref(until))
