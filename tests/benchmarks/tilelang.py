"""The same for TileLang: ``python -m tests.benchmarks.tilelang``.

What is compiled is a GEMM, lowered to CUDA. Beside the ways that every TVM
compile can be watched, TileLang has two of its own.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.compiles import Compile
from tests.benchmarks.counts import check_spans, passes_seen
from tests.benchmarks.latency import Latency, measure_latency
from tests.benchmarks.report import as_range, goals_as_markdown, print_checks
from tests.benchmarks.results import compare, describe_machine
from tests.benchmarks.variants import Variant, make_variants

_ROUNDS = 25
_QUICK_ROUNDS = 3
_LATENCY_RATIO = 1.005
_TARGET = {"kind": "cuda", "arch": "sm_80"}
_SHARED = ("nothing", "noop", "unsampled", "discard", "background", "zero_code", "naive")


def gemm_lowering() -> Compile:
    """Return the lowering of a GEMM to CUDA: about 80 passes."""
    tilelang: Any = importlib.import_module("tilelang")
    kernels: Any = importlib.import_module("tilelang_otel.cli._demo.kernels")
    target: Any = importlib.import_module("tvm.target").Target(_TARGET)
    program = kernels.gemm(512)

    def lower() -> None:
        # Looked up at each call: zero-code replaces it.
        with target:
            tilelang.lower(program, target=_TARGET)

    return lower


def make_tilelang_variants() -> list[Variant]:
    """Return the ways to watch a lowering, the one that does nothing first."""
    importlib.import_module("tilelang")  # brings the TVM that the others need
    shared = {variant.key: variant for variant in make_variants()}
    timing: Any = importlib.import_module("tilelang.tools.pass_timing")
    return [
        *(shared[key] for key in _SHARED),
        Variant(
            "pass_timing",
            "TileLang's pass timing",
            [timing.TileLangPassTimingInstrument().instrument],
        ),
        Variant("ir_text", "IR text before and after, as lower_trace", [_text_instrument()]),
    ]


def _text_instrument() -> Any:
    """Return an instrument that keeps what a pass changes as text."""
    base: Any = importlib.import_module("tvm.ir.instrument").PassInstrument

    class Text(base):
        __slots__ = ("__dict__",)

        def __init__(self) -> None:
            self.texts: list[str] = []
            super().__init__()

        def enter_pass_ctx(self) -> None:
            self.texts.clear()

        def run_before_pass(self, mod: Any, info: Any) -> None:
            self.texts.append(mod.script())

        def run_after_pass(self, mod: Any, info: Any) -> None:
            self.texts.append(mod.script())

    return Text()


def as_table(titles: dict[str, str], latency: dict[str, Latency], passes: int) -> str:
    """Return the numbers as tables in Markdown.

    Args:
        titles: By the variants' keys.
        latency: By the same.
        passes: How many passes the lowering has.
    """
    lines = [f"|  | GEMM lowering, {passes} passes | CPU |", "| --- | ---: | ---: |"]
    for key, found in latency.items():
        if key == "nothing":
            cells = [f"{found.wall_ms.median:.1f} ms", f"{found.cpu_ms.median:.1f} ms"]
        else:
            cells = [
                f"{found.ratio.median:.3f} ({as_range(found.ratio, 3)})",
                f"{found.cpu_ratio.median:.3f}",
            ]
        lines.append(f"| {' | '.join([titles[key], *cells])} |")
    background = latency["background"].ratio.median
    goal = compare("GEMM lowering, in the background", _LATENCY_RATIO, background, digits=3)
    return "\n".join([*lines, "", *goals_as_markdown([goal])])


def main() -> int:
    """Run, print, and return 1 if a count is not what it must be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.tilelang",
        description="Compare ways of watching a TileLang lowering. Times are reported, "
        "counts must hold.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under a minute")
    parser.add_argument("--counts", action="store_true", help="measure nothing, check the counts")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    arguments = parser.parse_args()
    variants, lowering = make_tilelang_variants(), gemm_lowering()
    checks = check_spans(variants, lowering, "GEMM lowering")
    if not arguments.counts:
        rounds = _QUICK_ROUNDS if arguments.quick else _ROUNDS
        latency = measure_latency(variants, lowering, rounds)
        titles = {variant.key: variant.title for variant in variants}
        table = as_table(titles, latency, passes_seen(lowering))
        print(f"{table}\n\n{describe_machine()}")
        if arguments.markdown:
            arguments.markdown.write_text(table + "\n", encoding="utf-8")
    print_checks(checks)
    return 0 if all(check.holds for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
