"""What ``kubectl apply -k`` would send to a cluster."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["build"]

_PROGRAM = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"


def build(folder: Path) -> list[dict[str, Any]]:
    """Return the objects of a kustomization.

    Args:
        folder: Where it is. ``kustomize`` from the PATH builds it, or else one that Go fetches.
    """
    import yaml

    program = ["kustomize"] if shutil.which("kustomize") else ["go", "run", _PROGRAM]
    done = subprocess.run(
        [*program, "build", folder], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))
