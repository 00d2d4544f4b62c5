"""``tilelang-otel run``: the program runs as under Python, and what it compiles is traced.

Most programs here record passes by hand, so that no compiler is needed: where
their spans go is the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.command import read_spans, run_command, run_python
from tests.support.receiver import PROTOCOLS, OTLPReceiver, Protocol, RefusingEndpoint
from tests.support.require import require_tvm
from tests.support.spans import outline

_IDENTITY = """\
import os, pickle, sys
import __main__

class Thing:
    pass

if __name__ == "__main__":
    print(sys.argv, __name__, __main__.__file__, __file__, __package__)
    print(sys.path[0], __spec__ and __spec__.name)
    print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, sys.modules["__main__"] is __main__)
    print(sys.stdin.read(), os.getcwd(), vars(__main__).keys())
"""

_COMPILE = """\
from tilelang_otel import OTelPassObserver
from tilelang_otel.events import PassEvent

def compile(name):
    observer = OTelPassObserver()
    observer.enter_pass_context()
    event = PassEvent(name, 0, 0, None, None)
    observer.pass_finished(None, event, observer.pass_started(None, event))
    observer.exit_pass_context()
"""

_TILELANG_OTEL = "tilelang-otel run: "


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that compiles what its arguments say, in a module beside it."""
    (tmp_path / "compiling.py").write_text(_COMPILE)
    path = tmp_path / "program.py"
    path.write_text(
        "import sys\n"
        "from compiling import compile\n"
        "print('the program says hello')\n"
        "for name in sys.argv[1:]:\n"
        "    compile(name)\n"
    )
    return path


def _said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what the command itself said, without its name."""
    lines = done.stderr.splitlines()
    return [line.removeprefix(_TILELANG_OTEL) for line in lines if line.startswith(_TILELANG_OTEL)]


# -- as under Python --------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [["identity.py"], ["./sub/identity.py"], ["-m", "identity"], ["-m", "sub.identity"], ["sub"]],
    ids=lambda program: " ".join(program),
)
def test_program_sees_what_it_would_see_under_python(program: list[str], tmp_path: Path) -> None:
    """Arguments, ``__main__``, ``__file__``, path and pickling are those of plain Python."""
    (tmp_path / "identity.py").write_text(_IDENTITY)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "identity.py").write_text(_IDENTITY)
    (tmp_path / "sub" / "__main__.py").write_text(_IDENTITY)
    arguments = [*program, "--output", "x", "-m", "y", "--", "-h"]
    plain = run_python(*arguments, cwd=tmp_path)
    traced = run_command("run", *arguments, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert (traced.returncode, traced.stdout) == (0, plain.stdout)


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(3)",
        "sys.exit()",
        "sys.exit('what a pity')",
        "raise ValueError('no good')",
        "raise ValueError('no good') from KeyError('why')",
        "def broken(",
        "os._exit(7)",
        "sys.excepthook = lambda *_: print('own hook', file=sys.stderr); 1 / 0",
        "import atexit; atexit.register(lambda: print('bye', file=sys.stderr))",
        "import threading; threading.Thread(target=lambda: 1 / 0).start()",
        "import warnings; warnings.warn('beware')",
    ],
)
def test_program_ends_as_under_python(ending: str, tmp_path: Path) -> None:
    """Exit codes, messages and tracebacks are those of plain Python, and nothing is in between."""
    (tmp_path / "ending.py").write_text(f"import os, sys\nprint('hello', flush=True)\n{ending}\n")
    plain = run_python("ending.py", cwd=tmp_path)
    traced = run_command("run", "ending.py", cwd=tmp_path)
    assert (traced.returncode, traced.stdout) == (plain.returncode, plain.stdout)
    lines = traced.stderr.splitlines()
    own = [line for line in lines if line.startswith(_TILELANG_OTEL)]
    rest = [line for line in lines if line not in own]
    # Threads are numbered, and so are not the same in both.
    assert [line.split(" (")[0] for line in rest] == [
        line.split(" (")[0] for line in plain.stderr.splitlines()
    ]


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", [["signalled.py"], ["-m", "signalled"]], ids=" ".join)
def test_program_dies_of_a_signal_as_under_python(
    number: signal.Signals, program: list[str], tmp_path: Path
) -> None:
    """Ctrl-C and a termination end the process by the signal, so that a shell sees it."""
    (tmp_path / "signalled.py").write_text(f"import os\nos.kill(os.getpid(), {number:d})\n")
    plain = run_python(*program, cwd=tmp_path)
    traced = run_command("run", *program, cwd=tmp_path)
    assert (plain.returncode, traced.returncode) == (-number, -number)
    assert traced.stderr.startswith(plain.stderr)


def test_sitecustomize_that_was_there_still_runs(tmp_path: Path) -> None:
    """Ours comes first, and does not take another's place."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('the other one')\n")
    (tmp_path / "program.py").write_text("import sitecustomize; print(sitecustomize.__file__)\n")
    done = run_command(
        "run",
        "program.py",
        cwd=tmp_path,
        environment={"PYTHONPATH": os.pathsep.join([str(other), str(Path(__file__).parents[2])])},
    )
    # Once in the command itself, and once in the program.
    path = str(other / "sitecustomize.py")
    assert done.stdout.splitlines() == ["the other one", "the other one", path]


def test_traceback_of_a_failed_compile_is_the_programs_own(tmp_path: Path) -> None:
    """What wraps TVM's functions is not to be seen in an uncaught exception."""
    require_tvm()
    (tmp_path / "failing.py").write_text(
        "import tvm\n"
        "@tvm.transform.module_pass(opt_level=0, name='Bad')\n"
        "def bad(mod, context):\n"
        "    raise ValueError('no good')\n"
        "@tvm.transform.module_pass(opt_level=0, name='Outer')\n"
        "def outer(mod, context):\n"
        "    return bad(mod)\n"
        "builder = tvm.relax.BlockBuilder()\n"
        "with builder.function('main', []):\n"
        "    builder.emit_func_output(tvm.relax.const(1))\n"
        "tvm.compile(builder.get(), 'llvm', relax_pipeline=outer)\n"
    )
    plain = run_python("failing.py", cwd=tmp_path)
    traced = run_command("run", "failing.py", cwd=tmp_path)
    assert (plain.returncode, traced.returncode) == (1, 1)
    assert "ValueError: no good" in plain.stderr
    assert traced.stderr.startswith(plain.stderr)
    assert outline(read_spans(tmp_path / "tilelang-otel.jsonl")) == [
        "compile main!",
        "  Outer!",
        "    Bad!*",
    ]


def test_program_that_does_not_compile_is_not_burdened(tmp_path: Path) -> None:
    """Neither a compiler nor the SDK nor rich is loaded before it is needed."""
    (tmp_path / "program.py").write_text(
        "import sys\n"
        "heavy = ('tvm', 'tilelang', 'opentelemetry.sdk', 'grpc', 'google.protobuf', 'rich')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    assert run_command("run", "program.py", cwd=tmp_path).stdout == "[]\n"


def test_checkout_that_is_not_installed_can_run_programs(program: Path) -> None:
    """The package need not be on the program's path, and does not get there."""
    program.write_text("import sys\nprint(sys.path)\n")
    root = Path(__file__).parents[2]
    plain = run_python(str(program), cwd=root, environment={"PYTHONPATH": ""})
    traced = run_python(
        *("-m", "tilelang_otel", "run", "--output", str(program.parent / "t.jsonl")),
        *(str(program),),
        cwd=root,
        environment={"PYTHONPATH": ""},
    )
    assert (traced.returncode, traced.stdout) == (0, plain.stdout)
    assert (
        traced.stderr
        == "tilelang-otel run: no trace was recorded: nothing was compiled, or it was not sampled\n"
    )


# -- what is not run --------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere.py"], "tilelang-otel run: there is no file nowhere.py"),
        (["--output", "no/such/folder/t.jsonl", "program.py"], "cannot write"),
        ([], "tilelang-otel run: what is to be run?"),
        (["-m"], "tilelang-otel run: what is to be run?"),
        (["--outputs", "x", "program.py"], "unrecognized arguments"),
    ],
    ids=["missing", "unwritable", "nothing", "no-module", "unknown"],
)
def test_program_that_cannot_be_run_as_asked_is_not_started(
    arguments: list[str], complaint: str, program: Path
) -> None:
    """The complaint says what is wrong, the exit code is 2, and nothing has run."""
    done = run_command("run", *arguments, cwd=program.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_script_is_complained_about_in_one_line(tmp_path: Path) -> None:
    """A typo costs one line."""
    done = run_command("run", "nowhere.py", "--flag", cwd=tmp_path)
    assert done.stderr.splitlines() == ["tilelang-otel run: there is no file nowhere.py"]


# -- where traces go --------------------------------------------------------------


def test_traces_are_in_a_file_and_shown_on_standard_error(program: Path) -> None:
    """Nothing needs to be set; the program's own output stays as it is."""
    done = run_command("run", "program.py", "A", cwd=program.parent)
    file = program.parent / "tilelang-otel.jsonl"
    assert (done.returncode, done.stdout) == (0, "the program says hello\n")
    assert outline(read_spans(file)) == ["PassContext", "  A"]
    assert [line.split()[0] for line in done.stderr.splitlines() if "─A" in line] == ["├─A"]
    assert _said(done) == [f"traces are in {file}: tilelang-otel show tilelang-otel.jsonl"]
    assert {span.resource["service.name"] for span in read_spans(file)} == {"program"}


def test_second_run_shows_only_its_own_traces(program: Path) -> None:
    """The file is appended to, and what was there before is not shown again."""
    run_command("run", "--output", "t.jsonl", "program.py", "First", cwd=program.parent)
    done = run_command("run", "--output", "t.jsonl", "program.py", "Second", cwd=program.parent)
    assert "Second" in done.stderr
    assert "First" not in done.stderr
    names = [span.name for span in read_spans(program.parent / "t.jsonl")]
    assert sorted(names) == ["First", "PassContext", "PassContext", "Second"]


def test_program_that_changes_directory_still_finds_its_file(program: Path) -> None:
    """The file is where the command was given."""
    elsewhere = program.parent / "elsewhere"
    elsewhere.mkdir()
    program.write_text(
        "from compiling import compile\nimport os\nos.chdir('elsewhere')\ncompile('A')\n"
    )
    done = run_command("run", "--output", "t.jsonl", "program.py", cwd=program.parent)
    assert outline(read_spans(program.parent / "t.jsonl")) == ["PassContext", "  A"]
    assert list(elsewhere.iterdir()) == []
    assert _said(done)[0].endswith("tilelang-otel show t.jsonl")


def test_default_file_that_cannot_be_written_goes_to_the_temporary_directory(
    program: Path, tmp_path: Path
) -> None:
    """A read-only directory costs no trace, and the program runs."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run_command(
        "run",
        "program.py",
        "A",
        cwd=program.parent,
        environment={
            "OTEL_PYTHON_TILELANG_FILE": str(tmp_path / "missing" / "t.jsonl"),
            "TMPDIR": str(temporary),
        },
    )
    assert done.returncode == 0
    assert outline(read_spans(temporary / "t.jsonl")) == ["PassContext", "  A"]


def test_program_that_compiles_nothing_leaves_no_file(program: Path) -> None:
    """There is one line, and that is all."""
    done = run_command("run", "program.py", cwd=program.parent)
    assert done.stderr.splitlines() == [
        "tilelang-otel run: no trace was recorded: nothing was compiled, or it was not sampled"
    ]
    assert not (program.parent / "tilelang-otel.jsonl").exists()


def test_many_traces_are_summed_up(program: Path) -> None:
    """A tuning run's hundreds of trees would help nobody."""
    done = run_command("run", "program.py", *"ABCDEFG", cwd=program.parent)
    assert len(read_spans(program.parent / "tilelang-otel.jsonl")) == 14
    assert sum(line.startswith("└─") for line in done.stderr.splitlines()) == 5
    assert "(2 more traces in it)" in done.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_exporter_in_the_environment_gets_the_traces(protocol: Protocol, program: Path) -> None:
    """Then there is no file and no tree, but the name of the place."""
    with OTLPReceiver(protocol) as receiver:
        done = run_command(
            "run", "program.py", "A", "B", cwd=program.parent, environment=receiver.environment()
        )
        assert outline(receiver.wait_for(4)) == ["PassContext", "  A", "PassContext", "  B"]
    path = "/v1/traces" if protocol == "http/protobuf" else ""
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"tilelang-otel run: traces are exported to {receiver.endpoint}{path}"
    ]
    assert not (program.parent / "tilelang-otel.jsonl").exists()


def test_output_is_written_beside_what_is_exported(program: Path) -> None:
    """Who asks for a file gets one."""
    with OTLPReceiver() as receiver:
        done = run_command(
            "run",
            "--output",
            "t.jsonl",
            "program.py",
            "A",
            cwd=program.parent,
            environment=receiver.environment(),
        )
        assert outline(receiver.wait_for(2)) == ["PassContext", "  A"]
    assert outline(read_spans(program.parent / "t.jsonl")) == ["PassContext", "  A"]
    assert [line.split(" ")[:3] for line in _said(done)] == [
        ["traces", "are", "in"],
        ["traces", "are", "exported"],
    ]


def test_receiver_that_is_down_changes_neither_output_nor_exit_code(program: Path) -> None:
    """The program ends as it would, and one line says what was lost."""
    program.write_text(program.read_text() + "sys.exit(5)\n")
    with RefusingEndpoint() as endpoint:
        done = run_command(
            "run", "program.py", "A", cwd=program.parent, environment=endpoint.environment("grpc")
        )
    assert (done.returncode, done.stdout) == (5, "the program says hello\n")
    assert "2 spans could not be delivered" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("environment", "remark"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED=true: nothing was traced"),
        ({"OTEL_TRACES_EXPORTER": "none"}, "OTEL_TRACES_EXPORTER=none: nothing was exported"),
    ],
    ids=["disabled", "none"],
)
def test_tracing_that_is_switched_off_is_said_to_be(
    environment: Mapping[str, str], remark: str, program: Path
) -> None:
    """Nobody has to wonder where the tree is."""
    done = run_command("run", "program.py", "A", cwd=program.parent, environment=environment)
    assert (done.returncode, _said(done)) == (0, [remark])
    assert not (program.parent / "tilelang-otel.jsonl").exists()


def test_provider_of_the_program_is_kept(program: Path) -> None:
    """A compile joins the program's own spans, in its own provider and in the file."""
    program.write_text(
        "from compiling import compile\n"
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "memory = InMemorySpanExporter()\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(memory))\n"
        "trace.set_tracer_provider(provider)\n"
        "with trace.get_tracer('app').start_as_current_span('request'):\n"
        "    compile('A')\n"
        "print([span.name for span in memory.get_finished_spans()])\n"
        "print(trace.get_tracer_provider() is provider)\n"
    )
    done = run_command("run", "program.py", cwd=program.parent)
    assert done.stdout.splitlines() == ["['A', 'PassContext', 'request']", "True"]
    assert outline(read_spans(program.parent / "tilelang-otel.jsonl")) == [
        "request",
        "  PassContext",
        "    A",
    ]
    assert "Overriding" not in done.stderr


# -- processes of the program ------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="needs fork")
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_workers_of_the_program_are_traced(method: str, program: Path) -> None:
    """However a process is started and killed; and only the program itself reports."""
    program.write_text(
        "import multiprocessing, sys\n"
        "from compiling import compile\n"
        "class Result:\n"
        "    pass\n"
        "def work(name):\n"
        "    compile(name)\n"
        "    return Result()\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    with context.Pool(2) as pool:\n"
        "        print([type(result) is Result for result in pool.map(work, 'AB')])\n"
        "    process = context.Process(target=work, args=('C',))\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    done = run_command("run", "program.py", cwd=program.parent)
    assert done.stdout == "[True, True]\n"
    names = [span.name for span in read_spans(program.parent / "tilelang-otel.jsonl")]
    assert sorted(names) == ["A", "B", "C", *["PassContext"] * 3]
    assert len(_said(done)) == 1


def test_another_python_that_the_program_starts_is_left_alone(program: Path) -> None:
    """The start-up hook does nothing where it does not belong."""
    program.write_text(
        "import json, os, subprocess, sys\n"
        "name = '_TILELANG_OTEL_RUN'\n"
        "content = {**json.loads(os.environ[name]), 'prefix': '/another'}\n"
        "code = 'import sys; print(\"tilelang_otel.instrumentor\" in sys.modules)'\n"
        "environment = {**os.environ, name: json.dumps(content)}\n"
        "subprocess.run([sys.executable, '-c', code], env=environment, check=True)\n"
    )
    assert run_command("run", "program.py", cwd=program.parent).stdout == "False\n"


def test_run_with_closed_output_runs_the_program(tmp_path: Path) -> None:
    """A program whose output nobody wants runs as under Python."""
    (tmp_path / "program.py").write_text("open('ran', 'w').close()\n", encoding="utf-8")
    done = run_python(
        "-c",
        "import os, sys; os.close(1); sys.stdout = None\n"
        "from tilelang_otel.cli import main; sys.exit(main(['run', 'program.py']))",
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("output", ["/dev/full", "."])
def test_run_refuses_an_output_that_is_no_file(output: str, tmp_path: Path) -> None:
    """A device has no end when it is read back for the tree."""
    (tmp_path / "program.py").write_text("", encoding="utf-8")
    done = run_command("run", "--output", output, "program.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("not a regular file")


def test_run_warns_once_about_a_wrong_variable(tmp_path: Path) -> None:
    """The command and the program look at the same variables, and only one of them speaks."""
    (tmp_path / "program.py").write_text("", encoding="utf-8")
    done = run_command(
        "run",
        "program.py",
        cwd=tmp_path,
        environment={"OTEL_PYTHON_TILELANG_PART_SPANS": "many", "OTEL_BSP_MAX_QUEUE_SIZE": "x"},
    )
    assert done.returncode == 0
    assert done.stderr.count("OTEL_PYTHON_TILELANG_PART_SPANS") == 1
    assert done.stderr.count("OTEL_BSP_MAX_QUEUE_SIZE") <= 1
