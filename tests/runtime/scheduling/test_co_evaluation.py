"""Results of the same data that one sink evaluates together: values, order of writes, laziness."""

from __future__ import annotations

import warnings
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.arrays.ndarray import node_of
from lazyfuse.runtime.events import counters

SIDE = 300


def matrix(seed: int) -> Any:
    return numpy.random.default_rng(seed).normal(size=(SIDE, SIDE))


def pulls(xp: Any, x: Any) -> tuple[Any, ...]:
    """Three sums over rows that share large values that nobody else wants."""
    dx, dy = x[None, :] - x[:, None], x[None, :] + x[:, None]
    squared = dx * dx + dy * dy + 0.01
    pull = 1.0 / (squared * xp.sqrt(squared))
    return xp.sum(dx * pull, axis=1), xp.sum(dy * pull, axis=1), xp.amax(pull * dx, axis=0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fusion", [True, False])
def test_sums_that_share_are_numpys_bits_in_any_order_asked(threads: int, fusion: bool) -> None:
    x = matrix(1)[0]
    expected = pulls(numpy, x)
    for order in ((0, 1, 2), (2, 0, 1)):
        with np.options(threads=threads, fusion=fusion, eager_below=0):
            found = pulls(np, np.array(x))
            for k in order:
                assert found[k].to_numpy().tobytes() == expected[k].tobytes()


def test_one_look_computes_what_shares_large_values() -> None:
    with np.options(eager_below=0):
        found = pulls(np, np.array(matrix(2)[0]))
        counters.reset()
        found[0].to_numpy()
        assert node_of(found[1]).value is not None
        found[1].to_numpy()
        assert counters.totals().flushes.total() == 1


def test_large_results_wait_until_somebody_asks() -> None:
    a = np.array(matrix(3))
    b = a * 2.0
    total, rest = b.sum(axis=1), b + 1.0
    total.to_numpy()
    assert node_of(rest).value is None
    numpy.testing.assert_array_equal(rest.to_numpy(), matrix(3) * 2.0 + 1.0)


def test_writes_between_are_kept_apart() -> None:
    raw = matrix(4)
    a = np.array(raw)
    b = a * a
    before, product = b.sum(axis=1), (b * a).sum(axis=1)
    a[...] = 5.0
    after = (a * b).sum(axis=1)
    a += 1.0
    for mine, theirs in (
        (after, (5.0 * (raw * raw)).sum(axis=1)),
        (product, (raw * raw * raw).sum(axis=1)),
        (before, (raw * raw).sum(axis=1)),
        (a, numpy.full_like(raw, 6.0)),
    ):
        assert mine.to_numpy().tobytes() == theirs.tobytes()


def test_a_sibling_that_warns_does_so_once() -> None:
    raw = matrix(5)
    raw[3, 3] = 0.0
    a = np.array(raw)
    shared = a * 1.5
    quiet, loud = shared.sum(axis=1), (1.0 / shared).sum(axis=1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        quiet.to_numpy()
        loud.to_numpy()
    assert [str(each.message) for each in told] == ["divide by zero encountered in divide"]
