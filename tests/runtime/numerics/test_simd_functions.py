"""Inexact functions of many floats: SIMD versions of the C library's, at once (base/vectors.c)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.arrays.base import COMPILED
from lazyfuse.codegen.table.op import Op
from lazyfuse.codegen.table.ops import ROWS
from lazyfuse.devices.pools import vector_math

Array = np.ndarray[Any, np.dtype[Any]]
FUNCTIONS = [row for row in ROWS if row.kind == "map" and row.library and row.ufunc is not None]
SIZES = (511, 512, 575, 576, 577, 1000, 1091, 5000)  # SIMD from 512, chunks of 64 and 512

needs_simd = pytest.mark.skipif(
    not COMPILED or vector_math.libmvec() is None, reason="no SIMD functions here"
)


def operands(row: Op, dtype: str, shape: tuple[int, ...], seed: int = 0) -> list[Array]:
    """Random numbers of the domain."""
    random = np.random.default_rng(seed)
    bounds = row.domain or ((-10.0, 10.0),) * row.nin
    return [
        random.uniform(max(low, -20), min(high, 20), shape).astype(dtype) for low, high in bounds
    ]


def assert_close(row: Op, found: Any, expected: Array) -> None:
    found = np.asarray(found)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    beside = np.abs(expected) if row.unit != "sine" else np.maximum(np.abs(expected), 2.0**-20)
    assert (abs(found - expected) <= 2 * row.ulps * np.spacing(beside)).all()


def layouts(x: Any) -> Iterator[Any]:
    """Equal elements, in memory that lies otherwise."""
    yield x
    yield lazyfuse.repeat(x, 2)[::2]
    yield x[::-1].copy()[::-1]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_sizes_and_layouts(row: Op, dtype: str) -> None:
    """An element's bits depend on neither, from 512 elements on."""
    function = getattr(lazyfuse, row.name)
    given = operands(row, dtype, (5000,))
    most = np.asarray(function(*map(lazyfuse.array, given)))
    assert_close(row, most, row.ufunc(*given))
    for size in SIZES:
        for first in layouts(lazyfuse.array(given[0][:size])):
            rest = [lazyfuse.array(each[:size]) for each in given[1:]]
            found = np.asarray(function(first, *rest))
            if size < 512:
                expected = row.ufunc(*[each[:size] for each in given])
                np.testing.assert_array_equal(found, expected, strict=True)
            else:
                np.testing.assert_array_equal(found, most[:size], strict=True)


@needs_simd
def test_they_are_not_numpys() -> None:
    """The tests here reach what they are for: some bits of `sin` differ on every machine."""
    x = np.linspace(0.1, 50, 5000)
    assert (np.asarray(lazyfuse.sin(lazyfuse.array(x))) != np.sin(x)).any()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_views_results_and_numbers(row: Op, dtype: str) -> None:
    function, ufunc = getattr(lazyfuse, row.name), row.ufunc
    given = operands(row, dtype, (40, 60), 1)
    ours = [lazyfuse.array(each) for each in given]
    views: list[Callable[[Any], Any]] = [
        lambda x: x.T, lambda x: x[:, ::2], lambda x: x[1:, 3:-3], lambda x: x[::-1, ::-1],
    ]  # fmt: skip
    for view in views:
        expected = ufunc(*map(view, given))
        found = function(*map(view, ours))
        assert_close(row, found, expected)
        shape = np.asarray(found).strides
        assert [a > b for a, b in itertools.pairwise(shape)] == [
            a > b for a, b in zip(expected.strides, expected.strides[1:], strict=False)
        ]
    out = lazyfuse.zeros_like(function(*ours))
    assert function(*ours, out=out) is out
    np.testing.assert_array_equal(np.asarray(out), np.asarray(function(*ours)))
    same = ours[0].copy()
    if out.dtype == same.dtype:
        function(same, *ours[1:], out=same)
        np.testing.assert_array_equal(np.asarray(out), np.asarray(same))
    if row.nin == 2:
        assert_close(row, function(ours[0], ours[1][0]), ufunc(given[0], given[1][0]))
        assert_close(row, function(ours[0], ours[1][:, :1]), ufunc(given[0], given[1][:, :1]))
        assert_close(row, function(ours[0], 1.75), ufunc(given[0], 1.75))
        assert_close(row, function(1.75, ours[1]), ufunc(1.75, given[1]))


@pytest.mark.parametrize("integers", ["i4", "u4", "i8", "u8"])
def test_integers_are_doubles(integers: str) -> None:
    x = np.arange(1, 2001).astype(integers)
    ours = lazyfuse.array(x)
    by_name = {row.name: row for row in FUNCTIONS}
    for name in ("sin", "log", "exp2"):
        found = getattr(lazyfuse, name)(ours % 90 + 1)
        assert_close(by_name[name], found, getattr(np, name)(x % 90 + 1))
    assert_close(by_name["arctan2"], lazyfuse.arctan2(ours, ours), np.arctan2(x, x))
    assert_close(by_name["hypot"], lazyfuse.hypot(ours, 2.5), np.hypot(x, 2.5))
    assert_close(by_name["hypot"], lazyfuse.hypot(ours, ours * 0.5), np.hypot(x, x * 0.5))


@pytest.mark.parametrize(
    "exponent", [-3, -2, -1, 0, 1, 2, 3, 7, -1.0, 0.0, 0.5, 1.0, 2.0, 2.5, -1.5]
)
def test_powers(exponent: float) -> None:
    power = next(row for row in FUNCTIONS if row.name == "power")
    for dtype in ("f8", "f4", "i8"):
        for signed in (False, True):
            x = np.linspace(-3 if signed and exponent == int(exponent) else 0.5, 9, 2000)
            x = x.astype(dtype) if dtype[0] == "f" else x.astype(dtype) + 4
            if dtype == "i8" and exponent < 0 and isinstance(exponent, int):
                continue  # an error
            expected = x**exponent
            found = np.asarray(lazyfuse.array(x) ** exponent)
            if exponent in (-1, 0, 0.5, 1, 2) or (dtype == "i8" and isinstance(exponent, int)):
                np.testing.assert_array_equal(found, expected, strict=True)
            else:
                assert_close(power, found, expected)


@pytest.mark.parametrize("place", [0, 63, 64, 600, 1999])
def test_warnings_are_numpys(place: int) -> None:
    """One element raises a flag, wherever it stands."""
    for name, value in (("log", 0.0), ("arcsin", 2.0), ("exp", 800.0), ("sin", np.inf)):
        x = np.full(2000, 0.25)
        x[place] = value
        told = []
        for module, given in ((np, x), (lazyfuse, lazyfuse.array(x))):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = np.asarray(getattr(module, name)(given))
            told.append([str(each.message) for each in caught])
            with np.errstate(all="ignore"):
                expected = getattr(np, name)(x)
            np.testing.assert_array_equal(found, expected)  # then all of them are NumPy's
        assert told[0] == told[1]
        assert len(told[0]) == 1
        with pytest.raises(FloatingPointError), lazyfuse.errstate(all="raise"):
            getattr(lazyfuse, name)(lazyfuse.array(x))


def test_exact_loops_warn_as_numpys_do() -> None:
    """They stop after 64 elements that raise a flag."""
    for place in (0, 63, 64, 1999):
        x = np.ones(2000)
        x[place] = -1.0
        with pytest.warns(RuntimeWarning, match="invalid value encountered in sqrt"):
            found = lazyfuse.sqrt(lazyfuse.array(x))
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(np.asarray(found), np.sqrt(x))
