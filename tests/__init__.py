"""Tests of tilelang-otel; a package, so that they can share `tests.support`."""
