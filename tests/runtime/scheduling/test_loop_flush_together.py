"""Turns of elementwise loops join one kernel while they read and leave no arrays of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.runtime.events import counters, decisions

SIZE = 60_000


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with lf.options(eager_below=0):
        lf.evaluate()
        yield


def flushes() -> int:
    return counters.totals().flushes[decisions.LOOP]


def several(xp: Any, x: Any, turns: int) -> Any:
    a, b = x * 0.0, x + 0.0
    for _ in range(turns):
        aa = a * a
        bb = b * b
        inside = aa + bb <= 4.0
        a = xp.where(inside, aa - bb + x, a)
        b = xp.where(inside, b * 0.5, b)
    return a + b


@pytest.mark.parametrize("turns", [9, 26, 60])
def test_turns_in_one_kernel_have_the_values_of_numpy(turns: int) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, SIZE)
    found = np.asarray(several(lf, lf.array(x), turns))
    assert found.tobytes() == several(np, x, turns).tobytes()


def test_a_loop_that_fits_a_kernel_is_not_cut() -> None:
    x = lf.array(np.random.default_rng(2).uniform(-1, 1, SIZE))
    before = flushes()
    kept = several(lf, x, 20)
    assert flushes() == before
    np.asarray(kept)
    kept = several(lf, x, 60)
    assert before < flushes() <= before + 4


def test_turns_that_bring_arrays_are_run_every_eighth() -> None:
    parts = [lf.array(np.full(SIZE, float(k))) for k in range(30)]
    total = lf.zeros(SIZE)
    before = flushes()
    for part in parts:
        total = total + part * 2.0
    assert flushes() >= before + 2
    assert np.asarray(total)[5] == 2.0 * sum(range(30))


def test_turns_that_leave_arrays_are_run_every_eighth() -> None:
    x = lf.array(np.arange(float(SIZE)))
    before = flushes()
    kept = [x + k for k in range(30)]
    assert flushes() >= before + 2
    assert [float(each[1]) for each in kept] == [1.0 + k for k in range(30)]


def test_what_a_turn_leaves_behind_may_be_read_later() -> None:
    x = np.random.default_rng(3).uniform(-1, 1, SIZE)

    def work(xp: Any, x: Any) -> Any:
        y, seen = x, None
        for turn in range(70):
            z = y * 0.75
            y = z + x
            if turn == 33:
                seen = z
        return y, z, seen

    for found, expected in zip(work(lf, lf.array(x)), work(np, x), strict=True):
        assert np.asarray(found).tobytes() == expected.tobytes()
