"""Lazyfuse beside NumPy and its peers: `python -m benchmarks --help`."""
