"""Loops over elements and rows: `python -m benchmarks.loops`."""
