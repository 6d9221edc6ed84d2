"""Masked arrays, matrices and C arrays made of ours: they look at the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from tests.helpers.compare import MODES, mode

pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")

MAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "asmatrix": lambda xp, x: xp.asmatrix(x),
    "matrix": lambda xp, x: xp.matrix(x),
    "ma.array": lambda xp, x: xp.ma.array(x),
    "ma.array of a list": lambda xp, x: xp.ma.array([x, x]),
    "ma.asarray": lambda xp, x: xp.ma.asarray(x),
    "MaskedArray": lambda xp, x: xp.ma.MaskedArray(x, mask=False),
    "masked_where": lambda xp, x: xp.ma.masked_where(x > 1e9, x, copy=False),
    "masked_where, a copy": lambda xp, x: xp.ma.masked_where(x > 1e9, x),
    "masked_invalid": lambda xp, x: xp.ma.masked_invalid(x, copy=False),
    "ma.ravel": lambda xp, x: xp.ma.ravel(x),
    "as_ctypes": lambda xp, x: xp.ctypeslib.as_array(xp.ctypeslib.as_ctypes(x)),
}


def _history(xp: Any, name: str, size: int) -> list[float]:
    x = xp.arange(float(size))
    later = x + 1
    made = MAKERS[name](xp, x)
    made.flat[0] = 100
    x[1] = 55
    last = x * 2
    made.flat[2] = -1
    seen = [x[0], x[2], later[0], later[1], made.flat[0], made.flat[1], last[1], last[2]]
    return [float(each) for each in seen]


@pytest.mark.parametrize("size", [10, 30000])
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("eager_below", MODES)
def test_writes_are_seen_on_both_sides_and_nowhere_else(
    name: str, size: int, eager_below: int | None
) -> None:
    with mode(eager_below):
        assert _history(lf, name, size) == _history(np, name, size)


@pytest.mark.parametrize("eager_below", MODES)
def test_a_mask_of_ours(eager_below: int | None) -> None:
    results = []
    for xp in (np, lf):
        with mode(eager_below):
            x = xp.arange(30000.0)
            mask = x > 3
            masked = xp.ma.array(x, mask=mask)
            inverse = ~mask
            masked[0] = xp.ma.masked
            mask[1] = True
            results.append(
                [masked.count(), int(inverse.sum()), int(mask.sum()), float(masked.sum())]
            )
    assert results[0] == results[1]


def test_names_in_a_text_are_the_callers() -> None:
    a, b = lf.ones((2, 2)), lf.zeros((2, 2))
    made = lf.r_["a, b; b, a"]
    assert isinstance(made, lf.matrix)
    assert made.tolist() == np.block([[a, b], [b, a]]).tolist()
