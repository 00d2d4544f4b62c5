"""The inside of a program that ``tilelang-otel run`` has started.

Owns what happens there before the program's first line and after its last:
instrumentation, and the report. Processes that the program starts are traced
too, but only the program itself reports. Nothing here may change what the
program does, so nothing is raised and nothing is imported that can wait.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

import tilelang_otel
from tilelang_otel._config import mark_warned, warned
from tilelang_otel._guard import guard
from tilelang_otel.cli._running.destination import Destination
from tilelang_otel.cli._running.exporting import Session
from tilelang_otel.environment_variables import OTEL_PYTHON_TILELANG_BACKGROUND

__all__ = ["environment_for", "start"]

HAND_OVER: Final = "_TILELANG_OTEL_RUN"
"""The variable in which ``run`` tells the program where traces go; read by ``sitecustomize``."""

COMMAND: Final = "tilelang-otel run"

_PACKAGE: Final = os.path.dirname(os.path.abspath(tilelang_otel.__file__)) + os.sep


def environment_for(destination: Destination, pid: int, reported: str = "") -> dict[str, str]:
    """Return the variables with which a program traces itself.

    Args:
        destination: Where its traces go.
        pid: The process that is to report; 0 means the one that reads it first.
        reported: A file to make before it reports, for somebody who would do it instead.
    """
    content = {
        "pid": pid,
        "reported": reported,
        "prefix": sys.prefix,
        "root": os.path.dirname(os.path.dirname(_PACKAGE)),
        "destination": dataclasses.asdict(destination),
        "warned": warned(),
    }
    return {**destination.environment(), HAND_OVER: json.dumps(content)}


def start(content: Mapping[str, Any]) -> None:
    """Trace this process. Never raises.

    Args:
        content: What the variable of :func:`environment_for` holds.
    """
    with guard:
        # The command has looked at the same variables.
        mark_warned(content["warned"])
        fields: dict[str, Any] = dict(content["destination"])
        fields["targets"] = tuple(fields["targets"])
        pid = content["pid"] or os.getpid()
        os.environ[HAND_OVER] = json.dumps({**content, "pid": pid})
        session = Session(Destination(**fields), COMMAND, pid)
        if pid != os.getpid():
            # It may be killed as soon as it has done its work.
            os.environ.setdefault(OTEL_PYTHON_TILELANG_BACKGROUND, "false")
        else:
            # Registered before the program registers anything, so it runs last.
            atexit.register(_report, session, content["reported"])
        _trace(session)
        sys.excepthook = _without_our_frames(sys.excepthook)


def _trace(session: Session) -> None:
    import tilelang_otel
    from tilelang_otel import _recorder

    _recorder.look_up_provider = session.provider
    tilelang_otel.instrument()


def _report(session: Session, reported: str) -> None:
    if os.getpid() != session.pid:
        return
    try:
        if reported:
            with contextlib.suppress(OSError):
                os.close(os.open(reported, os.O_CREAT | os.O_WRONLY, 0o600))
        session.report_at_exit()
    except KeyboardInterrupt:
        pass
    finally:
        _keep_death_by_signal()


def _keep_death_by_signal() -> None:
    """Let an uncaught Ctrl-C end the process as one does: by the signal itself.

    Python remembers it in a flag that it takes back whenever it runs source text,
    which importing a dataclass does, and sets again by the same means.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _without_our_frames(
    show: Callable[[type[BaseException], BaseException, TracebackType | None], Any],
) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """Return a hook that shows an uncaught exception as if nothing were wrapped."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with guard:
            seen: set[int] = set()
            pending: list[BaseException | None] = [error]
            while pending:
                each = pending.pop()
                if each is not None and id(each) not in seen:
                    seen.add(id(each))
                    each.__traceback__ = _foreign(each.__traceback__)
                    pending += [each.__cause__, each.__context__]
        show(kind, error, error.__traceback__)

    return hook


def _foreign(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the entries that lie in this package."""
    entries: list[TracebackType] = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            entries.append(trace)
        trace = trace.tb_next
    following: TracebackType | None = None
    for entry in reversed(entries):
        entry.tb_next = following
        following = entry
    return following
