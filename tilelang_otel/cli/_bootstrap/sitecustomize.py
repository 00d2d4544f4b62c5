"""Python imports this before the program that ``tilelang-otel run`` has started.

Owns nothing but handing over: tracing is set up by ``_traced_program``, and a
``sitecustomize`` that was there before gets its turn. Other Pythons that the
program starts come by here too, so this has to be quiet, and to do without the
rest of the package.
"""

# No future import: this is read by whatever Python the program may start.
import importlib
import os
import sys


def _hand_over():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    try:
        from tilelang_otel.cli._traced_program import start
    except Exception:  # noqa: BLE001 - another Python, or another environment
        return
    start()


def _import_the_next():
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # Python's import of this module still needs an entry.
        sys.modules.setdefault("sitecustomize", ours)


_hand_over()
_import_the_next()
