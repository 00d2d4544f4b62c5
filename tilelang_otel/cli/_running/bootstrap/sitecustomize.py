"""Python imports this before the program that ``tilelang-otel run`` has started.

Owns nothing but handing over: tracing is set up by ``_running.traced_program``, and a
``sitecustomize`` that was there before gets its turn. Other Pythons that the
program starts come by here too, so this has to be quiet there, and to do
without the rest of the package.
"""

# No future import: this is read by whatever Python the program may start.
import importlib
import json
import os
import sys


def _hand_over():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    content = json.loads(os.environ.get("_TILELANG_OTEL_RUN") or "{}")
    if content.get("prefix") != sys.prefix:
        return
    # For this import alone: the package may have been found beside the command.
    sys.path.append(content["root"])
    try:
        program = importlib.import_module("tilelang_otel.cli._running.traced_program")
    finally:
        sys.path.remove(content["root"])
    program.start(content)


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


try:
    _hand_over()
except Exception as error:  # noqa: BLE001 - the program runs whatever becomes of its traces
    if sys.stderr is not None:
        sys.stderr.write("tilelang-otel run: nothing is traced: %r\n" % error)  # noqa: UP031
_import_the_next()
