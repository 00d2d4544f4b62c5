"""``python -m tilelang_otel``: the command, where its script is not on the PATH."""

from __future__ import annotations

import sys

from tilelang_otel.cli import main

sys.exit(main())
