"""Exceptions that a signal has put into our code: the user's, wherever they surface.

Python handles a signal when it next runs Python code. While a pass runs, that
is one of our callbacks, before its first line, so no ``try`` in it helps. What
is raised there TVM passes on as a ``RuntimeError``, an empty one for Ctrl-C, and
a program that retries on errors would swallow its user's Ctrl-C.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from types import CodeType, TracebackType

__all__ = ["is_from_signal", "swallowed_interrupt"]

_PACKAGE = os.path.dirname(__file__) + os.sep


def swallowed_interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt that ``error`` stands for; usually None.

    Args:
        error: What came out of TVM.

    Returns:
        A new KeyboardInterrupt, if ``error`` is an empty RuntimeError that began
        in this package: nothing in here raises one. Or in the program's handler
        of Ctrl-C, which had interrupted this package.
    """
    if type(error) is not RuntimeError or str(error):
        return None
    trace = error.__traceback__
    was_ours = False
    code: CodeType | None = None
    while trace is not None:
        inner = trace.tb_frame.f_code
        trace = trace.tb_next
        if inner.co_filename.startswith(_PACKAGE) and _is_handler(inner, [signal.SIGTERM]):
            continue  # ours only hands on to the program's, which may have no frame
        was_ours = was_ours or (code is not None and code.co_filename.startswith(_PACKAGE))
        code = inner
    if code is None:
        return None
    if code.co_filename.startswith(_PACKAGE) or (was_ours and _is_handler(code, [signal.SIGINT])):
        return KeyboardInterrupt()
    return None


def is_from_signal(error: BaseException) -> bool:
    """Tell whether a signal handler of the program's has raised ``error``.

    Args:
        error: An exception that came up in our code.
    """
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if _is_handler(trace.tb_frame.f_code, signal.valid_signals()):
            return True
        trace = trace.tb_next
    return False


def _is_handler(code: CodeType, signals: Iterable[int]) -> bool:
    """Tell whether ``code`` is that of a handler which is installed now.

    TVM makes up the frames of an exception that passed through it, so only where
    they say they are from can be compared.
    """
    for number in signals:
        handler = signal.getsignal(number)
        function = getattr(handler, "__func__", handler)
        if not hasattr(function, "__code__"):
            # An object that can be called, as our own is.
            function = vars(type(handler)).get("__call__")
        installed = getattr(function, "__code__", None)
        if installed is not None and (
            (installed.co_filename, installed.co_name) == (code.co_filename, code.co_name)
        ):
            return True
    return False
