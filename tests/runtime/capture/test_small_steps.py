"""Plans in which small kernels stand beside large ones: done again as they were observed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.scheduling import evaluate

SIZE = 40_000


def _figures(xp: Any, a: Any, b: Any) -> list[Any]:
    d = a - b
    return [xp.sqrt(xp.sum(d * d)), xp.mean(a), xp.std(a * b), xp.amin(d), xp.amax(d)]


def _answers(xp: Any, *arrays: Any) -> tuple[list[bytes], set[str]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        values = [np.asarray(each).tobytes() for each in _figures(xp, *arrays)]
    return values, {str(each.message) for each in told}


@pytest.mark.usefixtures("at_home")
def test_a_deviation_is_done_again() -> None:
    generator = np.random.default_rng(5)
    a = generator.normal(size=SIZE)
    for turn in range(8):
        b = generator.normal(size=SIZE)
        ours = _answers(lf, lf.array(a), lf.array(b))
        assert ours[0] == _answers(np, a, b)[0], turn
    plans = [plan for plan in evaluate._plans.values() if plan.replays not in (None, -1)]
    assert any(getattr(plan.replays, "found", None) for plan in plans) or conditions.native is None


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e300, -1e308])
def test_conditions_of_small_kernels_are_told_again(value: float) -> None:
    generator = np.random.default_rng(6)
    for turn in range(7):
        a, b = generator.normal(size=(2, SIZE))
        if turn % 3 == 2:
            a[SIZE // 3] = value
        assert _answers(lf, lf.array(a), lf.array(b)) == _answers(np, a, b), turn


@pytest.mark.parametrize("axis", [0, 1])
def test_small_results_along_an_axis(axis: int) -> None:
    generator = np.random.default_rng(7)
    for _ in range(7):
        a = generator.normal(size=(300, 200))
        x = lf.array(a)
        x[1:-1, 1:-1] = x[1:-1, 1:-1] / (1.0 + x.max(axis=axis, keepdims=True)[:1, :1])
        total = (x.sum(axis=axis) / 3.0 + 1.0) * 2.0
        y = a.copy()
        y[1:-1, 1:-1] = y[1:-1, 1:-1] / (1.0 + y.max(axis=axis, keepdims=True)[:1, :1])
        assert np.asarray(total).tobytes() == ((y.sum(axis=axis) / 3.0 + 1.0) * 2.0).tobytes()
        assert np.asarray(x).tobytes() == y.tobytes()


@pytest.mark.usefixtures("at_home")
def test_a_run_that_writes_numbers_to_parts_is_captured() -> None:
    def waves(xp: Any, turns: int) -> Any:
        ey, hz = xp.ones((200, 220)), xp.arange(44000.0).reshape(200, 220)
        for t in range(turns):
            ey[0, :] = t * 0.5
            ey[:, -1] = xp.float64(3.0)
            ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
            hz[:-1, :-1] -= 0.7 * (ey[1:, :-1] - ey[:-1, :-1])
        return hz

    before = counters.totals().decisions[decisions.REPLAYED]
    for _ in range(4):
        assert np.asarray(waves(lf, 40)).tobytes() == waves(np, 40).tobytes()
    assert counters.totals().decisions[decisions.REPLAYED] > before or conditions.native is None
