"""The TileLang benchmark: its counts hold."""

from __future__ import annotations

import subprocess
import sys

from tests.support.readme import ROOT
from tests.support.require import require_tilelang

require_tilelang()


def test_tilelang_benchmark_counts_hold() -> None:
    """A lowering has a span for each of its passes, and none when it is not sampled."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.tilelang", "--counts"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 of 5 counts" in done.stdout
