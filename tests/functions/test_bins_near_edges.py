"""Histograms whose bins are told by a product: NumPy's counts, on edges and beside them too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.codegen.lowering.summation import leaves
from lazyfuse.kernels import compact
from tests.pairwise import first

SIZE = 80_000


def on_edges(bins: int, bounds: tuple[float, float], dtype: str, seed: int) -> Any:
    """Values on edges and one step beside them, some outside and some that are no numbers."""
    generator = np.random.default_rng(seed)
    edges = np.histogram_bin_edges(np.empty(0, dtype), bins, bounds).astype(dtype)
    chosen = generator.choice(edges, SIZE)
    up, down = (np.nextafter(chosen, chosen.dtype.type(end)) for end in (np.inf, -np.inf))
    values = np.choose(generator.integers(3, size=SIZE), [chosen, up, down])
    values[::101] = np.nan
    values[::203] = np.inf
    values[::307] = -np.inf
    return values


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("bins", [1, 10, 1000])
@pytest.mark.parametrize("bounds", [(0.0, 4.0), (-0.1, 0.7), (1e6, 1e6 + 300), (-1e-3, 1e9)])
def test_edges(bins: int, bounds: tuple[float, float], dtype: str) -> None:
    values = on_edges(bins, bounds, dtype, bins)
    plain = np.random.default_rng(1).uniform(*bounds, SIZE).astype(dtype)
    for each in (values, plain):
        counts, edges = np.histogram(each, bins, bounds)
        found, these = lf.histogram(lf.array(each), bins, bounds)
        np.testing.assert_array_equal(found.to_numpy(), counts)
        np.testing.assert_array_equal(np.asarray(these), edges)


def test_weights_are_added_in_order() -> None:
    values = on_edges(32, (0.0, 2.0), "f8", 5)
    weights = np.random.default_rng(2).normal(size=SIZE)
    expected = np.histogram(values, 32, (0.0, 2.0), weights=weights)[0]
    found = lf.histogram(lf.array(values), 32, (0.0, 2.0), weights=lf.array(weights))[0]
    np.testing.assert_array_equal(found.to_numpy(), expected)


# bytes, and what is wider
@pytest.mark.parametrize("dtype", first(2, ["u1", "i4", "u2"]))
def test_counts_of_integers(dtype: str) -> None:
    for size in (150_000, 150_001, 150_003, 200_002):
        values = np.random.default_rng(size).integers(0, 200, size).astype(dtype)
        found = lf.bincount(lf.array(values), minlength=230)
        np.testing.assert_array_equal(np.asarray(found), np.bincount(values, minlength=230))


@pytest.mark.parametrize("complex_values", [False, True])
def test_stretches_are_joined_as_numpy_adds(complex_values: bool) -> None:
    generator = np.random.default_rng(3)
    for number in (1, 7, 32_768, 32_769, 491_527, 530_001, 1_000_003):
        values = generator.normal(size=number) * 1e3
        if complex_values:
            values = values + 1j * generator.normal(size=number)
        counts, lows, numbers, joins = compact._stretches(number, complex_values)
        limit = max(compact.STRETCH, number // compact.PIECES)
        assert counts.tolist() == leaves(number, limit, complex_values)
        assert numbers.tolist() == list(range(len(counts)))
        sums = [np.add.reduce(values[low : low + n]) for low, n in zip(lows, counts, strict=True)]
        found = compact._joined([each.item() for each in sums], joins)
        assert found == np.add.reduce(values)
    assert str(compact._joined([-0.0], (0,))) == "0.0"
    assert str(compact._joined([complex(-0.0, -0.0)], (0,))) == "0j"
