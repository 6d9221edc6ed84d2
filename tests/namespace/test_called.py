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
from lazyfuse.runtime.events import counters
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


@pytest.mark.parametrize("name", CALLS)
def test_operands_that_wait_are_evaluated_first(name: str) -> None:
    expected = CALLS[name](np, VALUES * 2 + 1)
    x = evaluated()
    done = followed()
    for _ in range(6):
        found = CALLS[name](lf, x * 2 + 1)
        pairs = zip(found, expected, strict=True) if type(found) is tuple else [(found, expected)]
        for ours, theirs in pairs:
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
    assert followed() > done


def test_operands_that_wait_warn_once() -> None:
    x = evaluated(np.abs(VALUES))
    for _ in range(6):
        with pytest.warns(RuntimeWarning, match="divide by zero") as told:
            lf.take(x / 0, [0, 1], axis=0)
        assert len(told) == 1


BOTH: dict[str, Callable[..., Any]] = {
    "nanmean": lambda xp, x: xp.nanmean(x),
    "nanmean of rows": lambda xp, x: xp.nanmean(x, axis=1),
    "nanmax": lambda xp, x: xp.nanmax(x, axis=0),
    "nanstd": lambda xp, x: xp.nanstd(x),
    "nanvar": lambda xp, x: xp.nanvar(x, axis=0, ddof=1),
    "average": lambda xp, x: xp.average(x[2:], weights=abs(x[2:])),
    "tensordot": lambda xp, x: xp.tensordot(x, x[1], 1),
    "einsum": lambda xp, x: xp.einsum("ij,ij->i", x, x),
}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("holes", [0, 1, 2])
@pytest.mark.parametrize("waits", [False, True])
def test_both_ways_give_the_same(name: str, holes: int, waits: bool) -> None:
    """Calls that look at values are done by our function or by NumPy's, whichever is quicker:
    values, types and warnings are the same.
    """
    values = VALUES.copy()
    values[3 : 3 + holes] = np.nan
    values[:, 4 : 4 + holes] = np.nan
    values[: 2 * holes, 9] = np.inf

    def told(xp: Any, x: Any) -> tuple[Any, ...]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = BOTH[name](xp, x * 3 if waits else x)
            values = np.asarray(found)
        messages = [(each.category, str(each.message), each.lineno) for each in caught]
        return type(found) is xp.ndarray, values.dtype, values.tobytes(), messages

    expected, x = told(np, values), evaluated(values)
    for _ in range(20):
        assert told(lf, x) == expected


def test_numbers_of_evaluated_arrays_are_numpys() -> None:
    x = evaluated()
    runs = counters.totals().evaluations
    for _ in range(6):
        found = x.max(), x.sum(), lf.argmin(x), lf.min(x)
    assert counters.totals().evaluations == runs
    assert found == (VALUES.max(), VALUES.sum(), VALUES.argmin(), VALUES.min())
    with config.options(lazy_numbers=True):
        assert type(x.sum()) is not np.float64


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


def test_whole_writes_share_values_until_one_is_written() -> None:
    for values in (VALUES, (VALUES + 1j * VALUES)):
        kept = []
        for turn in range(6):
            source, target = evaluated(values), evaluated(values * 0)
            target[...] = source if turn % 2 else source.real
            target[0, 0] = 7
            source[1, 1] = 8
            kept.append((np.asarray(target), np.asarray(source)))
        for turn, (target, source) in enumerate(kept):
            expected = values * 0 + (values if turn % 2 else values.real)
            expected[0, 0] = 7
            assert target.tobytes() == expected.tobytes()
            assert source[1, 1] == 8
            assert source[0, 0] == values[0, 0]


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
