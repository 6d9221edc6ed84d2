"""Plans that are one chain of tiles, run again without deciding anything (tiled_run.Again)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.runtime.execution import tiled_run
from tests.pairwise import first

SHAPE = (900, 250)


def normalised(xp: Any, x: Any, factor: float) -> Any:
    centred = x - xp.mean(x, axis=1, keepdims=True)
    spread = xp.mean(centred * centred, axis=1, keepdims=True)
    return centred / xp.sqrt(spread + 1e-5) * factor


def shares(xp: Any, x: Any, factor: float) -> Any:
    return x / xp.sum(x, axis=1, keepdims=True) * factor


def transposed(xp: Any, x: Any, factor: float) -> Any:
    y = x.T
    return (y - y.max(axis=1, keepdims=True)) * factor


def running(xp: Any, x: Any, factor: float) -> Any:
    return xp.cumsum(x * factor, axis=1) - x.mean(axis=1, keepdims=True)


# `normalised` is met in other shapes and orders
PROGRAMS = (shares, transposed, running, normalised)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each start of a kept chain ran."""
    found: list[bool] = []
    start = tiled_run.BoundChain.start

    def watched(self: tiled_run.BoundChain, env: list[Any]) -> Any:
        flags = start(self, env)
        found.append(flags is not None)
        return flags

    monkeypatch.setattr(tiled_run.BoundChain, "start", watched)
    return found


def operand(seed: int, shape: tuple[int, int] = SHAPE) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("program", first(3, PROGRAMS))
def test_other_values_and_numbers_have_numpys_bits(
    program: Callable[..., Any], starts: list[bool]
) -> None:
    for turn in range(6):
        a, factor = operand(turn), 0.5 + turn
        x = lf.array(a)
        found = program(lf, x, factor).to_numpy()
        expected = program(np, a, factor)
        np.testing.assert_array_equal(found, expected)
        assert found.strides == expected.strides
        np.testing.assert_array_equal(x.to_numpy(), a)
    assert all(starts)


def test_results_that_are_held_keep_their_values() -> None:
    arrays = [operand(seed) for seed in range(5)]
    held = [lf.array(each) for each in arrays]
    results = [shares(lf, each, 2.0) for each in held]
    found = [each.to_numpy() for each in results]
    for got, a in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(got, shares(np, a, 2.0))


def test_other_shapes_and_orders() -> None:
    for shape in (SHAPE, (250, 900), (1500, 150), SHAPE, (250, 900)):
        for seed in range(3):
            a = operand(seed, shape)
            for order in (a, np.asfortranarray(a)):
                x = lf.array(order)
                found = normalised(lf, x, 1.5).to_numpy()
                np.testing.assert_array_equal(found, normalised(np, order, 1.5))


def test_conditions_are_told_each_time() -> None:
    a = operand(0)
    a[7] = 0.0
    x = lf.array(a)
    for turn in range(6):
        b = a if turn % 2 == 0 else operand(turn)
        x = lf.array(b)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = shares(lf, x, 2.0).to_numpy()
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, shares(np, b, 2.0))
        told = {str(each.message).partition(" encountered")[0] for each in seen}
        assert told == ({"invalid value"} if turn % 2 == 0 else set())


def test_the_switches(starts: list[bool]) -> None:
    a = operand(1)
    x = lf.array(a)
    for _ in range(4):
        shares(lf, x, 3.0).to_numpy()
    for off in ({"pipelining": False}, {"capture": False}, {"validate": True}):
        starts.clear()
        with lf.options(**off):
            np.testing.assert_array_equal(shares(lf, x, 3.0).to_numpy(), shares(np, a, 3.0))
        assert not any(starts)
    np.testing.assert_array_equal(shares(lf, x, 3.0).to_numpy(), shares(np, a, 3.0))
