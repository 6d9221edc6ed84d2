"""Inexact functions stay within their stated units, at random points and the worst ones known.

The bounds stand in the op table; docs/exactness.md shows them with the measured figures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyfuse
from benchmarks.exactness.units import INEXACT, class_of, size_of_unit, units
from benchmarks.exactness.ways import WAYS
from lazyfuse.codegen.table.op import Op
from lazyfuse.codegen.table.ops import ROWS, TABLE
from lazyfuse.devices import registry
from lazyfuse.devices.base import DeviceError
from scripts import write_exactness

Array = np.ndarray[Any, np.dtype[Any]]
RECORD = json.loads(write_exactness.FIGURES.read_text())["figures"]
WIDER = {"f4": "f8", "c8": "c16"}


def inexact() -> list[tuple[Op, str]]:
    """Functions of NumPy's that some tier computes with other bits, and their dtypes."""
    return [
        (row, dtype)
        for row in ROWS
        for dtype in ("f4", "f8", "c8", "c16")
        if row.kind == "map"
        and row.ufunc is not None
        and class_of(row, (dtype,) * row.nin, dtype) == INEXACT
    ]


def worst(name: str, dtype: str) -> list[Array]:
    """The points at which a way of computing was found to be farthest off."""
    rows = [each["at"] for each in RECORD if (each["function"], each["dtype"]) == (name, dtype)]
    found = [[number(part) for part in point] for points in rows for point in points]
    return [np.array(column, dtype) for column in zip(*found, strict=True)]


def number(parts: list[str]) -> complex | float:
    values = [float.fromhex(part) for part in parts]
    return complex(*values) if len(values) == 2 else values[0]


def some(row: Op, dtype: str, size: int = 3000) -> list[Array]:
    """Random points of the domain, and small, large and negative ones."""
    random = np.random.default_rng(row.number)
    columns = []
    for index in range(row.nin):
        low, high = row.domain[index] if row.domain else (-10.0, 10.0)
        low, high = max(low, -1e30), min(high, 1e30)
        values: Any = np.append(
            random.uniform(low, high, size),
            random.standard_normal(size) * 10.0 ** random.uniform(-30, 6, size),
        )
        if dtype[0] == "c":
            values = values[-size:] + 1j * random.permutation(values[-size:])
        columns.append(values.astype(dtype))
    return columns


def points(row: Op, dtype: str) -> list[Array]:
    pairs = zip(some(row, dtype), worst(row.name, dtype), strict=True)
    return [np.append(each, known) for each, known in pairs]


def off(row: Op, operands: list[Array], found: Array, best: Array) -> Array:
    """Units between results and the best known ones; 0 where both are no numbers alike."""
    with np.errstate(all="ignore"):
        sizes = size_of_unit(row, operands, best)
        parts = [(found, best)]
        if found.dtype.kind == "c":
            parts = [(found.real, best.real), (found.imag, best.imag)]
        gaps = []
        for one, other in parts:
            step = units(one, sizes)
            gap = np.abs(one.astype(np.float64) - other.astype(np.float64)) / step
            same = (one == other.astype(one.dtype)) | (np.isnan(one) & np.isnan(other))
            gaps.append(np.where(same, 0.0, np.nan_to_num(gap, nan=np.inf, posinf=np.inf)))
        return np.asarray(np.maximum.reduce(gaps))


# Both languages of OpenCL have one text for the values of a function: a dtype each is enough. Those
# of float32 are compared with NumPy's in tests/codegen/test_opencl_expressions.py, too.
USUAL = {
    "blocked": ("f4", "f8", "c8", "c16"),
    "compiled": ("f4", "f8", "c8", "c16"),
    "opencl": ("f8",),
    "opencl-grid": ("c16",),
}


@pytest.mark.parametrize(
    ("way", "dtype"),
    [
        pytest.param(way, dtype, marks=[] if dtype in usual else [pytest.mark.long])
        for way, usual in USUAL.items()
        for dtype in ("f4", "f8", "c8", "c16")
    ],
)
def test_functions_are_within_their_bounds(way: str, dtype: str) -> None:
    if way.startswith("opencl"):
        pytest.importorskip("pyopencl", reason="pyopencl is not installed")
        try:
            registry.device("opencl")
        except DeviceError as error:
            pytest.skip(str(error))
    rows = [row for row, each in inexact() if each == dtype]
    operands = {row.name: points(row, dtype) for row in rows}
    # each function of the points of all, so that they are few kernels; its own are looked at
    ends = np.cumsum([len(operands[row.name][0]) for row in rows])
    columns = [np.concatenate([operands[row.name][k % row.nin] for row in rows]) for k in (0, 1)]
    with WAYS[way](), np.errstate(all="ignore"):
        arrays = [lazyfuse.array(each) for each in columns]
        results = [getattr(lazyfuse, row.name)(*arrays[: row.nin]) for row in rows]
        lazyfuse.evaluate(*results)
        found = [np.asarray(each) for each in results]
    for row, end, every in zip(rows, ends, found, strict=True):
        got = every[end - len(operands[row.name][0]) : end]
        with np.errstate(all="ignore"):
            # float64 is the truth about a float32; of a float64 NumPy's is as good as ours
            best = row.ufunc(*(each.astype(WIDER.get(dtype, dtype)) for each in operands[row.name]))
        if dtype[0] == "c":
            counted = np.abs(best) < 1e30  # beyond, products of parts overflow
        else:
            limit = float(np.finfo(dtype).max)
            counted = ~(np.abs(best) > limit) | np.isinf(best)
        allowed = row.ulps if dtype in WIDER else 2 * row.ulps
        gap = np.where(counted, off(row, operands[row.name], got, best), 0.0)
        place = int(np.argmax(gap))
        at = [each[place] for each in operands[row.name]]
        assert gap[place] <= allowed, f"{row.name}{at}: {got[place]}, not {best[place]}"


def test_every_inexact_operation_states_a_bound_that_the_measured_figures_keep() -> None:
    measured = {(each["function"], each["dtype"]): each for each in RECORD}
    for row, dtype in inexact():
        assert row.ulps > 0, row.name
        assert (row.name, dtype) in measured
    for each in RECORD:
        assert each["max"] <= TABLE[each["function"]].ulps, each
        assert each["wrong"] == 0, each


def test_the_page_is_up_to_date() -> None:
    page = Path(write_exactness.TARGET).read_text()
    assert page == write_exactness.text(), "run python scripts/write_exactness.py"


def test_log1p_of_subnormal_numbers_keeps_their_sign() -> None:
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    for dtype in ("f4", "f8"):
        least = np.finfo(dtype).smallest_subnormal
        x = np.array([least, -least, 0.0, -0.0] * 16, dtype)
        with lazyfuse.options(eager_below=0, device="opencl"):
            got = np.asarray(lazyfuse.log1p(lazyfuse.array(x)))
        np.testing.assert_array_equal(got.view(f"u{x.itemsize}"), x.view(f"u{x.itemsize}"))
