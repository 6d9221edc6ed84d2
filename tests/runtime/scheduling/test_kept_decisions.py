"""What is decided once and kept: histograms of given bounds, sizes with nothing to make again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.scheduling import elision, evaluate
from tests.pairwise import first

SIZE = 40_021


def same(mine: Any, theirs: Any) -> None:
    for one, other in zip(mine, theirs, strict=True):
        found = np.asarray(one)
        assert (found.dtype, found.tobytes()) == (other.dtype, other.tobytes())


@pytest.mark.parametrize("dtype", first(1, ["f8", "f4", "i4"]))
def test_bounds_that_are_equal_numbers_are_not_one_histogram(dtype: str) -> None:
    values = (np.random.default_rng(5).normal(size=SIZE) * 4).astype(dtype)
    weights = np.random.default_rng(6).uniform(size=SIZE)
    bounds: list[Any] = [(0.0, 4.0), (-0.0, 4.0), (0, 4), (False, 4), (0, 4.0), (np.float64(0), 4)]
    for _ in range(3):
        for each in [*bounds, (2.0, 2.0), (1.0, 5.0)]:
            for bins in (7, 64):
                x = lf.array(values)
                same(lf.histogram(x * 1, bins, each), np.histogram(values * 1, bins, each))
                found = lf.histogram(x * 1, bins, each, weights=lf.array(weights))
                same(found, np.histogram(values * 1, bins, each, weights=weights))


def test_edges_that_were_handed_out_are_their_owners() -> None:
    values = np.random.default_rng(5).normal(size=SIZE)
    for _ in range(3):
        counts, edges = lf.histogram(lf.array(values) * 1.0, 9, (0.0, 3.0))
        edges[...] = -1.0
        np.asarray(edges)[...] = -1.0
        del counts
    same(lf.histogram(lf.array(values) * 1.0, 9, (0.0, 3.0)), np.histogram(values, 9, (0.0, 3.0)))


def test_bounds_that_numpy_refuses_are_refused_each_time() -> None:
    values = lf.array(np.random.default_rng(5).normal(size=SIZE))
    for _ in range(3):
        for each in [(3.0, 0.0), (0.0, float("nan")), (0.0, float("inf"))]:
            with pytest.raises(ValueError, match="range"):
                lf.histogram(values * 1.0, 9, each)


def test_nothing_to_make_again_at_one_size_says_nothing_of_another_F3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same structure: a small result is written, a large one of small operands is not."""
    monkeypatch.setattr(elision, "LARGE", 1 << 12)
    evaluate.clear_plans()
    generator = np.random.default_rng(2)
    with config.options(eager_below=0, fusion=True):
        for count, left in [(50, 0), (50, 0), (50, 0), (300, 1), (50, 0), (300, 1), (300, 1)]:
            row, column = generator.normal(size=(2, count))
            counters.reset()
            x, y = lf.array(row), lf.array(column)
            outer = x[:, None] * y[None, :]
            total = (outer * outer).sum(axis=1)
            expected = row[:, None] * column[None, :]
            same([total], [(expected * expected).sum(axis=1)])
            assert counters.totals.decisions[decisions.CHEAP] == left
            same([outer], [expected])
