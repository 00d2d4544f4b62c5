"""What tracing costs: ``python -m tests.benchmarks [--quick] [--json FILE]``.

Compares ways of watching a compile with not watching it, in interleaved runs
within one process. ``variants`` owns the ways, ``compiles`` what is compiled;
``latency``, ``callbacks``, ``emission`` and ``memory`` measure; ``counts``
checks what must hold, and is all that can fail: times are printed beside their
goals, and gate nothing. ``report`` prints.
"""
