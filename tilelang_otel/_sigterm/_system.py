"""What the system does with signals that Python's own module neither tells nor does.

Owns the calls into the C library.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["default_setter", "restarts_calls"]


def default_setter() -> Callable[[int], object] | None:
    """Return what gives a signal its default action; Python's own is for the main thread.

    Returns:
        That; None where there is no such thing.
    """
    function = _c_function("signal")
    if function is None:
        return None
    import ctypes

    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_int, ctypes.c_void_p)
    return lambda number: function(number, None)


def restarts_calls(number: int) -> bool:
    """Tell whether system calls go on after a signal, as ``siginterrupt`` may have it.

    Args:
        number: The signal.

    Returns:
        That; False also where it cannot be found out.
    """
    function = _c_function("sigaction")
    if function is None or sys.platform not in ("linux", "darwin"):
        return False
    import ctypes

    is_linux = sys.platform == "linux"

    class Action(ctypes.Structure):
        _fields_ = (
            ("handler", ctypes.c_void_p),
            ("mask", ctypes.c_byte * (128 if is_linux else 4)),
            ("flags", ctypes.c_int),
            ("restorer", ctypes.c_void_p),
        )

    action = Action()
    if function(number, None, ctypes.byref(action)):
        return False
    return bool(action.flags & (0x10000000 if is_linux else 0x2))  # SA_RESTART


def _c_function(name: str) -> Any:
    """Return a function of the C library; None if there is none, or no way to call it."""
    if os.name != "posix":
        return None
    try:
        import ctypes

        return getattr(ctypes.CDLL(None), name)
    except (ImportError, AttributeError, OSError):
        return None
