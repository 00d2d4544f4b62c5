"""Traces on a terminal: trees, bars and tables."""
