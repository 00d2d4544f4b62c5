"""Passes of TVM, wherever they run: our instrument in every pass context.

Explicit contexts get it as they are constructed, which no other instrument can
see. The default context of a thread gets it for the length of a call, since an
override there would last. The calls of passes are watched, so that a failure
is attributed when it happens and not when somebody notices.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, cast

from tilelang_otel._adapters._context_log import ContextObserver
from tilelang_otel._adapters._patches import Patches
from tilelang_otel._frames import is_running
from tilelang_otel._guard import guard
from tilelang_otel._interrupt import swallowed_interrupt
from tilelang_otel._recorder import Recorder
from tilelang_otel._scopes import CompileScope, is_with_statement
from tilelang_otel.events._entered import (
    drop_dead_frames,
    held,
    is_context_entered,
    muted,
    times_entered,
)
from tilelang_otel.observer import OTelPassObserver

__all__ = ["TVMPasses"]

_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]


class _Thread(threading.local):
    covered: Any = None
    """The default context that has our instrument for the length of a call."""
    covered_for: FrameType | None = None
    """The Python frame of that call; None when it cannot be told."""


class TVMPasses:
    """Wraps ``PassContext`` and ``Pass`` of ``tvm.ir.transform``.

    Args:
        recorder: Who records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._observer = ContextObserver(recorder)
        self._patches = Patches()
        self._instrument: Any = None
        self._transform: Any = None
        self._thread = _Thread()

    def put_on(self) -> None:
        """Wrap; raises on a TVM that lacks what is wrapped."""
        from tilelang_otel.events import StackedPassInstrument

        self._instrument = StackedPassInstrument(self._observer)
        self._transform = importlib.import_module("tvm.ir.transform")
        self._patches.wrap(self._transform.PassContext, "__init__", self._construct)
        self._patches.wrap(self._transform.PassContext, "override_instruments", self._override)
        self._patches.wrap(self._transform.PassContext, "__exit__", self._leave)
        call = self._transform.Pass.__call__
        self._patches.put(self._transform.Pass, "__call__", self._watched(call))
        self._recorder.cover = self.covered

    def take_off(self) -> None:
        """Restore everything; contexts that still hold the instrument record nothing."""
        self._observer.is_active = False
        self._recorder.cover = None
        self._patches.take_off()

    def _construct(
        self, wrapped: Callable[..., None], instance: Any, args: Any, kwargs: Any
    ) -> None:
        with guard:
            args, kwargs = self._with_instrument(args, kwargs)
        wrapped(*args, **kwargs)

    def _with_instrument(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Add our instrument to the arguments of a context, unless one like it is there."""
        # PassContext(opt_level, required_pass, disabled_pass, instruments, config)
        given = args[3] if len(args) > 3 else kwargs.get("instruments")
        try:
            instruments = list(given) if given else []
        except TypeError:
            return args, kwargs  # TVM will say what is wrong
        if not any(self._records_the_same(instrument) for instrument in instruments):
            instruments.append(self._instrument)
        if len(args) > 3:
            return (*args[:3], instruments, *args[4:]), kwargs
        return args, {**kwargs, "instruments": instruments}

    def _override(
        self, wrapped: Callable[..., None], instance: Any, args: Any, kwargs: Any
    ) -> None:
        """Let the program replace its own instruments, and leave ours where it is."""
        instruments: list[Any] | None = None
        with guard:
            if self._has_ours(instance) and not self._is_covered(instance):
                given = args[0] if args else kwargs.get("instruments")
                if isinstance(given, Iterable):
                    instruments = [*cast("Iterable[Any]", given), self._instrument]
        if instruments is None:
            wrapped(*args, **kwargs)
            return
        try:
            with held(self._observer):
                wrapped(instruments)
        finally:
            with guard:
                if not self._has_ours(instance):
                    # One of the program's hooks raised: TVM has forgotten them all.
                    self._instrument.exit_pass_ctx()

    def _leave(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        """See to it that our instrument leaves, even if one of the program's raises.

        TVM then calls no more hooks, and this thread would seem to be in the
        context for ever.
        """
        entered = 0
        try:
            with guard:
                if self._has_ours(instance):
                    entered = times_entered(self._observer)
        except BaseException:
            # A signal. The context has to be left all the same.
            wrapped(*args, **kwargs)
            raise
        try:
            return wrapped(*args, **kwargs)
        finally:
            with guard:
                self._leave_if_entered(entered)

    def _leave_if_entered(self, entered: int) -> None:
        """Do what TVM's exit hook should have done, if it was not called or was cut short."""
        if entered and times_entered(self._observer) == entered:
            self._instrument.exit_pass_ctx()

    def _has_ours(self, context: Any) -> bool:
        return any(self._instrument.same_as(other) for other in context.instruments)

    def _is_covered(self, context: Any) -> bool:
        covered = self._thread.covered
        return covered is not None and covered.same_as(context)

    def _records_the_same(self, instrument: Any) -> bool:
        observer = getattr(instrument, "observer", None)
        return isinstance(observer, ContextObserver | OTelPassObserver) and observer.shares(
            self._recorder
        )

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``Pass.__call__`` that sees whether the pass returns or raises.

        A plain function, since passes nest: each level may cost one Python frame
        and no more.
        """
        patches = self._patches

        @functools.wraps(original)
        def __call__(self_: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if not patches.is_active:
                return original(self_, *args, **kwargs)
            if not is_context_entered() or self._is_stale():
                with self.covered(None, _getframe()):
                    return original(self_, *args, **kwargs)
            try:
                return original(self_, *args, **kwargs)
            except BaseException as error:
                interrupt = self.failed(error)
                if interrupt is not None:
                    raise interrupt from None
                raise

        return __call__

    def failed(self, error: BaseException) -> KeyboardInterrupt | None:
        """Attribute ``error``, which has just been caught, to the passes that it ended.

        Returns:
            What to raise instead, where TVM swallowed a Ctrl-C.
        """
        interrupt = None
        with guard:
            interrupt = swallowed_interrupt(error)
            drop_dead_frames(_getframe(1), interrupt or error)
        return interrupt

    def _is_stale(self) -> bool:
        """Tell whether a signal has cut off the end of the call that a context was covered for.

        If so, do what was to be done then.
        """
        frame = self._thread.covered_for
        if frame is None or is_running(frame):
            return False
        with guard:
            self._uncover(self._thread.covered)
        return not is_context_entered()

    @contextmanager
    def covered(self, scope: CompileScope | None, caller: FrameType) -> Generator[None, None, None]:
        """See to it that the passes below are seen, whatever context they run in.

        TVM's default context has no instruments. One of the user's that was made
        before us and has instruments is left alone: to change its list would call
        their enter and exit hooks once more.

        Args:
            scope: The compile that the passes belong to, if it is known. One that
                is not recorded silences the contexts around it as well.
            caller: The Python frame for which that is.
        """
        with ExitStack() as stack:
            with guard:
                if scope is not None and scope.is_muted:
                    stack.enter_context(muted(self._observer))
                elif not is_context_entered() or self._is_stale():
                    self._recorder.drop_stale()
                    current = self._transform.PassContext.current()
                    if len(current.instruments) == 0:
                        self._thread.covered = current
                        self._thread.covered_for = caller if is_with_statement(caller) else None
                        stack.callback(self._uncover, current)
                        current.override_instruments([self._instrument])
            try:
                yield
            except BaseException as error:
                interrupt = self.failed(error)
                if interrupt is not None:
                    raise interrupt from None
                raise

    def _uncover(self, context: Any) -> None:
        """Take our instrument from a default context, unless the program has replaced it."""
        entered = times_entered(self._observer)
        try:
            with guard:
                self._take_ours_from(context)
        except BaseException:
            # A signal. Passes that run later in this context are not this call's.
            with guard:
                self._take_ours_from(context)
            raise
        finally:
            self._thread.covered = self._thread.covered_for = None
            with guard:
                self._leave_if_entered(entered)

    def _take_ours_from(self, context: Any) -> None:
        if self._has_ours(context):
            context.override_instruments([])
