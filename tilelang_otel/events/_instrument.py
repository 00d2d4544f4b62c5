"""``StackedPassInstrument``: the callbacks as an instrument that TVM accepts.

The only part of the event API that needs TVM, so it alone imports it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import importlib.util
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from tilelang_otel.events._callbacks import PassCallbacks
from tilelang_otel.events._entered import active_callbacks, is_context_entered
from tilelang_otel.events._model import (
    CapturePredicate,
    IncompletePass,
    PassEvent,
    PassEventObserver,
    SequenceAllocator,
    current_pass_phase,
)

if importlib.util.find_spec("tvm") is None and importlib.util.find_spec("tilelang") is not None:
    import tilelang  # noqa: F401  # pyright: ignore  # it puts the TVM that it ships on the path

# TVM has no types, and what it gets from its registry no checker can see.
_ffi: Any = importlib.import_module("tvm.ir._ffi_instrument_api")
_tvm_instrument: Any = importlib.import_module("tvm.ir.instrument")

_PassInfo: Any = importlib.import_module("tvm.ir.transform").PassInfo

__all__ = ["StackedPassInstrument", "active_stacked_pass_instruments"]

_getframe = sys._getframe  # pyright: ignore[reportPrivateUsage]

if TYPE_CHECKING:
    _Base = object
else:
    _Base = _tvm_instrument.PassInstrument


class StackedPassInstrument(_Base):
    """Pair nested TVM pass callbacks and dispatch normalized events.

    May be active in several threads at once, and entered again while it is
    active: each entry has its own frames and numbering.

    Args:
        observer: Consumer that snapshots and records the pass-specific data.
        capture_nested: When false, nested callbacks are still tracked for correct
            pairing, but only depth-zero passes are emitted to the observer.
        capture_predicate: Optional finer-grained predicate receiving
            ``(name, depth)``, applied after ``capture_nested`` filtering.
        sequence_allocator: Optional allocator for consumers that need sequence
            numbers shared across pass contexts. Without one, numbering restarts
            at zero whenever this instrument enters a context.
        phase_provider: Supplies the phase attached to each event. Defaults to
            :func:`current_pass_phase`.
    """

    # TVM's objects have neither by default.
    __slots__ = ("__dict__", "__weakref__")

    def __init__(
        self,
        observer: PassEventObserver,
        *,
        capture_nested: bool = True,
        capture_predicate: CapturePredicate | None = None,
        sequence_allocator: SequenceAllocator | None = None,
        phase_provider: Callable[[], str | None] = current_pass_phase,
    ) -> None:
        self._bind(
            PassCallbacks(
                observer, capture_nested, capture_predicate, sequence_allocator, phase_provider
            )
        )

    def _bind(self, callbacks: PassCallbacks) -> None:
        self._callbacks = callbacks
        cls = type(self)

        def hook(name: str, method: Callable[..., None]) -> Callable[..., None] | None:
            overridden = getattr(cls, name) is not getattr(StackedPassInstrument, name, None)
            # A subclass's own method has to be called as one, although TVM then
            # keeps the instrument alive for as long as the context that holds it.
            return getattr(self, name) if overridden else method

        self.__init_handle_by_constructor__(  # pyright: ignore
            _ffi.PassInstrument,
            cls.__name__,
            hook("enter_pass_ctx", callbacks.enter),
            hook("exit_pass_ctx", callbacks.exit),
            # TVM calls a hook that is None not at all.
            None if cls.should_run is _Base.should_run else self.should_run,  # pyright: ignore
            hook("run_before_pass", callbacks.before),
            hook("run_after_pass", callbacks.after),
        )
        callbacks.instrument = weakref.ref(self)

    @property
    def observer(self) -> PassEventObserver:
        """Consumer of the events."""
        return self._callbacks.observer

    @observer.setter
    def observer(self, observer: PassEventObserver) -> None:
        self._callbacks.observer = observer

    @property
    def capture_nested(self) -> bool:
        """Whether passes below depth zero are emitted."""
        return self._callbacks.capture_nested

    @capture_nested.setter
    def capture_nested(self, value: bool) -> None:
        self._callbacks.capture_nested = value

    @property
    def capture_predicate(self) -> CapturePredicate | None:
        """Finer-grained filter on name and depth."""
        return self._callbacks.capture_predicate

    @capture_predicate.setter
    def capture_predicate(self, value: CapturePredicate | None) -> None:
        self._callbacks.capture_predicate = value

    @property
    def sequence_allocator(self) -> SequenceAllocator | None:
        """Where sequence numbers come from, if not from the context."""
        return self._callbacks.sequence_allocator

    @sequence_allocator.setter
    def sequence_allocator(self, value: SequenceAllocator | None) -> None:
        self._callbacks.sequence_allocator = value

    @property
    def phase_provider(self) -> Callable[[], str | None]:
        """Supplies the phase of a starting pass."""
        return self._callbacks.phase_provider

    @phase_provider.setter
    def phase_provider(self, value: Callable[[], str | None]) -> None:
        self._callbacks.phase_provider = value

    @property
    def pending_events(self) -> tuple[PassEvent, ...]:
        """Return currently open observed events of this thread, outermost first."""
        return self._callbacks.pending_events()

    def enter_pass_ctx(self) -> None:
        """Begin a context on this thread; TVM calls it on entry."""
        self._callbacks.enter()

    def exit_pass_ctx(self) -> None:
        """Abort what is open in the innermost context of this thread, and end it."""
        self._callbacks.exit()

    def run_before_pass(self, mod: Any, info: Any) -> None:
        """Open a frame for a pass that starts.

        Args:
            mod: The module that the pass runs on.
            info: Anything with a ``name``.
        """
        self._callbacks.started(mod, info, _pass_caller(info, _getframe(1)))

    def run_after_pass(self, mod: Any, info: Any) -> None:
        """Close the frame of a pass that has finished.

        Args:
            mod: The module that the pass has produced.
            info: Anything with a ``name``.
        """
        self._callbacks.finished(mod, info, _pass_caller(info, _getframe(1)))

    def abort(self, error: BaseException | None = None) -> tuple[IncompletePass, ...]:
        """Drain open frames and notify the observer of incomplete passes.

        Args:
            error: What ended them, if known.

        Returns:
            The drained passes of this thread's innermost context, outermost
            first: the deepest, nearest to the original failure, is the last.
        """
        return self._callbacks.abort(error)


def active_stacked_pass_instruments() -> tuple[StackedPassInstrument, ...]:
    """Return the stacked instruments that are active on this thread, outermost first.

    Instruments leave when their own context is left, whichever way round TVM
    calls their exits (it does so in registration order).

    Returns:
        The instruments. One that its creator did not keep is stood in for by an
        equal one: same observer, options and open frames.
    """
    return tuple(_instrument_of(callbacks) for callbacks in active_callbacks())


def _pass_caller(info: Any, frame: FrameType | None) -> FrameType | None:
    """Return the Python frame that called a pass, where a subclass's hook called ours.

    Args:
        info: What the hook was given. Only TVM gives one of its own; other callers
            may call from anywhere, which tells nothing.
        frame: What called our hook.
    """
    if not isinstance(info, _PassInfo):
        return None
    while frame is not None and frame.f_code.co_name in ("run_before_pass", "run_after_pass"):
        frame = frame.f_back
    return frame


def _instrument_of(callbacks: PassCallbacks) -> StackedPassInstrument:
    instrument = callbacks.instrument()
    if instrument is None:
        instrument = StackedPassInstrument.__new__(StackedPassInstrument)
        instrument._bind(callbacks)  # pyright: ignore[reportPrivateUsage]
    return instrument


def _outlive_python() -> None:
    """Let nothing of ours that TVM still holds be freed when Python is gone.

    A context that was entered and never left is freed with the main thread, after
    the interpreter: to free a Python callback then ends the process with a
    segmentation fault.
    """
    with contextlib.suppress(Exception):
        if is_context_entered():
            transform: Any = importlib.import_module("tvm.ir.transform")
            for instrument in transform.PassContext.current().instruments:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(instrument))


atexit.register(_outlive_python)
