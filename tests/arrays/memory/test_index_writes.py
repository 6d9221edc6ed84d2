"""Writes at indices, of arrays that share values with others: nobody else sees them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config

SHAPES = [(400,), (60, 7)]


def _program(xp: Any, seed: int) -> list[Any]:
    """Statements, drawn once and repeated, so that calls come round; all values at the end."""
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    shape = pick.choice(SHAPES)
    arrays = [xp.array(rng.integers(0, 9, shape).astype("f8")) for _ in range(3)]
    places = [xp.array(rng.permutation(shape[0])), xp.array(rng.integers(-9, 9, 30))]
    held: list[Any] = []
    drawn = [(pick.randrange(11), pick.randrange(3), pick.randrange(3)) for _ in range(6)]
    for turn in range(6):
        for kind, to, of in drawn:
            everywhere, some = places
            if kind == 0:
                arrays[to] = arrays[of].copy()
            elif kind == 1:
                arrays[to][everywhere] = arrays[of]
            elif kind == 2:
                arrays[to][some] = turn
            elif kind == 3:
                arrays[to][some] = arrays[of][some]
            elif kind == 4:
                arrays[to] = arrays[of] * 2 - arrays[to]  # waits
            elif kind == 5:
                arrays[to][everywhere] = arrays[of][::-1]
            elif kind == 6:
                held = [*held[-3:], arrays[to][3:]]
            elif kind == 7:
                held = [*held[-3:], np.asarray(arrays[to])]
            elif kind == 8 and held:
                held[-1][some[:5]] = turn + 0.5
            elif kind == 9:
                arrays[to][everywhere] = everywhere if arrays[to].ndim == 1 else 3
            elif kind == 10:
                arrays[to][...] = arrays[of]
    return [np.array(each) for each in (*arrays, *held)]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("after", [1, 3])
def test_random_programs(part: int, after: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        with config.options(eager_below=64, plan_after=0, tape_after=after):
            found = _program(lf, seed)
        expected = _program(np, seed)
        assert [x.tobytes() for x in found] == [x.tobytes() for x in expected], seed


def test_indices_that_are_out_of_bounds_write_nothing() -> None:
    with config.options(eager_below=64):
        x = lf.array(np.arange(500.0))
        lf.evaluate(x)
        y, places = x.copy(), lf.array(np.array([1, 2, 500] * 100))
        for _ in range(4):
            with pytest.raises(IndexError, match="index 500 is out of bounds"):
                y[places] = x[:300]
        assert np.asarray(y).tobytes() == np.asarray(x).tobytes() == np.arange(500.0).tobytes()
