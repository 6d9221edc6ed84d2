"""Extremes and their positions: the first one counts, NaN beats all, in any layout."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.lowering.kernel import Kernel, Reduce
from tests.codegen import kernel_tools

DTYPES = ["f8", "f4", "i8", "u1", "b1", "c16"]
EXTREMES = [("maximum", "minimum"), ("fmax", "fmin"), ("maximum", "fmin")]
SHAPES = [(1,), (65,), (1025,), (40_001,), (3, 2100), (316, 64), (600, 7), (17, 5, 130)]
LAYOUTS = {
    "C": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1],
    "every other": lambda x: x[..., ::2],
    "from the second": lambda x: x[1:] if len(x) > 1 else x,
}


def _values(rng: np.random.Generator, pick: random.Random, shape: Any, dtype: str) -> Any:
    """Numbers with ties; floats with NaN, infinities, or nothing but one of these."""
    spread = pick.choice([2, 5, 1000])
    if dtype == "b1":
        return rng.random(shape) > pick.choice([0.01, 0.5, 0.99])
    if dtype[0] in "iu":
        return rng.integers(-spread, spread, shape).astype(dtype)
    x: Any = (rng.normal(size=shape) * spread).round(pick.choice([0, 3])).astype(dtype)
    if dtype[0] == "c":
        x += x.dtype.type(1j) * rng.normal(size=shape).round(0)
    for _ in range(pick.choice([0, 0, 1, 3])):
        x.flat[pick.randrange(x.size)] = np.nan
    if pick.random() < 0.1:
        x[...] = pick.choice([-np.inf, np.inf, np.nan])
    if pick.random() < 0.2:
        x = np.sort(x.ravel()).reshape(shape)  # each block beats the one before
    return x


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_arrays(dtype: str) -> None:
    pick, rng = random.Random(dtype), np.random.default_rng(len(dtype))
    for _ in range(25):
        values = _values(rng, pick, pick.choice(SHAPES), dtype)
        x = LAYOUTS[pick.choice(list(LAYOUTS))](values)
        axis = pick.choice([None, *range(x.ndim)])
        reduced = tuple(axis in (None, each) for each in range(x.ndim))
        extremes = tuple(Reduce(op, 0, dtype, dtype) for op in pick.choice(EXTREMES))
        places = tuple(Reduce(op, 0, dtype, "i8") for op in ("argmax", "argmin"))
        each = pick.choice([extremes, extremes, places, extremes + places])
        kernel = Kernel(x.ndim, (dtype,), (), (), (), each, reduced)
        with np.errstate(all="ignore"):
            found = dict(zip(each, kernel_tools.run(kernel, x.shape, [x]), strict=True))
            for reduction, ours in found.items():
                function = getattr(np, reduction.op)
                function = getattr(function, "reduce", function)
                theirs = np.asarray(function(x, axis=axis))
                np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs, reduction.op)
