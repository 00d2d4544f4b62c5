"""Names, values and messages that leave the process: bounded, valid, no source code."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tilelang_otel._scrub import (
    attribute_value,
    clean_name,
    complaints,
    describe_failure,
    error_type,
)

np = pytest.importorskip("numpy")

_CUDA = """\
#include <tl_templates/cuda/gemm.h>
#include <tl_templates/cuda/copy.h>

extern "C" __global__ void secret_kernel(half* A, half* B) {
  A[threadIdx.x] = B[blockIdx.x] * SECRET_FACTOR;
}
"""

_TVMSCRIPT = """\
# from tvm.script import ir as I
# from tvm.script import tirx as T

@I.ir_module
class SecretModule:
    @T.prim_func
    def secret_kernel(A: T.handle):
        for i in T.serial(16):
            A[i] = T.float32(2.0)
"""


# -- names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("tirx.Simplify", "tirx.Simplify"),
        ("%s{}", "%s{}"),
        ("a\0b", "a b"),
        ("tab\n", "tab"),
        ("", "(unnamed)"),
        (" \r\n\t", "(unnamed)"),
        ("größe", "größe"),
        ("bad \ud800 surrogate", "bad ? surrogate"),
        ("x" * 256, "x" * 256),
        ("x" * 200_000, "x" * 255 + "…"),
        ("\udcff" * 200_000, "?" * 255 + "…"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_name_becomes_one_bounded_line_of_valid_text(name: str, cleaned: str) -> None:
    """Whatever TVM lets through as a pass's name, a backend takes the span's."""
    assert clean_name(name) == cleaned
    assert clean_name(cleaned) == cleaned


# -- values ----------------------------------------------------------------------------


class _IntImm:
    """A constant as TVM has it."""

    dtype = "int32"

    def __init__(self, value: int) -> None:
        self.value = value

    def __str__(self) -> str:
        raise AssertionError("was made into text")


class _Module:
    """Something whose text is megabytes, and must not be asked for it."""

    __repr__ = __str__ = lambda self: pytest.fail("was made into text")


class _Hostile:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is not to be read")


class _Kind(enum.Enum):
    CUDA = "cuda"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        ("sm_80", "sm_80"),
        (True, True),
        (7, 7),
        (1.5, 1.5),
        (2**63 - 1, 2**63 - 1),
        (2**63, str(2**63)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (np.int64(3), 3),
        (np.uint64(2**64 - 1), str(2**64 - 1)),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("sm_80"), "sm_80"),
        (np.array(5), 5),
        (np.array([1, 2]), None),
        (_IntImm(16), 16),
        (_Kind.CUDA, "cuda"),
        (_Module(), None),
        (_Hostile(), None),
        (b"bytes", None),
        ([1, 2], None),
        ({"a": 1}, None),
        ("bad \ud800", "bad ?"),
        ("x" * 5_000_000, "x" * 1023 + "…"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_value_becomes_a_plain_bounded_scalar_or_nothing(value: Any, plain: Any) -> None:
    """An exporter takes it without converting; nothing is printed to find out."""
    got = attribute_value(value)
    assert got == plain
    assert type(got) is type(plain) or isinstance(got, float)


def test_number_too_large_for_python_to_print_is_still_bounded() -> None:
    """Python refuses to make decimals of numbers with thousands of digits."""
    text = attribute_value(10**5000)
    assert isinstance(text, str)
    assert text.startswith("0x")
    assert len(text) == 1024


# -- failures ------------------------------------------------------------------------------


def _raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_failure_nobody_saw_is_other() -> None:
    """There is nothing to say about it."""
    failure = describe_failure(None)
    assert (failure.type, failure.message, failure.stacktrace) == ("_OTHER", "", "")


def test_error_type_is_the_qualified_class_name() -> None:
    """Builtins go by their own name; a class made at run time is bounded like any name."""
    assert error_type(ValueError("x")) == "ValueError"
    assert error_type(subprocess.CalledProcessError(1, "nvcc")) == "subprocess.CalledProcessError"
    odd = type("E" * 5000, (Exception,), {"__module__": None})
    assert len(error_type(odd())) <= 256


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("no such layout", "no such layout"),
        ("Check failed: (a == b) \n  shapes differ\n", "Check failed: (a == b)\n  shapes differ"),
        ("import of module tvm failed: no file", "import of module tvm failed: no file"),
        ("from here on it is undefined", "from here on it is undefined"),
        ("a\0b\x1b[31mred\r", "a b [31mred"),
        ("bad \udc80 bytes", "bad ? bytes"),
        ("", ""),
        (f"Compilation error:\n{_CUDA}", "Compilation error:\n… (cut)"),
        (_CUDA, "(the message is source code: cut)"),
        (f"in this module:\n\n{_TVMSCRIPT}", "in this module:\n… (cut)"),
        (_TVMSCRIPT, "(the message is source code: cut)"),
        ("verify failed:\n; ModuleID = 'TVMMod'\ndefine void @f()", "verify failed:\n… (cut)"),
        ("ptxas:\n.version 8.0\n.target sm_80", "ptxas:\n… (cut)"),
        ("bad:\n    A[0] = T.float32(1)", "bad:\n… (cut)"),
        ("bad:\n    for i in T.serial(4):", "bad:\n… (cut)"),
    ],
)
def test_message_keeps_what_is_said_and_cuts_source_code(message: str, kept: str) -> None:
    """nvcc failures hold the whole kernel: it stays here."""
    assert describe_failure(_raised(ValueError(message))).message == kept


def test_message_of_megabytes_is_bounded() -> None:
    """One such message can cost a batch of 4 MB its delivery."""
    line = describe_failure(ValueError("x" * 5_000_000)).message
    assert line == "x" * 299 + "…\n… (cut)"
    lines = describe_failure(ValueError("line of text\n" * 400_000)).message
    assert lines == "line of text\n" * 12 + "… (cut)"
    wide = describe_failure(ValueError(("y" * 400 + "\n") * 1000)).message
    assert len(wide) == 1024


@pytest.mark.parametrize(
    "text",
    [
        " " * 4096,
        "\n" * 4096,
        ("a " * 4096),
        "def " + "a" * 4092,
        "for " + "in " * 1300,
        "for" + " " * 4090 + "x",
        "static " + "; " * 2000 + "x",
        "import " + "a." * 2000 + " as ",
        "@" + "\t" * 4090,
    ],
    ids=lambda text: repr(text[:8]),
)
@pytest.mark.timeout(5)
def test_message_of_any_shape_is_read_in_linear_time(text: str) -> None:
    """The time limit fails this: a failing compile must not hang in its own telemetry."""
    for _ in range(20):
        describe_failure(ValueError(text))


class _UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be printed")


class _KeywordError(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_UnprintableError, "(the exception has no printable message)"),
        (lambda: _KeywordError(code=3), "code 3"),
        (lambda: KeyError("name"), "'name'"),
        (lambda: SystemExit(3), "3"),
        (lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), None),
    ],
)
def test_odd_exceptions_are_described(make: Callable[[], BaseException], message: str) -> None:
    """Whatever came out of the compile, there is a type and a bounded message."""
    error = make()
    failure = describe_failure(_raised(error))
    assert failure.type.endswith(type(error).__name__)
    assert message is None or failure.message == message


def test_stacktrace_is_bounded_and_keeps_where_it_was_raised() -> None:
    """The deepest frames are the ones that tell."""
    name = "deepest"

    def deep(left: int) -> None:
        if left == 0:
            exec(compile(f"def {name}():\n    raise ValueError('x')\n{name}()", "y" * 500, "exec"))
        deep(left - 1)

    with pytest.raises(ValueError, match="x") as caught:
        deep(min(300, sys.getrecursionlimit() // 3))
    trace = describe_failure(caught.value).stacktrace
    assert len(trace) <= 8192
    assert trace.startswith("  File ")
    assert trace.endswith(f"line 2, in {name}")
    assert "raise ValueError" not in trace


def test_failure_holds_text_only() -> None:
    """No exception, and so no module in its frames, is kept alive."""
    import gc
    import weakref

    error = _raised(_KeywordError(code=1))
    alive = weakref.ref(error)
    failure = describe_failure(error)
    del error
    gc.collect()
    assert alive() is None
    assert failure.message == "code 1"


def test_message_that_begins_with_source_keeps_what_the_compiler_said() -> None:
    """The reason stands behind the whole kernel, and is what the reader needs."""
    source = "#include <cuda.h>\n" + "__global__ void k() { error = 1; }\n" * 400
    output = 'k.cu(7): error: identifier "foo" is undefined\n    foo();\n    ^\n1 error detected'
    failure = describe_failure(RuntimeError(f"{source}\nCompilation error:\n{output}"))
    assert failure.message == (
        'Compilation error:\nk.cu(7): error: identifier "foo" is undefined\n… (cut)'
    )


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("k.cu(7): error: expected a ;", True),
        ("/usr/bin/ld: fatal error: cannot find -lcuda", True),
        ("k.cu(7): error #20013: no", True),
        ("nvcc fatal   : Unknown option '--x'", True),
        ("g++: fatal error: no input files", True),
        ("    float error = 0.0f;", False),
    ],
)
def test_complaints_are_the_lines_that_say_what_is_wrong(line: str, is_one: bool) -> None:
    """A line that quotes the source is none, even if a variable is called error."""
    assert complaints(f"first\n{line}\nlast") == ([line.strip()] if is_one else [])
