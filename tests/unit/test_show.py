"""``tilelang-otel show``: what it prints, on which stream, and its exit codes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.trace_files import error, line, span
from tilelang_otel.cli import main
from tilelang_otel.cli._drawing.tree import render_traces
from tilelang_otel.cli._traces.file import SpanReader
from tilelang_otel.cli._traces.tree import build_traces

_TRACE_ID = f"{1:032x}"


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """80 columns, and no wishes about colour."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


def _pass(
    number: int, name: str, start_ms: float, end_ms: float, parent: int, phase: str, **more: Any
) -> dict[str, Any]:
    attributes = {"tvm.pass.name": name, "tvm.pass.phase": phase}
    return span(number, name, start_ms, end_ms, parent=parent, attributes=attributes, **more)


def _failed_compile() -> bytes:
    """Return two lines: the compile of a kernel whose device compiler fails."""
    message = 'Compilation error:\nmain.cu(7): error: identifier "foo" is undefined'
    finished = line(
        _pass(2, "relax.FuseOps", 2, 10, 1, "relax"),
        _pass(3, "relax.Normalize", 3, 5, 2, "relax"),
        _pass(4, "tirx.Simplify", 10, 10.5, 1, "tirx"),
    )
    failed = line(
        span(
            6,
            "nvcc",
            14,
            50,
            parent=5,
            attributes={
                "process.executable.name": "nvcc",
                "process.exit.code": 1,
                "error.type": "RuntimeError",
            },
            **error("RuntimeError", message),
        ),
        span(
            5,
            "codegen cuda",
            12,
            50,
            parent=1,
            attributes={
                "tilelang.codegen.name": "target.build.cuda",
                "tvm.target.kind": "cuda",
                "error.type": "RuntimeError",
            },
            **error("RuntimeError", "failed in nvcc", is_origin=False),
        ),
        span(
            1,
            "compile matmul",
            0,
            51,
            attributes={
                "tilelang.kernel.name": "matmul",
                "tvm.target.kind": "cuda",
                "tvm.target.arch": "sm_80",
                "tilelang.execution_backend": "tvm_ffi",
                "tilelang.cache.result": "miss",
                "error.type": "RuntimeError",
            },
            **error("RuntimeError", "failed in nvcc", is_origin=False),
        ),
    )
    return finished + failed


_FAILED_COMPILE = """\
compile matmul  51.0 ms  6 spans  3 errors  service demo
trace 00000000000000000000000000000001  2023-11-14 22:13:20 UTC
nvcc 71%, relax passes 16%, (not traced) 9%, codegen cuda 4%
failed in nvcc: RuntimeError: Compilation error:
main.cu(7): error: identifier "foo" is undefined

                                             total ms  self ms  timeline
compile matmul cuda sm_80 tvm_ffi cache=miss    51.00           ████████████████
├─relax.FuseOps [relax]                          8.00     6.00  ▕██▏
│ └─relax.Normalize                              2.00     2.00  ▕▋
├─tirx.Simplify [tirx]                           0.50     0.50     ▏
├─codegen cuda                                  38.00     2.00     ▕███████████▋
│ └─nvcc exit code 1                            36.00    36.00      ▐██████████▋
│     RuntimeError: Compilation error:
│     main.cu(7): error: identifier "foo" is undefined
└─(not traced)                                   4.50           ▋  ▐           ▕

slowest by self time  count   self ms   share    max ms
nvcc                      1     36.00   70.6%     36.00  ███████████████████████
relax.FuseOps             1      6.00   11.8%      6.00  ████
(not traced)              1      4.50    8.8%      4.50  ███
codegen cuda              1      2.00    3.9%      2.00  █▍
relax.Normalize           1      2.00    3.9%      2.00  █▍
tirx.Simplify             1      0.50    1.0%      0.50  ▍
"""


def _file(path: Path, *parts: bytes) -> str:
    path.write_bytes(b"".join(parts))
    return str(path)


def _render(
    *spans: Mapping[str, Any], width: int = 80, encoding: str = "utf-8", **options: Any
) -> str:
    reader = SpanReader()
    reader.read_lines([line(*spans)], "t.jsonl")
    assert reader.problems == []
    buffer = io.BytesIO()
    out = io.TextIOWrapper(buffer, encoding=encoding, newline="\n")
    render_traces(build_traces(reader.spans), Console(file=out, width=width), **options)
    out.flush()
    return buffer.getvalue().decode(encoding)


def test_failed_compile_is_shown_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was compiled, what took the time, what failed and why, in 80 columns."""
    assert main(["show", _file(tmp_path / "t.jsonl", _failed_compile())]) == 0
    shown = capsys.readouterr()
    assert shown.out == _FAILED_COMPILE
    assert shown.err == ""
    assert max(map(len, shown.out.splitlines())) == 80


def test_truncated_file_is_shown_and_the_line_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cut costs what was cut off: the rest is shown, stderr says which line, the code is 1."""
    cut = line(_pass(7, "tirx.Late", 50, 51, 1, "tirx"))[:-40]
    file = _file(tmp_path / "t.jsonl", _failed_compile(), cut)
    assert main(["show", file]) == 1
    shown = capsys.readouterr()
    assert shown.out == _FAILED_COMPILE
    assert shown.err == f"tilelang-otel show: {file}:3: cut off after {len(cut)} bytes\n"


def test_many_damaged_lines_are_counted_not_all_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is no trace file at all does not flood the terminal."""
    file = _file(tmp_path / "t.jsonl", b"oops\n" * 1_000)
    assert main(["show", file]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == 12
    assert lines[10:] == [
        "tilelang-otel show: 990 more damaged lines",
        f"tilelang-otel show: no spans in {file}",
    ]


def test_missing_file_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong path is said once, without a traceback."""
    missing = str(tmp_path / "none.jsonl")
    assert main(["show", missing]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"tilelang-otel show: cannot read {missing}: No such file or directory\n"


def test_missing_file_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several files, those that are there are shown."""
    file = _file(tmp_path / "t.jsonl", _failed_compile())
    assert main(["show", str(tmp_path / "none.jsonl"), file]) == 2
    assert capsys.readouterr().out == _FAILED_COMPILE


def test_file_without_spans_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to show is told, not shown as success."""
    file = _file(tmp_path / "t.jsonl")
    assert main(["show", file]) == 1
    assert capsys.readouterr().err == f"tilelang-otel show: no spans in {file}\n"


def test_standard_input_is_read_for_a_dash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``-`` reads what is piped in, damage included."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(_failed_compile() + b"{\n")))
    assert main(["show", "-"]) == 1
    shown = capsys.readouterr()
    assert shown.out == _FAILED_COMPILE
    assert shown.err == "tilelang-otel show: <stdin>:3: cut off after 1 bytes\n"


def test_same_file_twice_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times are not doubled, and it is said that spans were left out."""
    file = _file(tmp_path / "t.jsonl", _failed_compile())
    assert main(["show", file, file]) == 0
    shown = capsys.readouterr()
    assert shown.out == _FAILED_COMPILE
    assert shown.err == "tilelang-otel show: 6 spans are there more than once and shown once\n"


def test_short_spans_are_hidden_counted_and_added_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What --min-duration leaves out is said; what is around something longer stays."""
    file = _file(tmp_path / "t.jsonl", _failed_compile())
    assert main(["show", file, "--min-duration", "5", "--top", "0"]) == 0
    tree = capsys.readouterr().out.split("\n\n")[1]
    assert (
        tree.rstrip("\n")
        == """\
                                             total ms  self ms  timeline
compile matmul cuda sm_80 tvm_ffi cache=miss    51.00           ████████████████
├─relax.FuseOps [relax]                          8.00     6.00  ▕██▏
└─codegen cuda                                  38.00     2.00     ▕███████████▋
  └─nvcc exit code 1                            36.00    36.00      ▐██████████▋
      RuntimeError: Compilation error:
      main.cu(7): error: identifier "foo" is undefined
2 spans shorter than 5 ms hidden, 2.5 ms in all"""
    )


def test_failed_span_is_never_hidden() -> None:
    """However short, what failed is shown, with what is around it."""
    shown = _render(
        span(1, "compile f", 0, 3),
        span(2, "outer", 0, 2, parent=1),
        span(3, "inner", 0, 1, parent=2, **error("ValueError", "no")),
        min_duration_ns=10_000_000,
    )
    assert [name in shown for name in ("compile f", "outer", "inner", "hidden")] == [
        True,
        True,
        True,
        False,
    ]


def _two_traces() -> bytes:
    return line(
        span(1, "compile a", 0, 1, trace=0xABC1 << 112),
        span(2, "compile b", 2, 4, trace=0xABD2 << 112),
        span(3, "link", 2, 3, parent=2, trace=0xABD2 << 112),
    )


def test_several_traces_begin_with_an_overview(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of many compiles says first which ones."""
    assert main(["show", _file(tmp_path / "t.jsonl", _two_traces())]) == 0
    assert (
        capsys.readouterr().out.split("\n\n")[0]
        == """\
2 traces
abc100000000  compile a         1.0 ms       1 span  no errors
abd200000000  compile b         2.0 ms      2 spans  no errors"""
    )


@pytest.mark.parametrize("wanted", ["abd2", "ABD2", "abd2" + "0" * 28])
def test_trace_is_chosen_by_the_beginning_of_its_id(
    wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the chosen trace is shown, and only its spans count among the slowest."""
    file = _file(tmp_path / "t.jsonl", _two_traces())
    assert main(["show", file, "--trace", wanted]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("compile b  2.0 ms  2 spans")
    assert "compile a" not in shown


def test_unknown_trace_lists_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped id is answered with the right ones."""
    file = _file(tmp_path / "t.jsonl", _two_traces())
    assert main(["show", file, "--trace", "ff"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "tilelang-otel show: no trace ff; there are:\n"
        f"  abc1{0:028x}  compile a\n"
        f"  abd2{0:028x}  compile b\n"
    )


def test_top_limits_the_names_and_says_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table shows N names and how much time the others took."""
    file = _file(tmp_path / "t.jsonl", _failed_compile())
    assert main(["show", file, "--top", "2"]) == 0
    table = capsys.readouterr().out.rsplit("\n\n", 1)[1]
    assert [row.split()[0] for row in table.splitlines()] == [
        "slowest",
        "nvcc",
        "relax.FuseOps",
        "4",
    ]
    assert table.endswith("4 more names, 17.6% of the time\n")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--top", "-1"], "'-1' is not a whole number from 0 on"),
        (["--min-duration", "short"], "'short' is not a number of milliseconds"),
        (["--min-duration", "nan"], "'nan' is not a number of milliseconds"),
    ],
)
def test_wrong_option_value_says_what_is_accepted(
    option: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usual answer to a wrong argument, with the value in it."""
    with pytest.raises(SystemExit) as stop:
        main(["show", "t.jsonl", *option])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_json_has_the_documented_structure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts get every number that people get, under names that stay."""
    file = _file(
        tmp_path / "t.jsonl",
        line(
            span(1, "compile f", 0, 10, parent=9, **error("E", "failed in A", is_origin=False)),
            span(
                2,
                "A",
                1,
                4,
                parent=1,
                attributes={"tvm.pass.name": "A", "error.type": "ValueError"},
                **error("ValueError", "no"),
            ),
            span(3, "B", 5, 5.5, parent=1),
        ),
        b"oops\n",
    )
    assert main(["show", file, "--json", "--min-duration", "1", "--top", "1"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "version": 1,
        "traces": [
            {
                "trace_id": _TRACE_ID,
                "name": "compile f",
                "service": "demo",
                "start_time_unix_nano": "1700000000000000000",
                "duration_ns": 10_000_000,
                "span_count": 3,
                "error_count": 2,
                "hidden_count": 1,
                "hidden_ns": 500_000,
                "spans": [
                    {
                        "span_id": f"{1:016x}",
                        "parent_span_id": f"{9:016x}",
                        "is_orphan": True,
                        "depth": 0,
                        "name": "compile f",
                        "kind": 1,
                        "is_container": True,
                        "offset_ns": 0,
                        "duration_ns": 10_000_000,
                        "self_ns": 6_500_000,
                        "attributes": {},
                        "error": {"type": "", "message": "failed in A"},
                    },
                    {
                        "span_id": f"{2:016x}",
                        "parent_span_id": f"{1:016x}",
                        "is_orphan": False,
                        "depth": 1,
                        "name": "A",
                        "kind": 1,
                        "is_container": False,
                        "offset_ns": 1_000_000,
                        "duration_ns": 3_000_000,
                        "self_ns": 3_000_000,
                        "attributes": {"tvm.pass.name": "A", "error.type": "ValueError"},
                        "error": {"type": "ValueError", "message": "no"},
                    },
                ],
            }
        ],
        "slowest": [
            {
                "name": "(not traced)",
                "count": 1,
                "self_ns": 6_500_000,
                "share": 0.65,
                "max_ns": 6_500_000,
                "error_count": 1,
            }
        ],
        "problems": [{"file": file, "line": 2, "message": "not JSON: Expecting value (column 1)"}],
    }


def test_output_that_is_no_terminal_has_no_escape_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log file stays readable."""
    main(["show", _file(tmp_path / "t.jsonl", _failed_compile())])
    assert "\x1b" not in capsys.readouterr().out


def test_forced_colour_shows_errors_in_red(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR colours a pipe too, and changes nothing but colour."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    main(["show", _file(tmp_path / "t.jsonl", _failed_compile())])
    shown = capsys.readouterr().out
    assert "\x1b[1;31mnvcc \x1b[0m" in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == _FAILED_COMPILE


def test_no_color_wins_over_forced_colour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR leaves bold and dim, and no colour."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    main(["show", _file(tmp_path / "t.jsonl", _failed_compile())])
    codes = re.findall(r"\x1b\[([0-9;]*)m", capsys.readouterr().out)
    assert {number for code in codes for number in code.split(";")} <= {"", "0", "1", "2"}


def test_ascii_output_is_ascii() -> None:
    """An output that knows only ASCII gets lines and bars made of it."""
    shown = _render(
        span(1, "compile f", 0, 10, **error("", "völlig")),
        span(2, "größe", 0, 0.2, parent=1),
        encoding="ascii",
    )
    assert (
        shown
        == """\
compile f  10.0 ms  2 spans  1 error  service demo
trace 00000000000000000000000000000001  2023-11-14 22:13:20 UTC
(not traced) 98%, gr??e 2%
failed in compile f: v?llig

                         total ms  self ms  timeline
compile f                   10.00           ####################################
| v?llig
|-gr??e                      0.20     0.20  #
`-(not traced)               9.80           .###################################

slowest by self time  count   self ms   share    max ms
(not traced)              1      9.80   98.0%      9.80  #######################
gr??e                     1      0.20    2.0%      0.20  #
"""
    )


def test_control_characters_reach_no_terminal() -> None:
    """A name cannot move the cursor, change colours or break a line."""
    shown = _render(span(1, "a\x1b[31m\nb\x00c\u202ed", 0, 1))
    assert "a?[31m b?c?d" in shown
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", shown)


def test_long_names_are_cut_in_the_middle() -> None:
    """Both ends of a name stay, and no line is longer than the terminal is wide."""
    name = "tirx.transform." + "Very" * 40 + "LongPass"
    shown = _render(span(1, "compile f", 0, 1), span(2, name, 0, 1, parent=1))
    (row,) = [row for row in shown.splitlines() if row.startswith("└─")]
    assert re.match(r"└─tirx\.transform\.\w+…\w+LongPass +1\.000 +1\.000  █+$", row)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("width", [20, 30, 40, 59, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """From a narrow split to a wide screen, lines fit."""
    shown = _render(
        span(1, "compile " + "x" * 90, 0, 1, **error("E", "word " * 90)),
        span(2, "名前" * 30, 0, 1, parent=1),
        span(3, "other root", 0, 1),
        width=width,
    )
    from rich.cells import cell_len

    assert max(map(cell_len, shown.splitlines())) <= width


def test_150_levels_are_shown_with_bounded_indentation() -> None:
    """However deep passes nest, each has a line in which its name can be read."""
    spans = [_pass(n, f"Pass{n}", n / 10, 400 - n / 10, n - 1, "tirx") for n in range(1, 151)]
    rows = _render(*spans, top=0).splitlines()
    tree = [row for row in rows if "└─" in row]
    assert re.findall(r"(Pass\d+) ", "\n".join(tree)) == [f"Pass{n}" for n in range(2, 151)]
    assert max(map(len, rows)) <= 80
    assert tree[-1].lstrip().startswith("└─(149) Pass150 ")


def test_20000_spans_have_a_line_each() -> None:
    """A big file is shown to its end."""
    spans = [span(1, "compile f", 0, 20_000)]
    spans += [span(n, f"Pass{n % 50}", n, n + 1, parent=1) for n in range(2, 20_001)]
    rows = _render(*spans).splitlines()
    assert sum(row.startswith("├─Pass") for row in rows) == 19_999
    assert rows[0] == "compile f  20.0 s  20,000 spans  no errors  service demo"


def test_gap_between_passes_inside_a_pass_is_its_own_time() -> None:
    """Only containers have time that nothing explains; a pass explains its own."""
    shown = _render(
        _pass(1, "FuseTIR", 0, 10, 0, "relax"), _pass(2, "Normalize", 4, 5, 1, "relax"), top=0
    )
    assert "not traced" not in shown
    assert re.search(r"^FuseTIR \[relax\] +10\.00 +9\.00", shown, re.MULTILINE)


def test_root_below_a_request_elsewhere_says_whose_child_it_is() -> None:
    """A compile inside somebody's request names the span to look for."""
    shown = _render(span(2, "compile f", 0, 1, parent=0xABC), top=0)
    assert f"its parent, span {0xABC:016x}, is not in the file" in shown


@pytest.mark.parametrize(
    ("error_type", "message", "line"),
    [
        ("tvm.error.InternalError", "InternalError: no", "tvm.error.InternalError: no"),
        ("AssertionError", "AssertionError", "AssertionError"),
        ("tvm.error.InternalError", "InternalError", "tvm.error.InternalError"),
    ],
)
def test_exception_type_is_said_once(error_type: str, message: str, line: str) -> None:
    """A message that begins with the type, or is nothing else, is not given it again."""
    shown = _render(
        span(
            1,
            "A",
            0,
            1,
            attributes={"error.type": error_type},
            **error("", message, is_origin=False),
        ),
        top=0,
    )
    assert f"\n  {line}\n" in shown


def test_failure_that_changed_its_type_on_the_way_is_told_at_both_ends() -> None:
    """Where an exception became another, both types are to be seen."""
    shown = _render(
        span(
            1,
            "compile f",
            0,
            2,
            attributes={"error.type": "RuntimeError"},
            **error("", "failed in A", is_origin=False),
        ),
        span(2, "A", 0, 1, parent=1, attributes={"error.type": "ValueError"}, **error("", "no")),
        top=0,
    )
    assert "│ RuntimeError: failed in A\n" in shown
    assert "ValueError: no\n" in shown
