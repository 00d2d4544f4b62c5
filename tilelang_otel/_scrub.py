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

__all__ = [
    "attribute_value",
    "clean_kernel_name",
    "clean_name",
    "complaints",
    "describe_failure",
    "error_type",
]

_NAME_CHARACTERS = 256
_VALUE_CHARACTERS = 1024
_MESSAGE_CHARACTERS = 1024
_MESSAGE_READ = 4096
_MESSAGE_LINES = 12
_LINE_CHARACTERS = 300
_OUTPUT_READ = 1_000_000
_COMPLAINTS = 3
_STACK_FRAMES = 40
_STACK_CHARACTERS = 8192

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")

# A line at which a message turns into a program: TVMScript, CUDA, C, LLVM or PTX
# source, generated Python. The message is cut there, whatever follows. Matched
# against one line with single spaces, which keeps it fast on any text.
_SOURCE_LINE = re.compile(
    r"""
        \#\s?(include|define|pragma|ifn?def|if|endif|from\ tvm)\b
      | from\ [\w.]+\ import\b
      | import\ [\w.]+(\ as\ \w+)?$
      | @\ ?(T|I|R|tvm|tilelang|triton)\b
      | (extern\ "C"|__global__|__device__|__kernel|template\ ?<|namespace\ \w)
      | (class|def)\ \w.*:$
      | (static|inline|typedef|struct|using)\ .*[;{]$
      | (primfn\(|allocate\(|attr\ ?\[|buffer_realize)
      | (with\ T\.|for\ .*\bin\ T\.)
      | [\w.\[\],\ ]+=\ ?T\.\w+\(
      | (;\ ModuleID|define\ .*@\w|\.(version|target|visible|entry)\ )
    """,
    re.VERBOSE,
)

_COMPLAINT = re.compile(r"\b(fatal|error)\b\s*([#\w]+\s*)?:", re.IGNORECASE)
"""How nvcc, gcc, clang and their linkers begin what they have to say."""


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


_GROUP_SUFFIX = re.compile(r"_gc_\d+(?=(?:_kernel(?:_\d+)?)?$)")
"""What TileLang's grouped compiles put behind a kernel's name, to keep them apart.
The device's part of a kernel has ``_kernel`` behind that."""


def clean_kernel_name(name: str) -> str:
    """Return a kernel's name as :func:`clean_name` does, without a grouped compile's suffix.

    Args:
        name: A function's name in a module of TileLang's.
    """
    name = clean_name(name)
    return _GROUP_SUFFIX.sub("", name) or name


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
        if -(2**63) <= value < 2**63:
            return value
        # Python refuses to write very large numbers in decimal.
        return _cut(str(value) if value.bit_length() < 4096 else hex(value), _VALUE_CHARACTERS)
    try:
        scalar = getattr(value, "item", None) or getattr(value, "value", None)
        plain = scalar() if callable(scalar) else scalar
    except Exception:  # noqa: BLE001 - an array has no one value, and anything may raise anything
        return None
    return attribute_value(plain) if isinstance(plain, bool | int | float | str) else None


def error_type(error: BaseException) -> str:
    """Return the low-cardinality name of an exception's class."""
    kind = type(error)
    if kind.__module__ in ("builtins", "exceptions"):
        return kind.__qualname__
    return clean_name(f"{kind.__module__}.{kind.__qualname__}")


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
    was_cut = len(text) > _MESSAGE_READ
    beginning = _CONTROL_BUT_LINES.sub(" ", _valid(text[:_MESSAGE_READ]))
    kept: list[str] = []
    for line in beginning.splitlines():
        words = " ".join(line.split())
        if not words:
            continue
        if len(kept) == _MESSAGE_LINES or _SOURCE_LINE.match(words):
            was_cut = True
            break
        kept.append(_cut(line.rstrip(), _LINE_CHARACTERS))
    # A compiler's error may begin with the source, and come to the point behind it.
    kept = kept or complaints(text)
    short = "\n".join(kept)
    if was_cut:
        short = f"{short}\n… (cut)" if short else "(the message is source code: cut)"
    return _cut(short, _MESSAGE_CHARACTERS)


def complaints(output: str) -> list[str]:
    """Return the first lines of a compiler's output that say what is wrong.

    Args:
        output: What it printed, with whatever it quotes of the source.

    Returns:
        At most three lines, bounded; compilers put what they quote on lines of its own.
    """
    found: list[str] = []
    for line in output[:_OUTPUT_READ].splitlines():
        if _COMPLAINT.search(line[:_LINE_CHARACTERS]):
            text = _CONTROL.sub(" ", _valid(line.strip()))
            found.append(_cut(text, _LINE_CHARACTERS))
            if len(found) == _COMPLAINTS:
                break
    return found


def _stacktrace(error: BaseException) -> str:
    # Without the lines' text: that is source code, of the kernel as likely as not.
    lines = [
        f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    text = _valid("\n".join(lines[-_STACK_FRAMES:]))
    if len(text) > _STACK_CHARACTERS:
        # The end is where it was raised.
        text = text[-_STACK_CHARACTERS:].partition("\n")[2]
    return text


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
