"""`python -m benchmarks.held`: our cases on memory that other code holds, beside their own memory.

Each case runs four ways by turns: in NumPy; in lazyfuse on arrays of its own; on `asarray` of NumPy
arrays that the caller goes on holding; and as a function with `lazyfuse.accelerate` that is given
these NumPy arrays. A figure is the speed beside NumPy's, the best of some rounds, results as NumPy
arrays.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

import benchmarks.cases  # noqa: F401  # registers them
import lazyfuse
from benchmarks.case import CASES, Case
from benchmarks.libraries import compiled_ahead

SIZES = (1_000, 100_000, 1_000_000)
WAYS = ("own", "held", "accelerated")
WARM = 6  # calls before programs are waited for, and as many after
ROUNDS = 5


def ways(case: Case, size: int) -> list[Callable[[], Any]] | None:
    """The case in NumPy and in the three ways of lazyfuse; None where it is given no arrays."""
    if case.ordinary:  # a program with one size, which makes its own arrays
        return None
    inputs = case.make(size, numpy.random.default_rng(5))
    if not all(isinstance(value, numpy.ndarray) for value in inputs):
        return None
    run = case.run
    own = [lazyfuse.array(value) for value in inputs]
    held = [lazyfuse.asarray(value) for value in inputs]
    accelerated = lazyfuse.accelerate(_program(run))

    def read(result: Any) -> Any:
        return [numpy.asarray(each) for each in (result if type(result) is tuple else (result,))]

    return [
        lambda: run(numpy, *inputs),
        lambda: read(run(lazyfuse, *own)),
        lambda: read(run(lazyfuse, *held)),
        lambda: read(accelerated(*inputs)),
    ]


def _program(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function as users write it: it says `np`, and finds it among its global names."""

    def program(*arrays: Any) -> Any:
        return run(numpy, *arrays)

    return program


def measured(case: Case, size: int, seconds: float) -> list[float] | None:
    """Seconds of a call each way: the best of some rounds, by turns."""
    calls = ways(case, size)
    if calls is None:
        return None
    for _ in range(2):
        for call in calls:
            for _ in range(WARM):
                call()
            compiled_ahead(call)
    start = time.perf_counter()
    calls[0]()
    count = max(1, int(seconds / max(time.perf_counter() - start, 1e-7) / ROUNDS))
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for at, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(count):
                call()
            best[at] = min(best[at], (time.perf_counter() - start) / count)
    return best


def main(given: Sequence[str]) -> None:
    """Measure, print a table of ratios, and write the times to a file if one is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.held", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="elements, with commas")
    parser.add_argument("--only", default="", help="cases whose names contain one of these, by '|'")
    parser.add_argument("--seconds", type=float, default=0.1, help="of NumPy per case and size")
    parser.add_argument("--json", help="file for the figures: nanoseconds in NumPy and each way")
    options = parser.parse_args(given)
    figures: dict[str, dict[str, list[int]]] = {}
    for size in (int(float(word)) for word in options.sizes.split(",")):
        print(f"n = {size:.0e}, times NumPy's speed: " + ", ".join(WAYS))
        found: dict[str, list[float]] = {}
        for name, case in sorted(CASES.items()):
            wanted = any(word in name for word in options.only.split("|"))
            best = (
                measured(case, size, options.seconds) if wanted and size <= case.largest else None
            )
            if best is not None:
                found[name] = best
                row = " ".join(f"{best[0] / each:8.2f}" for each in best[1:])
                print(f"{row}  {name}", flush=True)
        means = [
            statistics.geometric_mean(best[0] / best[at] for best in found.values())
            for at in range(1, len(WAYS) + 1)
        ]
        print(" ".join(f"{each:8.2f}" for each in means) + "  geometric mean", flush=True)
        figures[f"{size:g}"] = {
            name: [round(1e9 * each) for each in best] for name, best in found.items()
        }
    if options.json:
        content = {"ways": ["numpy", *WAYS], "ns": figures}
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
