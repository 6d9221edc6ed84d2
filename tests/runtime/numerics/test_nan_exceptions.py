"""Data with NaN: what compares or divides it tells of no condition that NumPy does not tell of."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from tests.helpers.states import recording_all

CASES: dict[str, Callable[[Any, Any, Any, float], Any]] = {
    "argmax": lambda xp, a, b, s: (b + a * s).argmax(),
    "argmin": lambda xp, a, b, s: (b + a).argmin(),
    "argmax of a broadcast row": lambda xp, a, b, s: (b[:, :1] + a * s).argmax(),
    "argmin of a sorted array": lambda xp, a, b, s: (b + xp.sort(a * s, axis=0)).argmin(),
    "argmax along an axis": lambda xp, a, b, s: (b + a * s).argmax(axis=0),
    "max": lambda xp, a, b, s: (b + a * s).max(),
    "nanmin": lambda xp, a, b, s: xp.nanmin(b + a * s),
    "remainder": lambda xp, a, b, s: xp.remainder(a * s, b + 1),
    "divmod": lambda xp, a, b, s: xp.divmod(a * s, b + 1),
}


def _told(xp: Any, case: Callable[..., Any], data: Any) -> list[list[str]]:
    """The warnings of each of nine calls: more than the oracle is asked about one kernel."""
    found = []
    for turn in range(9):
        first, second = xp.array(data), xp.array(data[::-1].copy())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = case(xp, first, second, data.dtype.type(0.1 * turn + 0.5))
            for result in results if isinstance(results, tuple) else (results,):
                np.asarray(result)
        found.append([str(each.message) for each in caught])
    return found


# Whose text is a part of another's: of the broadcast row's and the sorted array's extremes, of the
# largest value and of divmod.
PARTS = ("argmax", "argmin", "nanmin", "remainder")


# A case in one dtype: the texts for the two differ by the name of the type.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=() if usual else pytest.mark.long)
        for at, name in enumerate(CASES)
        for turn, dtype in enumerate(("f8", "f4"))
        for usual in [at % 2 == turn and name not in PARTS]
    ],
)
def test_no_condition_is_invented(name: str, dtype: str) -> None:
    data = np.random.default_rng(0).normal(size=(150, 190)).astype(dtype)
    data[3, 5] = data[100, 7] = np.nan
    with recording_all():
        assert _told(lf, CASES[name], data) == _told(np, CASES[name], data)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_remainders_of_all_signs(dtype: str) -> None:
    """Signs are compared in bits: every pair of special values gives NumPy's bits, the signs of
    NaNs aside."""
    few = [0.0, -0.0, 1.0, -1.0, 3.5, -3.5, 1e-300, -1e-300, np.inf, -np.inf, np.nan, 7.0, -7.0]
    pairs = np.tile(np.array(list(itertools.product(few, few))).astype(dtype), (200, 1))
    with np.errstate(all="ignore"), recording_all():
        theirs = np.remainder(pairs[:, 0] * 2, pairs[:, 1])
        ours = np.asarray(lf.remainder(lf.array(pairs[:, 0]) * 2, lf.array(pairs[:, 1])))
    assert np.array_equal(ours, theirs, equal_nan=True)
    some = ~np.isnan(theirs)
    assert np.array_equal(np.signbit(ours[some]), np.signbit(theirs[some]))
