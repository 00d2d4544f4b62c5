"""Names of spans, attributes and metrics, each with its type, unit and when it is set.

Names that OpenTelemetry defines keep its spelling; all others live under
``tvm.`` and ``tilelang.``. What the values are and where they come from is up
to the modules that set them.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CONTAINER_SPANS",
    "ERROR_TYPE",
    "ERROR_TYPE_OTHER",
    "ERROR_TYPE_PROCESS_DIED",
    "EXCEPTION_EVENT",
    "EXCEPTION_MESSAGE",
    "EXCEPTION_STACKTRACE",
    "EXCEPTION_TYPE",
    "METRIC_CACHE_LOOKUPS",
    "METRIC_COMPILE_ACTIVE",
    "METRIC_COMPILE_AFTER_WARMUP",
    "METRIC_COMPILE_DURATION",
    "METRIC_COMPILE_FAILURES",
    "METRIC_COMPILE_STALLS",
    "METRIC_OTHER",
    "METRIC_PASS_DURATION",
    "METRIC_TELEMETRY_DROPPED",
    "METRIC_TELEMETRY_DURATION",
    "PROCESS_EXECUTABLE_NAME",
    "PROCESS_EXIT_CODE",
    "PROCESS_PID",
    "SCHEMA_URL",
    "SCOPE_NAME",
    "SPAN_ADAPTER",
    "SPAN_AUTOTUNE",
    "SPAN_BENCHMARK",
    "SPAN_CACHE_KEY",
    "SPAN_CACHE_LOAD",
    "SPAN_CACHE_SAVE",
    "SPAN_CODEGEN",
    "SPAN_COMPILE",
    "SPAN_DEVICE",
    "SPAN_ELABORATE",
    "SPAN_EXPORT",
    "SPAN_HOST",
    "SPAN_LINK",
    "SPAN_LOAD",
    "SPAN_LOWER",
    "SPAN_NVRTC",
    "SPAN_PAR_COMPILE",
    "SPAN_PASS_CONTEXT",
    "STALL_EVENT",
    "THREAD_NAME",
    "TILELANG_BINARY_CACHE_RESULT",
    "TILELANG_BINARY_SIZE",
    "TILELANG_CACHE_COMPILE_DURATION",
    "TILELANG_CACHE_KEY",
    "TILELANG_CACHE_RESULT",
    "TILELANG_CODEGEN_NAME",
    "TILELANG_COMPILED_COUNT",
    "TILELANG_COMPILE_TRIGGER",
    "TILELANG_CONFIG_INDEX",
    "TILELANG_DROP_REASON",
    "TILELANG_EXECUTION_BACKEND",
    "TILELANG_FAILED_COUNT",
    "TILELANG_FOLDED_DURATIONS",
    "TILELANG_FOLDED_NAMES",
    "TILELANG_FOLDED_PASSES",
    "TILELANG_KERNEL_NAME",
    "TILELANG_KERNEL_SYMBOL",
    "TILELANG_PROCESS_SIGNAL",
    "TILELANG_STAGE",
    "TILELANG_STALL_DURATION",
    "TILELANG_WORK_NAME",
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
    "WORK_SPANS",
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

SPAN_HOST: Final = "host"
"""The pass context of a grouped compile that makes host code: a container."""

SPAN_DEVICE: Final = "device"
"""The pass context of a grouped compile that makes device code: a container."""

SPAN_ADAPTER: Final = "adapter"
"""Making a compiled kernel callable from Python: a container."""

SPAN_ELABORATE: Final = "elaborate"
"""Running a TileLang program's Python to get its kernel."""

SPAN_CACHE_KEY: Final = "cache key"
"""Computing under which key TileLang's kernel cache knows a kernel."""

SPAN_CACHE_LOAD: Final = "cache load"
"""Looking for a kernel in the disk cache, and loading it if it is there."""

SPAN_CACHE_SAVE: Final = "cache save"
"""Writing a compiled kernel to the disk cache."""

SPAN_EXPORT: Final = "export"
"""Writing a module as a library, for which a host compiler may run: a container."""

SPAN_LOAD: Final = "load"
"""Loading a compiled library into the process."""

SPAN_NVRTC: Final = "nvrtc"
"""CUDA's compiler, running in the process itself."""

SPAN_PAR_COMPILE: Final = "par_compile"
"""Root of kernels compiled side by side: a container."""

SPAN_AUTOTUNE: Final = "autotune"
"""Root of a tuning run, followed by the kernel: a container."""

SPAN_BENCHMARK: Final = "benchmark"
"""Running a tuned kernel to time it, followed by the kernel."""

SPAN_CODEGEN: Final = "codegen"
"""Code generation, followed by the kind of target."""

SPAN_LINK: Final = "link"
"""Putting generated modules together into an executable."""

CONTAINER_SPANS: Final = frozenset(
    {
        SPAN_COMPILE,
        SPAN_PASS_CONTEXT,
        SPAN_LOWER,
        SPAN_HOST,
        SPAN_DEVICE,
        SPAN_ADAPTER,
        SPAN_EXPORT,
        SPAN_PAR_COMPILE,
        SPAN_AUTOTUNE,
    }
)
"""Spans, alone or followed by a name, that say what was asked for: the time that
none of their children explains is nobody's work."""

WORK_SPANS: Final = frozenset(
    {
        SPAN_CODEGEN,
        SPAN_LINK,
        SPAN_LOAD,
        SPAN_NVRTC,
        SPAN_ELABORATE,
        SPAN_BENCHMARK,
        SPAN_CACHE_KEY,
        SPAN_CACHE_LOAD,
        SPAN_CACHE_SAVE,
    }
)
"""Spans, alone or followed by a name, that are work. So are passes and compilers,
which are called what they are called."""

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

TILELANG_KERNEL_SYMBOL: Final = "tilelang.kernel.symbol"
"""str; kernels that TileLang compiles in a group. The name with its ``_gc_<n>``."""

TILELANG_CONFIG_INDEX: Final = "tilelang.config.index"
"""int; pass contexts of a grouped compile. Which of the autotuner's configurations."""

TILELANG_COMPILED_COUNT: Final = "tilelang.compiled.count"
"""int; ``par_compile`` and ``autotune``. How many kernels were got."""

TILELANG_FAILED_COUNT: Final = "tilelang.failed.count"
"""int; ``par_compile`` and ``autotune``. How many kernels failed to compile."""

TILELANG_EXECUTION_BACKEND: Final = "tilelang.execution_backend"
"""str; TileLang compiles. How the kernel is called, e.g. ``tvm_ffi``."""

TILELANG_STAGE: Final = "tilelang.stage"
"""str; pass contexts of a TileLang compile, e.g. ``jit-lower``."""

TILELANG_CACHE_RESULT: Final = "tilelang.cache.result"
"""str; TileLang compiles: ``memory``, ``disk``, ``miss`` or ``disabled``."""

TILELANG_CACHE_KEY: Final = "tilelang.cache.key"
"""str; TileLang compiles that looked into a cache."""

TILELANG_CACHE_COMPILE_DURATION: Final = "tilelang.cache.compile_duration"
"""float, s; cache hits, when it is known how long the kernel once took to compile."""

TILELANG_FOLDED_PASSES: Final = "tilelang.folded.passes"
"""int; compiles whose passes have no spans of their own. How many there were."""

TILELANG_FOLDED_NAMES: Final = "tilelang.folded.names"
"""str[]; with the above. What took longest, the costliest first."""

TILELANG_FOLDED_DURATIONS: Final = "tilelang.folded.durations"
"""float[], s; with the above, in the same order. How long each took, all of its runs
together, less what was inside it."""

TILELANG_COMPILE_TRIGGER: Final = "tilelang.compile.trigger"
"""str; compiles after ``mark_warmup_done()`` that no cache answered: ``runtime``."""

TILELANG_BINARY_CACHE_RESULT: Final = "tilelang.binary_cache.result"
"""str; code generation that looked for a compiled device binary: ``hit``, which
needs no device compiler, or ``miss``."""

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
"""int; compilers that run as a child process; the compile, and the deepest of what was
running, when the process left without its exit handlers and the code is known."""

ERROR_TYPE: Final = "error.type"
"""str; failures. Qualified class name of the exception that was received."""

ERROR_TYPE_OTHER: Final = "_OTHER"
"""Value of ``error.type`` for a failure whose exception nobody saw."""

ERROR_TYPE_PROCESS_DIED: Final = "process_died"
"""Value of ``error.type`` for what was running when the process died."""

TILELANG_PROCESS_SIGNAL: Final = "tilelang.process.signal"
"""str; the compile, and the deepest of what was running, when the process died of a
signal that is known, e.g. ``SIGKILL``."""

EXCEPTION_EVENT: Final = "exception"
"""Name of the event that carries an exception, on the deepest failed span."""

EXCEPTION_TYPE: Final = "exception.type"
"""str; exception events. Qualified class name."""

EXCEPTION_MESSAGE: Final = "exception.message"
"""str; exception events. Bounded, without source code or IR."""

EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
"""str; exception events. Files, lines and functions, without their source."""

STALL_EVENT: Final = "tilelang.stall"
"""Name of the event, on a compile's span, for what has been running for longer than the
limit: ``tvm.pass.name`` or ``tilelang.work.name``, and the two below."""

TILELANG_STALL_DURATION: Final = "tilelang.stall.duration"
"""float, s; stall events. For how long it had been running."""

THREAD_NAME: Final = "thread.name"
"""str; stall events."""

# -- metrics -----------------------------------------------------------------------------
#
# Attributes are those of the spans, where they are known. Names that a program makes up
# are told apart up to a limit in each process: the first 100 kernels, 512 passes, 64
# phases and exceptions; what comes later counts as ``other`` (exceptions: ``_OTHER``).

METRIC_OTHER: Final = "other"
"""Value of an attribute of metrics beyond the limit."""

METRIC_PASS_DURATION: Final = "tvm.pass.duration"
"""Histogram, s. Passes, with what ran inside them: ``tvm.pass.name``, ``tvm.pass.phase``,
``error.type``."""

METRIC_COMPILE_DURATION: Final = "tilelang.compile.duration"
"""Histogram, s. Whole compiles, cache hits among them: ``tilelang.kernel.name``,
``tvm.target.kind``, ``tilelang.execution_backend``, ``tilelang.cache.result``,
``tilelang.compile.trigger``, ``error.type``."""

METRIC_COMPILE_ACTIVE: Final = "tilelang.compile.active"
"""UpDownCounter, {compile}. Compiles that are running."""

METRIC_COMPILE_FAILURES: Final = "tilelang.compile.failures"
"""Counter, {compile}. Compiles that failed: ``error.type``, ``tilelang.kernel.name``."""

METRIC_COMPILE_STALLS: Final = "tilelang.compile.stalls"
"""Counter, {stall}. Work that has been running for longer than the limit, counted while it
runs, once: ``tvm.pass.name``, or ``tilelang.work.name`` for what is no pass."""

METRIC_COMPILE_AFTER_WARMUP: Final = "tilelang.compile.after_warmup"
"""Counter, {compile}. Compiles after ``mark_warmup_done()`` that no cache answered:
``tilelang.kernel.name``, ``tvm.target.kind``, ``tilelang.cache.result``."""

METRIC_CACHE_LOOKUPS: Final = "tilelang.cache.lookups"
"""Counter, {lookup}. Answers of the kernel cache: ``tilelang.cache.result`` (``memory``,
``disk``, ``miss``; a disabled cache is not asked)."""

METRIC_TELEMETRY_DURATION: Final = "tilelang.telemetry.duration"
"""Histogram, s. What telemetry took of each compile's thread, callbacks of passes aside."""

METRIC_TELEMETRY_DROPPED: Final = "tilelang.telemetry.dropped"
"""Observable counter, {span}. Spans that were lost on their way out of the process, where
``configure()`` made that way: ``tilelang.drop.reason``."""

TILELANG_WORK_NAME: Final = "tilelang.work.name"
"""str; stalls of work that is no pass. Its span's name, e.g. ``codegen cuda``."""

TILELANG_DROP_REASON: Final = "tilelang.drop.reason"
"""str; dropped spans: ``export_failed``, ``queue_full`` (of an exporter) or
``backlog_full`` (of compiles whose spans are yet to be made)."""
