"""How far functions are from the truth: `python -m benchmarks.exactness` measures and writes it."""
