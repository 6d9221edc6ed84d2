"""Measures how far functions are from the truth, in every tier and on every device here.

`python -m benchmarks.exactness --json benchmarks/results/exactness.json` writes the figures that
docs/exactness.md quotes. Needs gmpy2; OpenCL where it is to be measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exactness.samples import points
from benchmarks.exactness.truth import Truth, distances, errors, truth
from benchmarks.exactness.units import INEXACT, class_of, size_of_unit
from benchmarks.exactness.ways import WAYS
from lazyfuse.codegen.table.ops import ROWS, TABLE

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = ("f4", "f8", "c8", "c16")
KEPT = 3  # worst points per function, dtype and way


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description=__doc__)
    parser.add_argument("--size", type=int, default=20_000, help="points per function and dtype")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--names", default="", help="functions, with commas; all inexact ones")
    parser.add_argument("--ways", default=",".join(WAYS), help="of %(default)s")
    parser.add_argument("--json", help="file for the figures")
    return parser.parse_args()


def functions(names: str) -> list[tuple[str, str]]:
    """The functions and dtypes that some tier does not compute with NumPy's bits."""
    wanted = names.split(",") if names else []
    rows = [row for row in ROWS if row.kind == "map" and row.ulps and row.ufunc is not None]
    found = []
    for row in rows:
        for dtype in DTYPES:
            inexact = class_of(row, (dtype,) * row.nin, dtype) == INEXACT
            if inexact and (not wanted or row.name in wanted):
                found.append((row.name, dtype))
    return found


class Case:
    """A function at its points, with the truth."""

    def __init__(self, name: str, dtype: str, size: int, seed: int) -> None:
        self.name, self.dtype = name, dtype
        self.points = points(name, dtype, size, seed)
        self.true = truth(name, self.points)
        best = self.true[0].high
        if len(self.true) == 2:
            best = self.true[0].high + 1j * self.true[1].high
        self.sizes = size_of_unit(TABLE[name], self.points, best)
        self.counted = _counted(self.true) if dtype[0] == "c" else np.True_
        self.numpy: Array | None = None

    def figures(self, found: Array) -> dict[str, Any]:
        """The errors of results: the largest, the mean, where, and the distance from NumPy's."""
        off = self._largest(found, self.true)
        wrong = np.isinf(off)
        worst = np.argsort(np.where(wrong, -1.0, off))[-KEPT:][::-1]
        record = {
            "max": round(float(off[worst[0]]), 3),
            "mean": round(float(off[~wrong].mean()), 3),
            "wrong": int(wrong.sum()),
            "at": [[_spelled(each[index]) for each in self.points] for index in worst],
        }
        if self.numpy is not None:
            record["numpy"] = round(float(self._largest(found, None).max()), 3)
        return record

    def _largest(self, found: Array, true: list[Truth] | None) -> Array:
        parts = _parts(found)
        if true is None:
            assert self.numpy is not None
            others = _parts(self.numpy)
            all_off = [distances(x, y, self.sizes) for x, y in zip(parts, others, strict=True)]
        else:
            all_off = [errors(x, y, self.sizes) for x, y in zip(parts, true, strict=True)]
        return np.where(self.counted, np.maximum.reduce(all_off), 0.0)


def _parts(values: Array) -> list[Array]:
    return [values.real, values.imag] if values.dtype.kind == "c" else [values]


def _spelled(value: Any) -> list[str]:
    parts = (value.real, value.imag) if np.iscomplexobj(value) else (value,)
    return [float(part).hex() for part in parts]


def _counted(true: list[Truth]) -> Array:
    """Complex numbers that no formula overflows at; what the others give is NumPy's special case.

    Those are compared with NumPy's own results by the tests.
    """
    with np.errstate(all="ignore"):
        size = np.hypot.reduce([each.high for each in true])
        return np.asarray(size < 1e30)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One record per function, dtype and way."""
    cases = [
        Case(name, dtype, options.size, options.seed) for name, dtype in functions(options.names)
    ]
    print(f"{len(cases)} functions and dtypes of {options.size} points", file=sys.stderr)
    records = []
    for way in options.ways.split(","):
        with WAYS[way]() as call:
            for case in cases:
                if way == "opencl-single" and case.dtype in ("f8", "c16"):
                    continue  # float32 takes their place
                found = call(case.name, case.points)
                if way == "numpy":
                    case.numpy = found
                record = {"function": case.name, "dtype": case.dtype, "way": way}
                records.append(record | case.figures(found))
                show(records[-1])
    return records


def show(record: dict[str, Any]) -> None:
    """One line."""
    names = "{function:12} {dtype:4} {way:14}".format(**record)
    wrong = f"  WRONG {record['wrong']}" if record["wrong"] else ""
    distance = record.get("numpy", "")
    print(f"{names} max {record['max']:8} mean {record['mean']:6} NumPy {distance}{wrong}")


def main() -> None:
    """Measure and write."""
    options = arguments()
    records = measure(options)
    if options.json:
        about = {
            "processor": platform.processor() or platform.machine(),
            "numpy": np.__version__,
            "points": options.size,
            "seed": options.seed,
        }
        text = json.dumps({"about": about, "figures": records}, indent=None)
        text = text.replace('{"function"', '\n{"function"')
        Path(options.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
