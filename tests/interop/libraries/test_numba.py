"""Functions that numba compiles take our arrays as NumPy's, on the same memory."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

import lazyfuse
from tests.helpers.compare import MODES, mode


@pytest.fixture(params=MODES, ids=["default", "recorded"], autouse=True)
def _mode(request: pytest.FixtureRequest) -> Any:
    with mode(request.param):
        yield


@numba.njit
def raised(values: Any) -> Any:
    values += 1
    return values


@numba.njit
def total_of(pair: Any) -> Any:
    return pair[0].sum() + pair[1].sum()


@numba.njit("float64(float64[:])")
def declared(values: Any) -> Any:
    return values.sum()


@numba.vectorize(["float64(float64, float64)"])
def combined(a: Any, b: Any) -> Any:
    return a + 2 * b


@pytest.mark.parametrize("n", [6, 100_000])
def test_writes_are_seen_and_come_in_order(n: int) -> None:
    x = lazyfuse.arange(float(n))
    before, part = x * 2, x[::2]
    out = raised(part)
    assert (part[0], x[0], x[1], before[0]) == (1, 1, 1, 0)
    assert type(out) is np.ndarray
    out[0] = 50
    assert x[0] == 50
    x[0] = 7
    assert out[0] == 7
    after = x + 1
    raised(x)
    assert (after[0], x[0]) == (8, 8)


def test_arrays_that_share_numpys_memory() -> None:
    theirs = np.arange(100_000.0)
    x = lazyfuse.asarray(theirs)
    raised(x)
    assert theirs[:3].tolist() == [1, 2, 3]
    assert raised(theirs) is theirs
    assert x[0] == 2


def test_the_types_and_signatures_are_numpys() -> None:
    x = lazyfuse.arange(6.0)
    known = len(raised.signatures)
    raised(x), raised(np.arange(6.0)), raised(x.reshape(2, 3).T), raised(np.ones((2, 3)).T)
    assert len(raised.signatures) <= known + 2
    assert numba.typeof(x) == numba.typeof(np.arange(6.0))
    assert total_of((x, x)) == 2 * x.sum() == total_of((np.asarray(x), x.to_numpy()))
    assert declared(x) == declared(x.to_numpy()) == x.sum()
    with pytest.raises(TypeError, match="No matching definition"):
        declared(x.astype("f4"))


def test_ufuncs_of_numba() -> None:
    x = lazyfuse.arange(6.0)
    out = lazyfuse.zeros(6)
    assert combined(x, 1).tolist() == [2, 3, 4, 5, 6, 7]
    assert type(combined(x, np.ones(6))) is lazyfuse.ndarray  # type: ignore[attr-defined]
    assert combined(x, x, out=out) is out
    assert out.tolist() == [0, 3, 6, 9, 12, 15]
    assert combined.reduce(x) == combined.reduce(x.to_numpy())


def test_objects_that_are_no_arrays_are_refused_as_ever() -> None:
    with pytest.raises(TypeError):
        declared([1.0, 2.0])
