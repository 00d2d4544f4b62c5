"""Names and messages made fit for a backend: bounded, valid text, no source code.

Backends refuse spans with huge names, a single oversized message can cost a
whole batch, and compilers like to put the kernel into their error messages.
"""

from __future__ import annotations

import re
import traceback
from typing import Any

from tilelang_otel import semconv
from tilelang_otel._frames import Failure
from tilelang_otel._interrupt import swallowed_interrupt

__all__ = ["attribute_value", "clean_name", "describe_failure", "error_type"]

_NAME_CHARACTERS = 256
_VALUE_CHARACTERS = 1024
_MESSAGE_CHARACTERS = 1024
_MESSAGE_LINES = 12
_STACK_FRAMES = 40

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")

# Where a message turns into a program: TVMScript, CUDA or C source, generated
# Python. The message is cut there, whatever follows.
_SOURCE = re.compile(
    r"""^\s*(
        \#\s*(include|define|pragma|ifn?def|if|endif|from\s+tvm)\b
      | (from|import)\s+\w[\w.]*\s
      | @\s*(T|I|R|tvm|tilelang|triton)\b
      | (extern\s+"C"|__global__|__device__|template\s*<|namespace\s+\w)
      | (class|def)\s+\w+.*:\s*$
      | (static|inline|typedef|struct|using)\s.*[;{]\s*$
      | primfn\(|allocate\(|attr\s*\[|buffer_realize
      | with\s+T\.|for\s+.*\bin\s+T\.
      | [\w.\[\], ]+\s*=\s*T\.\w+\(
    )""",
    re.VERBOSE | re.MULTILINE,
)


def clean_name(name: str) -> str:
    """Return ``name`` as one bounded line of valid text, never empty.

    Args:
        name: A pass, kernel or function name, from anywhere.

    Returns:
        At most 256 characters; control characters become spaces.
    """
    if name.isascii() and name.isprintable() and 0 < len(name) <= _NAME_CHARACTERS:
        return name
    text = _CONTROL.sub(" ", _valid(name[: _NAME_CHARACTERS + 1])).strip()
    return _cut(text, _NAME_CHARACTERS) or "(unnamed)"


def attribute_value(value: Any) -> str | bool | int | float | None:
    """Return ``value`` as something an exporter takes without converting it.

    OpenTelemetry's SDK stores ``str(value)`` of what it does not know, which for
    a module is its whole text. So nothing but plain scalars gets through.

    Args:
        value: A scalar, possibly one of NumPy's or TVM's.

    Returns:
        A bounded str, a bool, an int of 64 bits or a float; None when the value
        is nothing of the kind.
    """
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return _cut(_valid(value[: _VALUE_CHARACTERS + 1]), _VALUE_CHARACTERS)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)[:_VALUE_CHARACTERS]
    scalar = getattr(value, "item", None) or getattr(value, "value", None)
    plain = scalar() if callable(scalar) else scalar
    return attribute_value(plain) if isinstance(plain, bool | int | float | str) else None


def error_type(error: BaseException) -> str:
    """Return the low-cardinality name of an exception's class."""
    kind = type(error)
    if kind.__module__ in ("builtins", "exceptions"):
        return kind.__qualname__
    return _cut(f"{kind.__module__}.{kind.__qualname__}", _NAME_CHARACTERS)


def describe_failure(error: BaseException | None) -> Failure:
    """Turn an exception into text that may leave the process.

    Args:
        error: The exception, or None when nobody saw it.

    Returns:
        Its type, its bounded message without source code, and where it was
        raised, as files, lines and functions.
    """
    if error is None:
        return Failure(semconv.ERROR_TYPE_OTHER)
    error = swallowed_interrupt(error) or error
    return Failure(error_type(error), _message(error), _stacktrace(error))


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot print itself is the user's
        return "(the exception has no printable message)"
    # Only the beginning is looked at: a message may hold megabytes of source.
    text = _CONTROL_BUT_LINES.sub(" ", _valid(text[: 4 * _MESSAGE_CHARACTERS]))
    source = _SOURCE.search(text)
    kept = text[: source.start()] if source else text
    lines = [line.rstrip()[:300] for line in kept.splitlines() if line.strip()]
    was_cut = source is not None or len(lines) > _MESSAGE_LINES
    short = "\n".join(lines[:_MESSAGE_LINES])
    if was_cut:
        short = f"{short}\n… (cut)" if short else "(the message is source code: cut)"
    return _cut(short, _MESSAGE_CHARACTERS)


def _stacktrace(error: BaseException) -> str:
    # Without the lines' text: that is source code, of the kernel as likely as not.
    lines = [
        f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return _valid("\n".join(lines[-_STACK_FRAMES:]))[: 8 * _MESSAGE_CHARACTERS]


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
