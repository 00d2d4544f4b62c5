"""Ctrl-C that TVM has turned into something else.

Python handles a signal when it next runs Python code. While a pass runs, that
is one of our callbacks, before its first line, so no ``try`` in it helps. What
is raised there TVM passes on as an empty ``RuntimeError``, and a program that
retries on errors would swallow its user's Ctrl-C.
"""

from __future__ import annotations

import os

__all__ = ["swallowed_interrupt"]

_PACKAGE = os.path.dirname(__file__) + os.sep


def swallowed_interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt that ``error`` stands for; usually None.

    Args:
        error: What came out of TVM.

    Returns:
        A new KeyboardInterrupt, if ``error`` is an empty RuntimeError that began
        in this package: nothing in here raises one.
    """
    if type(error) is not RuntimeError or str(error):
        return None
    trace = error.__traceback__
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        return None
    return KeyboardInterrupt()
