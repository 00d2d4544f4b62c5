"""TVM's side of the callbacks, without a compiler.

Calls them in the order, and from the places, that TVM does: an after-callback
is left out when a pass fails, and contexts exit their instruments in the order
in which they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from tilelang_otel.events import IncompletePass, PassEvent, PassEventObserver
from tilelang_otel.events._callbacks import PassCallbacks
from tilelang_otel.events._model import current_pass_phase

__all__ = ["Info", "Journal", "Module", "callbacks_for", "pass_context", "run", "sequence"]


class Info:
    """What TVM tells an instrument about a pass."""

    def __init__(self, name: str) -> None:
        self.name = name

    def same_as(self, other: object) -> bool:
        """Tell whether both stand for one object of TVM's."""
        return self is other


class Module:
    """A module with any number of functions.

    Args:
        *names: The functions' names.
    """

    def __init__(self, *names: str) -> None:
        self.functions = dict.fromkeys(names)

    def get_global_vars(self) -> list[Any]:
        """Return the functions' variables."""

        class Var:
            def __init__(self, name_hint: str) -> None:
                self.name_hint = name_hint

        return [Var(name) for name in self.functions]


class _Callbacks(Protocol):
    def enter(self) -> None: ...
    def exit(self) -> None: ...
    def before(self, mod: Any, info: Any) -> None: ...
    def after(self, mod: Any, info: Any) -> None: ...


def callbacks_for(observer: PassEventObserver, **options: Any) -> PassCallbacks:
    """Return callbacks with the defaults of the instrument.

    Args:
        observer: Who is told.
        **options: Other arguments of ``PassCallbacks``.
    """
    defaults: dict[str, Any] = {
        "capture_nested": True,
        "capture_predicate": None,
        "sequence_allocator": None,
        "phase_provider": current_pass_phase,
    }
    return PassCallbacks(observer, **{**defaults, **options})


@contextmanager
def pass_context(*instruments: _Callbacks) -> Generator[None, None, None]:
    """Enter and exit instruments as a pass context does: both in the given order."""
    for instrument in instruments:
        instrument.enter()
    try:
        yield
    finally:
        for instrument in instruments:
            instrument.exit()


def run(
    callbacks: _Callbacks, name: str, body: Callable[[], Any] | None = None, mod: Any = None
) -> None:
    """Run a pass; when ``body`` raises, there is no after-callback.

    Args:
        callbacks: Who is called.
        name: The pass's name.
        body: What the pass does.
        mod: The module it runs on.
    """
    info = Info(name)
    callbacks.before(mod, info)
    if body is not None:
        body()
    callbacks.after(mod, info)


def sequence(callbacks: _Callbacks, name: str, passes: Sequence[tuple[str, Any]]) -> None:
    """Run passes one after the other inside another, as TVM does from C++.

    Args:
        callbacks: Who is called.
        name: Name of the sequence.
        passes: Name and body of each.
    """
    whole = Info(name)
    callbacks.before(None, whole)
    for inner, body in passes:
        info = Info(inner)
        callbacks.before(None, info)
        if body is not None:
            body()
        callbacks.after(None, info)
    callbacks.after(None, whole)


class Journal(PassEventObserver):
    """An observer that writes down what it is told.

    Attributes:
        entries: What happened, each a tuple that starts with a word.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []

    def enter_pass_context(self) -> Any:
        """Write ``enter``."""
        self.entries.append(("enter",))

    def exit_pass_context(self) -> None:
        """Write ``exit``."""
        self.entries.append(("exit",))

    def pass_started(self, mod: Any, event: PassEvent) -> Any:
        """Write ``start``, name, sequence, depth and parent; the state is ``state of <name>``."""
        self.entries.append(
            ("start", event.name, event.sequence, event.depth, event.parent_sequence)
        )
        return f"state of {event.name}"

    def pass_finished(self, mod: Any, event: PassEvent, state: Any) -> None:
        """Write ``finish``, name and sequence."""
        assert state == f"state of {event.name}"
        self.entries.append(("finish", event.name, event.sequence))

    def passes_incomplete(
        self, passes: Sequence[IncompletePass], error: BaseException | None
    ) -> None:
        """Write ``incomplete``, the names, and the error."""
        self.entries.append(("incomplete", [p.name for p in passes], error))

    def callback_mismatch(self, actual: str, expected: str | None) -> None:
        """Write ``mismatch``, what came and what was open."""
        self.entries.append(("mismatch", actual, expected))

    def words(self) -> list[str]:
        """Return what happened, in short: ``+A`` start, ``-A`` finish, ``!A B`` incomplete."""
        short: list[str] = []
        for word, *rest in self.entries:
            if word == "start":
                short.append(f"+{rest[0]}")
            elif word == "finish":
                short.append(f"-{rest[0]}")
            elif word == "incomplete":
                short.append("!" + " ".join(rest[0]))
            elif word == "mismatch":
                short.append(f"?{rest[0]}/{rest[1]}")
            else:
                short.append(word)
        return short
