"""Trace files: read into spans, mended where they are damaged, put together as trees."""
