"""Where crash records of dead processes are: in a directory, and in its dead runs' folders.

Each run of ``tilelang-otel run`` has a folder of its own there. While it lives, what is
in that is for it to recover; once it has died, for whoever comes first.
"""

from __future__ import annotations

from collections.abc import Generator

from tilelang_otel._crash._files import DeadFile, dead_files_in
from tilelang_otel._crash._run_folders import dead_runs, remove_if_empty

__all__ = ["dead_files", "remove_dead_runs"]


def dead_files(directory: str) -> Generator[DeadFile, None, None]:
    """Yield the files of dead processes, each locked until the next is asked for.

    Args:
        directory: Where to look, and in the folders of dead runs there; need not exist.
    """
    yield from dead_files_in(directory)
    for run in dead_runs(directory):
        yield from dead_files(str(run))


def remove_dead_runs(directory: str) -> None:
    """Remove the folders of dead runs that have no record in them. Never raises.

    Args:
        directory: Where to look; need not exist.
    """
    for run in dead_runs(directory):
        remove_dead_runs(str(run))
        remove_if_empty(run)
