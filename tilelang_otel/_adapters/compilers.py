"""Device and host compilers that run as child processes: nvcc, hipcc, g++.

They are where most of a kernel's compile time goes. The modules that start
them get a ``subprocess`` of their own that records; the real one, which the
rest of the program uses, is not touched. Command lines are not recorded: they
may hold paths and definitions that are nobody's business.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, cast

import wrapt

from tilelang_otel import semconv
from tilelang_otel._adapters._patches import Patches
from tilelang_otel._frames import Failure
from tilelang_otel._guard import guard
from tilelang_otel._recorder import Recorder
from tilelang_otel._scopes import Work
from tilelang_otel._scrub import complaints

__all__ = ["Compilers"]

_MODULES = (
    "tilelang.contrib.nvcc",
    "tilelang.contrib.hipcc",
    "tilelang.contrib.rocm",
    "tilelang.contrib.bisheng",
    "tilelang.contrib.cc",
    "tilelang.jit.adapter.libgen",
    "tilelang.jit.adapter.cutedsl.libgen",
    "tvm.contrib.cc",
    "tvm.contrib.nvcc",
    "tvm.contrib.hipcc",
    "tvm.support.nvcc",
    "tvm.support.rocm",
)
"""Where compilers are started from, each through its own name ``subprocess``."""

_NVRTC = "tilelang.contrib.nvrtc"
_NVRTC_USER = "tilelang.jit.adapter.nvrtc.libgen"
"""Holds NVRTC's function by a name of its own."""


_FAILED = "CompilerError"
"""``error.type`` of a compiler that ended with an exit code other than 0: no
exception says so, only what its caller makes of it."""


class Compilers:
    """Records the compilers that TVM and TileLang start.

    Args:
        recorder: Who records.
        package: Whose modules to see to: ``tvm`` or ``tilelang``.
    """

    def __init__(self, recorder: Recorder, package: str) -> None:
        self._recorder = recorder
        self._package = package
        self._patches = Patches()

    def put_on(self) -> None:
        """Give each module its recording ``subprocess``, now or once it is imported."""
        for name in (*_MODULES, _NVRTC_USER):
            if name.partition(".")[0] == self._package:
                self._patches.when_imported(name, self._imported)

    def _imported(self, module: Any) -> None:
        if module.__name__ == _NVRTC_USER:
            self._patches.wrap(_NVRTC, "compile_cuda", self._in_process, _NVRTC_USER)
        elif getattr(module, "subprocess", None) is subprocess:
            proxy = _Subprocess(subprocess, self._recorder, self._patches)
            self._patches.put(module, "subprocess", proxy)

    def take_off(self) -> None:
        """Restore everything."""
        self._patches.take_off()

    def _in_process(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        with self._recorder.work(lambda: (semconv.SPAN_NVRTC, {})) as work:
            binary = wrapped(*args, **kwargs)
            with guard:
                work.set_attribute(semconv.TILELANG_BINARY_SIZE, len(binary))
            return binary


class _Subprocess(wrapt.ObjectProxy):  # pyright: ignore[reportMissingTypeArgument,reportUntypedBaseClass]
    """The ``subprocess`` module, whose children are recorded within a compile."""

    def __init__(self, wrapped: Any, recorder: Recorder, patches: Patches) -> None:
        super().__init__(wrapped)  # pyright: ignore[reportUnknownMemberType]
        self._self_recorder = recorder
        self._self_patches = patches

    def run(self, args: Any, *more: Any, **options: Any) -> Any:
        """Run a program to its end, as ``subprocess.run`` does."""
        real: Any = subprocess.run
        if not self._self_patches.is_active:
            return real(args, *more, **options)
        with self._self_recorder.work(lambda: _program_of(args), is_client=True) as work:
            done: Any = real(args, *more, **options)
            with guard:
                _finish(work, args, done.returncode, done.stdout or done.stderr)
            return done

    @property
    def Popen(self) -> Any:  # noqa: N802 - subprocess's name
        """What starts a program, as ``subprocess.Popen`` does."""
        running = self._self_recorder.current()
        if not self._self_patches.is_active or running is None or running.is_muted:
            return subprocess.Popen
        recorder = self._self_recorder
        return lambda *args, **options: _Process(*args, recorder=recorder, **options)  # pyright: ignore


class _Process(subprocess.Popen[Any]):
    """A compiler that is running: its span ends when somebody has waited for it."""

    _is_communicating = False
    _killed = False

    def __init__(self, args: Any, *more: Any, recorder: Recorder, **options: Any) -> None:
        self._work: Work | None = recorder.work(lambda: _program_of(args), is_client=True)
        self._work.__enter__()
        try:
            super().__init__(args, *more, **options)
        except BaseException as error:
            self._end(error, None)
            raise
        self._work.set_attribute(semconv.PROCESS_PID, self.pid)

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        # To communicate waits as well, and has the output only afterwards.
        if not self._is_communicating:
            self._end(None, None)
        return code

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        self._is_communicating = True
        try:
            output = super().communicate(input, timeout)
        finally:
            self._is_communicating = False
        self._end(None, output[0] or output[1])
        return output

    def kill(self) -> None:
        super().kill()
        self._killed = True

    def _end(self, error: BaseException | None, output: Any) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        with guard:
            if error is None:
                _finish(work, self.args, self.returncode, output)
            if self._killed:
                work.fail(TimeoutError("the compiler took too long and was killed"))
        work.__exit__(type(error) if error else None, error, None)


def _program_of(args: Any) -> tuple[str, dict[str, Any]]:
    command = _words(args)
    name = os.path.basename(command[0]) if command else "(unknown)"
    return name, {semconv.PROCESS_EXECUTABLE_NAME: name}


def _finish(work: Work, args: Any, code: int | None, output: Any) -> None:
    if code is None:
        return
    work.set_attribute(semconv.PROCESS_EXIT_CODE, code)
    if code != 0:
        work.fail(Failure(_FAILED, _complaint(code, output)))
        return
    words = _words(args)
    if "-o" in words[:-1]:
        path = words[words.index("-o") + 1]
        if os.path.isfile(path):
            work.set_attribute(semconv.TILELANG_BINARY_SIZE, os.path.getsize(path))


def _complaint(code: int, output: Any) -> str:
    """Say what a compiler said, without the source that it quotes."""
    text = output.decode("utf-8", "replace") if isinstance(output, bytes) else str(output or "")
    return "\n".join([f"exit code {code}", *complaints(text)])


def _words(args: Any) -> list[str]:
    if isinstance(args, str | bytes | os.PathLike):
        return [os.fsdecode(args)]  # pyright: ignore[reportUnknownArgumentType]
    return [os.fsdecode(word) for word in cast("Sequence[Any]", args)]
