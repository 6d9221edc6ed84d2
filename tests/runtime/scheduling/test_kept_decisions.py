"""What is decided once and kept: histograms of given bounds, sizes with nothing to make again."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.runtime.capture import conditions
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
            assert counters.totals().decisions[decisions.CHEAP] == left
            same([outer], [expected])


# ------------------------------------------------- dead temporaries of evaluations found again


def products(xp: Any, x: Any, y: Any, turns: int, reads: int) -> list[Any]:
    """Sums of a product that a name holds; turn `reads` reads it after its sum."""
    found: list[Any] = []
    held: list[Any] = []
    for turn in range(turns):
        product = x * y
        found.append(product.sum())
        if turn == reads:
            held.append(product + 1.0)
            found.append(held[0].max())
            found.append(np.asarray(product))
        x = x + 0.5
    return [*found, *held]


@pytest.mark.skipif(conditions.native is None, reason="C finds evaluations again")
@pytest.mark.parametrize("reads", [-1, 0, 3, 9, 14, 19])
def test_a_dead_temporary_is_left_by_one_look_up_F3(
    reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elision, "LARGE", 1 << 10)
    evaluate.clear_plans()
    x, y = np.random.default_rng(3).integers(-9, 9, (2, 60, 50)).astype(float)
    expected = products(np, x, y, 20, reads)
    with config.options(eager_below=0, plan_after=0):
        for _ in range(4):
            same(products(lf, lf.array(x), lf.array(y), 20, reads), expected)
        slowly: list[Any] = []
        monkeypatch.setattr(evaluate, "linearize", lambda *what: slowly.append(what))
        if reads < 0:
            same(products(lf, lf.array(x), lf.array(y), 20, -1), expected)
        assert not slowly


@pytest.mark.skipif(conditions.native is None, reason="C finds evaluations again")
def test_warnings_of_what_was_left_come_each_turn_F3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elision, "LARGE", 1 << 10)
    evaluate.clear_plans()
    told: list[list[str]] = []
    for xp in (np, lf):
        x, zero = xp.array(np.arange(4000.0)), xp.zeros(4000)
        with (
            config.options(eager_below=0, plan_after=0),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            for turn in range(16):
                ratio = x / (zero if turn > 11 else x + 1)
                np.isnan(float(ratio.max()))
        told.append([str(each.message) for each in caught])
    assert told[0] == told[1]
    assert told[0]


@pytest.mark.skipif(conditions.native is None, reason="C keeps them")
def test_values_that_are_cheap_to_make_again_are_left_out_again_in_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each turn writes what the one before has left out, and leaves its own value out."""
    seen: list[str] = []
    elide = elision.elide
    monkeypatch.setattr(elision, "elide", lambda *how: seen.append("elide") or elide(*how))

    def program(xp: Any, x: Any) -> list[Any]:
        found = []
        for _ in range(8):
            shown = x[::-1]
            spread = float(shown.std())
            found.append(spread)
            x = (x * 0.99 + spread / (1 + abs(spread))).astype(x.dtype)
        return [np.array(found), np.asarray(x), np.asarray(shown)]

    data = np.random.default_rng(8).normal(size=(300, 300)).astype("f4")
    with config.options(plan_after=0):
        for turn in range(12):
            expected = program(np, data + turn)
            counters.reset()
            seen.clear()
            same(program(lf, lf.array(data + turn)), expected)
    assert counters.totals().decisions[decisions.CHEAP] >= 4
    assert len(seen) <= 3
