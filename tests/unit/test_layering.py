"""Who may import whom: a table, and what the code really does."""

from __future__ import annotations

import ast
import fnmatch
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tilelang_otel

_ROOT = Path(tilelang_otel.__file__).parent

_API = (
    "opentelemetry",
    "opentelemetry.baggage*",
    "opentelemetry.context*",
    "opentelemetry.metrics*",
    "opentelemetry.propagate",
    "opentelemetry.propagators*",
    "opentelemetry.trace*",
)
_SDK = (
    "opentelemetry.sdk*",
    "opentelemetry.exporter*",
    "opentelemetry.proto*",
    "opentelemetry.configuration",
    "opentelemetry._logs*",
    "opentelemetry.util*",
    "opentelemetry.environment_variables",
    "google.protobuf*",
    "grpc*",
    "requests*",
)


@dataclass(frozen=True)
class Row:
    """One line of the table: which modules, and what they may import beside the standard library.

    Modules of a row may import each other, and those of the rows named.
    """

    name: str
    modules: tuple[str, ...]
    rows: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


_TABLE = (
    Row("names", ("_death", "semconv", "environment_variables", "version")),
    Row("pure", ("_activity", "_courier", "_frames", "_interrupt", "_providers")),
    Row("settings", ("_config", "_options"), ("names",)),
    Row("variables", ("_otel", "_otel.*"), ("settings",)),
    Row("hygiene", ("_guard", "_scrub"), ("names", "pure", "settings"), _API),
    Row("events", ("events", "events.*"), ("pure",), ("tvm*", "tilelang*")),
    Row("crash record", ("_crash", "_crash.*"), ("names", "pure", "settings", "hygiene")),
    Row("policy", ("_folding", "_warmup"), ("names", "pure", "settings", "hygiene")),
    Row(
        "emission",
        ("_background", "_emission", "_host", "_metrics", "_spans", "_until_end"),
        ("names", "pure", "settings", "hygiene", "crash record", "policy"),
        _API,
    ),
    Row(
        "recording",
        (
            "observer",
            "_recorder",
            "_recording",
            "_scopes",
            "_context",
            "_routes",
            "_sigterm",
            "_sigterm.*",
            "_tree",
            "_watchdog",
        ),
        (
            *("names", "pure", "settings", "variables", "hygiene", "events"),
            *("crash record", "policy", "emission", "recovery"),
        ),
        _API,
    ),
    # Loaded when a process begins to record, if the SDK is there and it is asked for.
    Row(
        "recovery",
        ("_sdk.dead_spans", "_sdk.recovery"),
        ("names", "pure", "settings", "hygiene", "crash record", "emission"),
        (*_API, *_SDK),
    ),
    Row(
        "adapters",
        ("_adapters", "_adapters.*"),
        # The tool that TileLang finds by itself asks whether zero-code is on.
        ("names", "pure", "settings", "hygiene", "events", "recording", "instrumentor"),
        (*_API, "tvm*", "tilelang*", "wrapt"),
    ),
    Row(
        "instrumentor",
        ("instrumentor",),
        ("names", "settings", "hygiene", "recording", "adapters"),
        (*_API, "wrapt", "opentelemetry.instrumentation*"),
    ),
    Row(
        "provider",
        ("provider", "_otlp_file", "_sdk", "_sdk.*"),
        (
            *("names", "pure", "settings", "variables", "hygiene"),
            *("crash record", "emission", "recovery"),
        ),
        (*_API, *_SDK),
    ),
    Row(
        "commands",
        ("cli", "cli.*", "__main__"),
        (
            *("names", "pure", "settings", "variables", "hygiene", "crash record"),
            *("emission", "recovery", "recording", "instrumentor", "provider", "root"),
        ),
        (
            *(*_API, *_SDK, "opentelemetry.instrumentation*", "rich*", "numpy"),
            # The one that ours stands before.
            *("tvm*", "tilelang*", "torch", "sitecustomize"),
        ),
    ),
    Row("root", ("",), ("names",)),
)


@dataclass(frozen=True)
class Import:
    """One import, as the code says it."""

    importer: str
    line: int
    target: str


def _module_name(path: Path) -> str:
    parts = list(path.relative_to(_ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _row_of(module: str) -> Row | None:
    rows = [row for row in _TABLE if module in row.modules] or [
        row for row in _TABLE if any(fnmatch.fnmatchcase(module, m) for m in row.modules)
    ]
    assert len(rows) <= 1, f"{module} is in several rows: {[row.name for row in rows]}"
    return rows[0] if rows else None


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if _is_type_checking(child):
            assert isinstance(child, ast.If)
            for other in child.orelse:
                yield other
                yield from _walk(other)
            continue
        yield child
        yield from _walk(child)


def _imports(path: Path) -> Iterator[Import]:
    importer = _module_name(path)
    for node in _walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{importer}:{node.lineno}: write the import out in full"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = (_ROOT.parent / Path(*full.split("."))).with_suffix(".py").exists()
                is_package = (_ROOT.parent / Path(*full.split("."))).is_dir()
                yield Import(
                    importer, node.lineno, full if is_module or is_package else node.module
                )
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("importlib.import_module", "import_module")
            and isinstance(node.args[0], ast.Constant)
        ):
            yield Import(importer, node.lineno, str(node.args[0].value))


_FILES = sorted(_ROOT.rglob("*.py"))


def _problem(item: Import) -> str | None:
    row = _row_of(item.importer)
    assert row is not None
    where = f"{item.importer or 'tilelang_otel'}:{item.line} imports {item.target}"
    if item.target.split(".")[0] == "tilelang_otel":
        target = _row_of(item.target.removeprefix("tilelang_otel").lstrip("."))
        if target is None:
            return f"{where}, which is in no row"
        if target is row or target.name in row.rows:
            return None
        return f"{where}: row {row.name!r} may not import row {target.name!r}"
    if item.target.split(".")[0] in sys.stdlib_module_names:
        return None
    if any(fnmatch.fnmatchcase(item.target, pattern) for pattern in row.packages):
        return None
    return f"{where}: row {row.name!r} may import only {', '.join(row.packages) or 'nothing'}"


@pytest.mark.parametrize("path", _FILES, ids=lambda path: _module_name(path) or "tilelang_otel")
def test_module_imports_only_what_its_row_allows(path: Path) -> None:
    """Every module is in one row of the table, and imports nothing beyond it."""
    name = _module_name(path)
    assert _row_of(name) is not None, (
        f"{name} is in no row: add it to the one that it belongs to, in {__file__}"
    )
    problems = [problem for item in _imports(path) if (problem := _problem(item))]
    assert problems == []


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_package_import_loads_no_compiler_and_no_sdk() -> None:
    """Importing the package costs next to nothing beyond Python itself."""
    loaded = _loaded_by("import tilelang_otel")
    heavy = ("tvm", "tilelang", "opentelemetry", "rich", "wrapt", "google", "grpc", "numpy")
    assert sorted(name for name in loaded if name.split(".")[0] in heavy) == []
    assert sorted(name for name in loaded if name.startswith("tilelang_otel")) == [
        "tilelang_otel",
        "tilelang_otel.version",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "from tilelang_otel import OTelPassObserver",
        "from tilelang_otel import instrument, uninstrument, TVMInstrumentor; instrument()",
        "from tilelang_otel import TileLangInstrumentor; TileLangInstrumentor().instrument()",
        "from tilelang_otel.events import PassEventObserver, pass_phase",
        "from tilelang_otel import flush, configure",
    ],
)
def test_public_names_load_no_compiler_and_no_sdk(statement: str) -> None:
    """Only using a name that needs a compiler or the SDK loads one."""
    loaded = _loaded_by(statement)
    heavy = ("tvm", "tilelang", "rich", "numpy")
    assert sorted(name for name in loaded if name.split(".")[0] in heavy) == []
    assert not any(name.startswith("opentelemetry.sdk") for name in loaded)
