"""Tracing as ``run`` and ``demo`` do it, and what is said about it afterwards.

Owns how long tracing lasts in one process. Where traces go is decided by
``_running.destination``; building the provider is up to ``provider``, drawing to
``_drawing.tree``.

An application's provider counts, whenever it is set before the first compile.
So ours is built when the first compile begins, and a file that was asked for is
added to whatever provider is in force by then.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from tilelang_otel._config import warned
from tilelang_otel.cli._running.destination import FILE_EXPORTER, Destination

if TYPE_CHECKING:
    from rich.console import Console

    from tilelang_otel.cli._traces.tree import Trace

__all__ = ["Session"]

_MAX_TREES: Final = 5
"""How many traces are printed before only the slowest and the failed ones are."""


@dataclass
class Session:
    """Tracing in this process, from the first compile to the last word about it.

    Attributes:
        destination: Where traces go.
        command: Who speaks, e.g. ``tilelang-otel run``.
        pid: The process that lives until the end and says the last word. Any
            other may end at any moment, so it exports at once.
    """

    destination: Destination
    command: str
    pid: int
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _is_foreign: bool = False
    _provider: trace.TracerProvider | None = None
    _processor: Any = None

    def provider(self) -> trace.TracerProvider:
        """Return the tracer provider in force, and build one if there is none.

        Called for every compile, so it is quick the second time.
        """
        if self._provider is None:
            with self._lock:
                if self._provider is None:
                    self._provider = self._configure()
        return self._provider

    def _configure(self) -> trace.TracerProvider:
        from tilelang_otel.provider import configure

        before = trace.get_tracer_provider()
        self._is_foreign = not isinstance(before, trace.ProxyTracerProvider)
        os.environ.update(self.destination.environment())
        provider = configure(default_exporter=FILE_EXPORTER)
        if self.destination.file is not None and not self._exports_to_file():
            self._add_file(provider, self.destination.file)
        if os.getpid() != self.pid:
            self._export_at_once(provider)
        return provider

    def _exports_to_file(self) -> bool:
        from tilelang_otel._otel.environment import read_environment
        from tilelang_otel._otel.targets import exporters_in_force

        if self._is_foreign or read_environment().get("OTEL_CONFIG_FILE"):
            return False
        return any(name == FILE_EXPORTER for name, _ in exporters_in_force(FILE_EXPORTER))

    def _add_file(self, provider: Any, path: str) -> None:
        add = getattr(provider, "add_span_processor", None)
        if add is None:
            return
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from tilelang_otel._otlp_file import OTLPJSONLinesSpanExporter

        self._processor = BatchSpanProcessor(
            OTLPJSONLinesSpanExporter(path), max_queue_size=65_536, max_export_batch_size=512
        )
        add(self._processor)

    def _export_at_once(self, provider: Any) -> None:
        add = getattr(provider, "add_span_processor", None)
        if add is not None:
            from tilelang_otel.cli._running.child_spans import FlushWhenIdle

            add(FlushWhenIdle(self.flush))

    def flush(self) -> bool:
        """Export what has ended, within the bound for process exit.

        Returns:
            Whether everything arrived in time, as far as it is known.
        """
        from tilelang_otel.provider import flush

        is_written = self.flush_file()
        return flush() and is_written

    def flush_file(self) -> bool:
        """Write what has ended to the file that was added to a provider, if one was.

        Returns:
            Whether it is written.
        """
        return self._processor is None or bool(self._processor.force_flush())

    def report_at_exit(self) -> None:
        """Report on standard error, as the last thing that a process does.

        Raises:
            KeyboardInterrupt: The user has no more time for it.
        """
        if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
            return
        # Whoever closed the output of a program that is over wants to read no more.
        with contextlib.suppress(Exception):
            from tilelang_otel.cli._drawing.console import make_console

            if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
                sys.stdout.flush()
            # A provider of ours has been shut down by now.
            self.flush_file()
            self.report(make_console(stderr=True))
            sys.stderr.flush()

    def report(self, console: Console) -> None:
        """Print the trees, if there is a file, and where traces went.

        Args:
            console: Where to.
        """
        file = self.destination.file
        traces = [] if file is None else self._traces(file)
        is_lost = f"write {file}" in warned()
        if not traces and not is_lost and (file is not None or self._provider is None):
            self._say(console, "no trace was recorded: nothing was compiled, or it was not sampled")
        if traces:
            from tilelang_otel.cli._drawing.tree import render_traces

            shown = _worth_showing(traces)
            render_traces(shown, console)
            rest = len(traces) - len(shown)
            more = f" ({rest} more traces in it)" if rest else ""
            shown_file = self.destination.shown_file
            self._say(console, f"traces are in {file}{more}: tilelang-otel show {shown_file}")
        for line in self._remarks():
            self._say(console, line)

    def _remarks(self) -> list[str]:
        if self.destination.remark:
            return [self.destination.remark]
        if self._provider is None:
            return []
        if self._is_foreign:
            return ["traces go where the tracer provider sends them that the program has set up"]
        return [f"traces are exported to {target}" for target in self.destination.targets]

    def _traces(self, path: str) -> list[Trace]:
        from tilelang_otel.cli._traces.file import SpanReader
        from tilelang_otel.cli._traces.tree import build_traces

        reader = SpanReader()
        try:
            with open(path, "rb") as file:
                file.seek(self.destination.file_start_bytes)
                reader.read_lines(file, path)
        except FileNotFoundError:
            return []
        return build_traces(reader.spans)

    def _say(self, console: Console, line: str) -> None:
        console.print(f"{self.command}: {line}", soft_wrap=True)


def _worth_showing(traces: Sequence[Trace]) -> list[Trace]:
    """Return all traces if they are few, else the failed and the slowest, in order."""
    if len(traces) <= _MAX_TREES:
        return list(traces)
    ranked = sorted(traces, key=lambda trace: (not trace.errors, -trace.duration_ns))
    chosen = {trace.trace_id for trace in ranked[:_MAX_TREES]}
    return [trace for trace in traces if trace.trace_id in chosen]
