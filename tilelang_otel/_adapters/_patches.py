"""Putting wrappers on functions of other packages, and taking them off again.

Wraps, never replaces: other libraries may have wrapped the same function
before, or wrap ours later. Taking off restores what was there where our
wrapper is still on top, and leaves it in place, doing nothing, where it isn't.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import wrapt

from tilelang_otel._guard import guard

__all__ = ["Patches", "Wrapper"]

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]


if TYPE_CHECKING:
    _FunctionWrapper = wrapt.FunctionWrapper[..., Any]
else:
    _FunctionWrapper = wrapt.FunctionWrapper


class _Proxy(_FunctionWrapper):
    """A wrapper that is pickled and copied as the function would be: by its name.

    Programs hand a compiler's functions to other processes. What arrives there is
    the function as that process has it.
    """

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        wrapped: Any = self.__wrapped__
        return pkgutil.resolve_name, (f"{wrapped.__module__}:{wrapped.__qualname__}",)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__reduce_ex__(2)

    def __copy__(self) -> _Proxy:
        return self

    def __deepcopy__(self, memo: Any) -> _Proxy:
        return self


class Patches:
    """The wrappers of one adapter.

    Attributes:
        is_active: Whether the wrappers do anything.
    """

    def __init__(self) -> None:
        self.is_active = True
        self._undo: list[Callable[[], None]] = []

    def wrap(self, owner: Any, name: str, wrapper: Wrapper, *copies: str) -> None:
        """Wrap an attribute; does nothing where it doesn't exist.

        Args:
            owner: A module, a class, or the name of a loaded module.
            name: The attribute.
            wrapper: Called with the wrapped function, its instance and arguments.
            *copies: Loaded modules that hold the same function under the same
                name, because they imported it.
        """
        owner = sys.modules.get(owner) if isinstance(owner, str) else owner
        original = getattr(owner, name, None)
        if original is None:
            return
        proxy = _Proxy(_raw(owner, name), wrapper, enabled=lambda: self.is_active)
        self.put(owner, name, proxy)
        for copy in copies:
            module = sys.modules.get(copy)
            if module is not None and getattr(module, name, None) is original:
                self.put(module, name, proxy)

    def when_imported(self, module: str, then: Callable[[Any], None]) -> None:
        """Call ``then`` with a module, now or once the program imports it.

        Args:
            module: Its full name.
            then: What wraps something in it.
        """

        def hook(imported: Any) -> None:
            # A hook cannot be unregistered, so it may come from an earlier life.
            if self.is_active:
                with guard:
                    then(imported)

        wrapt.register_post_import_hook(hook, module)

    def put(self, owner: Any, name: str, replacement: Any) -> None:
        """Set an attribute, and remember how to take it back.

        Args:
            owner: A module or class.
            name: The attribute.
            replacement: Its new value, which leads to the old one.
        """
        before = _raw(owner, name)
        is_own = name in vars(owner)
        setattr(owner, name, replacement)

        def undo() -> None:
            if _raw(owner, name) is not replacement:
                return
            if is_own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

        self._undo.append(undo)

    def take_off(self) -> None:
        """Restore everything that is still ours to restore. Never raises."""
        self.is_active = False
        while self._undo:
            undo = self._undo.pop()
            with guard:
                undo()


def _raw(owner: Any, name: str) -> Any:
    """Return an attribute as it is stored, without binding it."""
    holders: tuple[Any, ...] = getattr(owner, "__mro__", (owner,))
    stored: Any = getattr(owner, name)
    for holder in holders:
        if name in vars(holder):
            return cast("Any", vars(holder)[name])
    return stored
