"""Calls that NumPy does at once: C has it do them, on the values of the operands."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.arrays import base
from tests.arrays.test_steps import followed

pytestmark = pytest.mark.skipif(not base.COMPILED, reason="only the native extension follows calls")

VALUES = np.random.default_rng(3).normal(size=(20, 30))


@pytest.fixture(autouse=True)
def from_the_first_call() -> Iterator[None]:
    with config.options(tape_after=1, eager_below=100, plan_after=0):
        yield


def evaluated(values: Any = VALUES) -> Any:
    """An array of ours that is no eager one, and has its values."""
    x = lf.array(values)
    lf.evaluate(x)
    return x


CALLS: dict[str, Callable[..., Any]] = {
    "join": lambda xp, x: xp.concatenate([x[1:], x[:1]]),
    "join of parts": lambda xp, x: xp.hstack([x[:, 10:], x[:, :10]]),
    "append": lambda xp, x: xp.append(x.ravel()[1:], x[0, 0]),
    "isin": lambda xp, x: xp.isin(x, [x[0, 0], 1.0]),
    "digitize": lambda xp, x: xp.digitize(x, [-1.0, 0.0, 1.0]),
    "histogram": lambda xp, x: xp.histogram(x, 7),
    "polyfit": lambda xp, x: xp.polyfit(x[0], x[1], 2),
    "solve": lambda xp, x: xp.linalg.solve(x[:, :20], x[:, 20]),
    "lexsort": lambda xp, x: xp.lexsort((x[0], x[1])),
    "product": lambda xp, x: x @ xp.ones((30, 3), x.dtype),
    "dot": lambda xp, x: xp.dot(x, x.T),
    "picks": lambda xp, x: x[xp.arange(0, 20, 3)],
    "rows taken": lambda xp, x: xp.take(x, xp.arange(20)[::-1], axis=0),
    "apart": lambda xp, x: xp.unravel_index(xp.argmax(x), x.shape),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_values_and_dtypes_are_numpys(name: str, dtype: str) -> None:
    values = (VALUES * 100).astype(dtype)
    expected = CALLS[name](np, values.copy())
    x = evaluated(values)
    for _ in range(5):
        found = CALLS[name](lf, x)
        assert isinstance(found, tuple) == isinstance(expected, tuple)
        pairs = zip(found, expected, strict=True) if type(found) is tuple else [(found, expected)]
        for ours, theirs in pairs:
            assert type(ours) is (lf.ndarray if type(theirs) is np.ndarray else type(theirs))
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
    assert np.asarray(x).tobytes() == values.tobytes()


def test_c_has_numpy_do_them_and_counts_them() -> None:
    def counted() -> int:
        return sum([n for (name, _, _), n in lf.fallbacks().items() if name == "linalg.cond"])

    x = evaluated()
    done, before = followed(), counted()
    for _ in range(6):
        lf.linalg.cond(x[:, :20])
    assert followed() >= done + 4
    assert counted() == before + 6


def test_what_is_part_of_our_functions_is_not_counted() -> None:
    """NumPy multiplies and picks for functions of ours: C has it do so, and counts nothing."""
    x, i = evaluated(), lf.array(np.arange(0, 20, 3))
    for call in (
        lambda: x @ x.T,
        lambda: x[i],
        lambda: lf.vdot(x, x),
        lambda: lf.linalg.norm(x),
    ):
        for _ in range(3):
            call()
        done, before = followed(), lf.fallbacks()
        for _ in range(4):
            call()
        assert followed() >= done + 4
        assert lf.fallbacks() == before


def test_results_have_memory_of_their_own() -> None:
    x = evaluated()
    joined = [lf.concatenate([x[1:], x[:1]]) for _ in range(4)]
    joined[0][0] = 7
    x[...] = 0
    for each in joined[1:]:
        assert np.asarray(each).tobytes() == np.roll(VALUES, -1, 0).tobytes()
    assert (np.asarray(joined[0])[0] == 7).all()


def test_operands_are_not_written() -> None:
    x = evaluated()
    kept = x + 0.0  # recorded: it reads the values before the call
    expected = np.median(VALUES)
    for _ in range(5):
        assert lf.median(x, overwrite_input=True) == expected
        assert lf.median(x, None, None, True) == expected
        assert lf.quantile(x, 0.5, None, None, True) == expected
    assert np.asarray(kept).tobytes() == VALUES.tobytes()


def test_views_stay_views() -> None:
    x = evaluated()
    for turn in range(5):
        lf.broadcast_arrays(x, x)
        part = lf.lib.stride_tricks.sliding_window_view(x, (2, 2))
        x[0, 0] = turn
        assert part[0, 0, 0, 0] == turn


def test_errors_and_warnings_are_those_of_each_call() -> None:
    x = evaluated()
    for _ in range(5):
        with pytest.raises(ValueError, match="must be monotonically"):
            lf.digitize(x, [1.0, 0.0, 2.0])
        told = []
        for xp, values in ((np, VALUES), (lf, x)):
            constant = xp.ones(30)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                xp.polyfit(constant, values[1], 2)
            told.append([(each.category, each.filename, each.lineno) for each in caught])
        assert told[0] == told[1] != []


def test_a_call_whose_result_changes_its_kind_is_pythons() -> None:
    x = evaluated()
    for turn in range(6):
        if turn == 4:
            x *= 2  # pending
        found = lf.digitize(x, [0.0])
        assert np.asarray(found).tobytes() == np.digitize(VALUES, [0.0]).tobytes()
