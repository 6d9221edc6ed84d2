"""`python -m benchmarks.held`: our cases on memory that other code holds, beside their own memory.

Each case runs four ways by turns: in NumPy; in lazyfuse on arrays of its own; on `asarray` of NumPy
arrays that the caller goes on holding; and as a function with `lazyfuse.accelerate` that is given
these NumPy arrays. A figure is the speed beside NumPy's, measured as `python -m benchmarks` does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

import benchmarks.cases  # noqa: F401  # registers them
import lazyfuse
from benchmarks.case import CASES, Case
from benchmarks.libraries import Library, of_lazyfuse, of_numpy
from benchmarks.measure import Row, measure

SIZES = (1_000, 100_000, 1_000_000)


def ways() -> list[Library]:
    """NumPy, and the three ways of lazyfuse."""
    own = of_lazyfuse("own")
    held = replace(own, name="held", take=lazyfuse.asarray)
    given = replace(
        own, name="accelerated", runner=_accelerated, take=lambda value: value, force=lambda x: x
    )
    return [of_numpy(), own, held, given]


def _accelerated(case: Case) -> Callable[..., Any]:
    """The case as a function that finds NumPy among its global names, as users write it."""

    def program(*arrays: Any) -> Any:
        return case.run(numpy, *arrays)

    return lazyfuse.accelerate(program)


def measured(case: Case, size: int, seconds: float) -> list[Row]:
    """The rows of a case, NumPy's first; none where it is given no arrays."""
    inputs = (
        () if case.ordinary or size > case.largest else case.make(8, numpy.random.default_rng())
    )
    if not inputs or not all(isinstance(value, numpy.ndarray) for value in inputs):
        return []
    return measure(case, size, ways(), seconds, memory=False)


def main(given: Sequence[str]) -> None:
    """Measure, print a table of ratios, and write the times to a file if one is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.held", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="elements, with commas")
    parser.add_argument("--only", default="", help="cases whose names contain one of these, by '|'")
    parser.add_argument("--seconds", type=float, default=0.15, help="per case, size and way")
    parser.add_argument("--json", help="file for the rows, as those of `python -m benchmarks`")
    options = parser.parse_args(given)
    found: list[Row] = []
    for size in (int(float(word)) for word in options.sizes.split(",")):
        print(
            f"n = {size:.0e}, times NumPy's speed: " + ", ".join(each.name for each in ways()[1:])
        )
        table: list[list[float]] = []
        for name, case in sorted(CASES.items()):
            if any(word in name for word in options.only.split("|")):
                rows = measured(case, size, options.seconds)
                found += rows
                if rows:
                    table.append([row.ratio for row in rows[1:]])
                    print(" ".join(f"{each:8.2f}" for each in table[-1]) + f"  {name}", flush=True)
        means = map(statistics.geometric_mean, zip(*table, strict=True))
        print(" ".join(f"{each:8.2f}" for each in means) + "  geometric mean", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([row.as_dict() for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
