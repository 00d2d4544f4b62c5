"""Running parts of a test in threads, without losing what they raise."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["in_threads"]


def in_threads(count: int, body: Callable[[int], None], timeout_s: float = 30.0) -> None:
    """Run ``body`` in threads named ``t0``, ``t1``, …, and wait for them.

    Args:
        count: How many threads.
        body: Called with the thread's number.
        timeout_s: How many seconds each may take.

    Raises:
        BaseException: The first thing that ``body`` raised in a thread.
    """
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            body(number)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,), name=f"t{n}") for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
        assert not thread.is_alive(), f"{thread.name} still runs after {timeout_s} s"
    if errors:
        raise errors[0]
