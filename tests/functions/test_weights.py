"""Sums of weights: `bincount`, `histogram` and `histogramdd` have NumPy's bits and errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices
from tests.helpers.compare import both
from tests.pairwise import first

COUNT = 150_011  # three of NumPy's blocks


pytestmark = pytest.mark.usefixtures("threads")


def _values(dtype: str = "f8") -> Any:
    found = np.random.default_rng(3).standard_normal(COUNT) * 3
    if dtype[0] == "f":
        found[::97], found[3::97] = np.nan, -0.0
    return np.clip(found, -90, 90).astype(dtype)


def _weights(dtype: str) -> Any:
    found = np.random.default_rng(5).standard_normal(COUNT) * 50
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


# values find their bins before weights are looked at, and whole numbers are weights as floats are;
# float32s find their bins in several dimensions, too
PAIRS = [
    ("f8", "f8"), ("i4", "u1"), ("f8", "c16"), ("f8", "?"), ("f4", "f4"), ("f8", "i2"),
    ("f8", "u1"), ("f8", "f4"), ("f8", "i8"), ("f4", "f8"), ("f4", "i8"), ("f4", "i2"),
    ("f4", "u1"), ("f4", "c16"), ("f4", "?"), ("i4", "f8"), ("i4", "f4"), ("i4", "i2"),
    ("i4", "i8"), ("i4", "c16"), ("i4", "?"),
]  # fmt: skip


@pytest.mark.parametrize("dtypes", first(4, PAIRS), ids=str)
def test_histograms(dtypes: tuple[str, str]) -> None:
    dtype, weight = dtypes
    values, weights = _values(dtype), _weights(weight)
    for bins, density in ((1, False), (10, True), (1000, False), (3000, True), (3000, False)):
        both(
            lambda xp, a, w, bins=bins, density=density: xp.histogram(
                a * 1, bins, (-4, 4.5), density=density, weights=w
            ),
            values,
            weights,
            warned=not density,
        )
    both(lambda xp, a, w: xp.histogram(a, 7, weights=w), values[1:90], weights[1:90])
    both(lambda xp, a, w: xp.histogram(a, [-2, 0, 1, 5], weights=w), values, weights)
    both(lambda xp, a, w: xp.histogram(a, 9, (0, 1), weights=w[1:]), values, weights)
    both(lambda xp, a, w: xp.histogram(a, 9, (2, 1), weights=w), values, weights)


def test_weights_that_are_not_finite() -> None:
    values, weights = _values(), _weights("f8")
    weights[::1001], weights[1::5003] = np.inf, np.nan
    both(lambda xp, a, w: xp.histogram(a, 50, (-3, 3), weights=w)[0], values, weights)
    both(lambda xp, a, w: xp.bincount(a, w), np.abs(values[1:97]).astype(int), weights[1:97])


# as for histograms
COUNTED = [
    ("i8", "f8"), ("u1", "f8"), ("i2", "i8"), ("u8", "f8"), ("i8", "?"), ("i8", "c8"), ("i8", "f4"),
    ("i8", "u8"),
]  # fmt: skip
COUNTED += sorted(
    {*itertools.product(("i8", "u1", "i2", "u8"), ("f8", "f4", "i8", "u8", "?", "c8"))} - {*COUNTED}
)


@pytest.mark.parametrize("dtypes", first(6, COUNTED), ids=str)
def test_bincounts(dtypes: tuple[str, str]) -> None:
    dtype, weight = dtypes
    values, weights = np.abs(_values("i8")).astype(dtype), _weights(weight)
    both(lambda xp, a, w: xp.bincount(a, w), values, weights)
    both(lambda xp, a, w: xp.bincount(a + a, w + w, 300), values, weights)
    both(lambda xp, a, w: xp.bincount(a[::2], w[::2]), values, weights)
    both(lambda xp, a, w: xp.bincount(a, w[1:]), values, weights)
    if dtype[0] == "i":
        both(lambda xp, a, w: xp.bincount(a - 5, w), values, weights)


@pytest.mark.parametrize("density", [False, True])
def test_several_dimensions(density: bool) -> None:
    first, second, weights = _values()[4:90_000], _values("f4")[4:90_000], _weights("f8")[4:90_000]
    first, second = np.nan_to_num(first), np.nan_to_num(second)
    for bins in (10, [3, 8], [np.linspace(-3, 3, 9), np.array([0.0, 1, 5])], np.linspace(-1, 1, 4)):
        both(lambda xp, a, b, w, k=bins: xp.histogram2d(a, b, k), first, second, weights)
        both(
            lambda xp, a, b, w, k=bins: xp.histogram2d(a, b, k, None, density, w),
            first,
            second,
            weights,
        )
    both(lambda xp, a, b, w: xp.histogramdd([a, b, w], 4), first, second, weights)
    both(lambda xp, a, b, w: xp.histogramdd(xp.stack([a, b]).T, 4), first, second, weights)
    both(lambda xp, a, b, w: xp.histogram2d(a, b, 0), first, second, weights)
    both(lambda xp, a, b, w: xp.histogram2d(a, b[1:]), first, second, weights)


def test_they_are_compiled() -> None:
    """Where the CPU's compiler is there."""
    before = counters.totals().languages["routine"]
    values, weights = lazyfuse.array(_values()), lazyfuse.array(_weights("f8"))
    np.asarray(lazyfuse.histogram(values, 20, (-1, 1), weights=weights)[0])
    ready = "numba" in devices.cpu().traits.languages
    assert (counters.totals().languages["routine"] > before) == ready
