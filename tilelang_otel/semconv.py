"""Names of spans and attributes, each with its type, unit and when it is set.

Names that OpenTelemetry defines keep its spelling; all others live under
``tvm.`` and ``tilelang.``. What the values are and where they come from is up
to the modules that set them.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ERROR_TYPE",
    "ERROR_TYPE_OTHER",
    "EXCEPTION_EVENT",
    "EXCEPTION_MESSAGE",
    "EXCEPTION_STACKTRACE",
    "EXCEPTION_TYPE",
    "PROCESS_EXECUTABLE_NAME",
    "PROCESS_EXIT_CODE",
    "PROCESS_PID",
    "SCHEMA_URL",
    "SCOPE_NAME",
    "SPAN_CODEGEN",
    "SPAN_COMPILE",
    "SPAN_LINK",
    "SPAN_LOWER",
    "SPAN_PASS_CONTEXT",
    "TILELANG_BINARY_SIZE",
    "TILELANG_CACHE_KEY",
    "TILELANG_CACHE_RESULT",
    "TILELANG_CODEGEN_NAME",
    "TILELANG_EXECUTION_BACKEND",
    "TILELANG_KERNEL_NAME",
    "TILELANG_STAGE",
    "TVM_PASS_DEPTH",
    "TVM_PASS_END_ESTIMATED",
    "TVM_PASS_INCOMPLETE",
    "TVM_PASS_NAME",
    "TVM_PASS_PARENT_SEQUENCE",
    "TVM_PASS_PHASE",
    "TVM_PASS_SELF_DURATION",
    "TVM_PASS_SEQUENCE",
    "TVM_TARGET_ARCH",
    "TVM_TARGET_KIND",
]

SCOPE_NAME: Final = "tilelang_otel"
"""Name of the instrumentation scope of every span."""

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
"""The semantic conventions that the OpenTelemetry names below follow."""

SPAN_COMPILE: Final = "compile"
"""Root of a compile, followed by the function or kernel when it is known."""

SPAN_PASS_CONTEXT: Final = "PassContext"
"""Root of what ran in a pass context when no compile entry point was seen."""

SPAN_LOWER: Final = "lower"
"""One pass context of a TileLang compile: a container, not work."""

SPAN_CODEGEN: Final = "codegen"
"""Code generation, followed by the kind of target."""

SPAN_LINK: Final = "link"
"""Putting generated modules together into an executable."""

TVM_PASS_NAME: Final = "tvm.pass.name"
"""str; every pass span. The pass's name as TVM gives it."""

TVM_PASS_SEQUENCE: Final = "tvm.pass.sequence"
"""int; every pass span. Position in start order within its pass context, from 0."""

TVM_PASS_DEPTH: Final = "tvm.pass.depth"
"""int; every pass span. How many passes were open when it started."""

TVM_PASS_PARENT_SEQUENCE: Final = "tvm.pass.parent_sequence"
"""int; passes inside another. The sequence of the nearest observed ancestor."""

TVM_PASS_PHASE: Final = "tvm.pass.phase"
"""str; when a phase is known."""

TVM_PASS_SELF_DURATION: Final = "tvm.pass.self_duration"
"""float, s; finished passes. The duration less that of the recorded children."""

TVM_PASS_INCOMPLETE: Final = "tvm.pass.incomplete"
"""bool, only true; passes that got no after-pass callback."""

TVM_PASS_END_ESTIMATED: Final = "tvm.pass.end_estimated"
"""bool, only true; incomplete passes whose end nobody saw: the span ends with
the last thing known to have happened in it."""

TILELANG_KERNEL_NAME: Final = "tilelang.kernel.name"
"""str; compile, lower and codegen spans, and passes over a module that names
exactly one function."""

TILELANG_EXECUTION_BACKEND: Final = "tilelang.execution_backend"
"""str; TileLang compiles. How the kernel is called, e.g. ``tvm_ffi``."""

TILELANG_STAGE: Final = "tilelang.stage"
"""str; pass contexts of a TileLang compile, e.g. ``jit-lower``."""

TILELANG_CACHE_RESULT: Final = "tilelang.cache.result"
"""str; TileLang compiles: ``memory``, ``disk``, ``miss`` or ``disabled``."""

TILELANG_CACHE_KEY: Final = "tilelang.cache.key"
"""str; TileLang compiles that looked into a cache."""

TILELANG_CODEGEN_NAME: Final = "tilelang.codegen.name"
"""str; codegen spans. The global function that generates the code, in full."""

TILELANG_BINARY_SIZE: Final = "tilelang.binary.size"
"""int, By; compilers that produced a file or a buffer."""

TVM_TARGET_KIND: Final = "tvm.target.kind"
"""str; when a target is known, e.g. ``llvm`` or ``cuda``."""

TVM_TARGET_ARCH: Final = "tvm.target.arch"
"""str; when the target names one, e.g. ``sm_80``."""

PROCESS_EXECUTABLE_NAME: Final = "process.executable.name"
"""str; compilers that run as a child process."""

PROCESS_PID: Final = "process.pid"
"""int; compilers that run as a child process, when it is known."""

PROCESS_EXIT_CODE: Final = "process.exit.code"
"""int; compilers that run as a child process."""

ERROR_TYPE: Final = "error.type"
"""str; failures. Qualified class name of the exception that was received."""

ERROR_TYPE_OTHER: Final = "_OTHER"
"""Value of ``error.type`` for a failure whose exception nobody saw."""

EXCEPTION_EVENT: Final = "exception"
"""Name of the event that carries an exception, on the deepest failed span."""

EXCEPTION_TYPE: Final = "exception.type"
"""str; exception events. Qualified class name."""

EXCEPTION_MESSAGE: Final = "exception.message"
"""str; exception events. Bounded, without source code or IR."""

EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
"""str; exception events. Files, lines and functions, without their source."""
