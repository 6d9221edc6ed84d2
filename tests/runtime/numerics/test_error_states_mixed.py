"""NumPy's own `errstate` around lazyfuse's: what ends unheard holds nothing back afterwards."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays import mask_selection


def test_selections_are_deferred_again_once_the_outer_state_has_ended() -> None:
    x = lf.asarray(np.random.default_rng(0).normal(size=400_000)) * 2.0
    with np.errstate(all="ignore"), lf.errstate(divide="ignore"):
        pass
    assert mask_selection.may_defer(x, x > 0)
    assert float(x[x > 0].max()) == float(np.asarray(x).max())


def test_a_state_that_raises_is_heard_inside() -> None:
    x = lf.asarray(np.full(400_000, 1e308))
    with np.errstate(all="ignore"), lf.errstate(over="raise"), pytest.raises(FloatingPointError):
        np.asarray(x * 10.0)
    with pytest.warns(RuntimeWarning, match="overflow"):
        np.asarray(x * 10.0)


@pytest.mark.parametrize("ignored", ["all", "invalid"])
def test_what_numpy_s_own_state_ignores_is_never_told(ignored: str) -> None:
    """Recorded within `numpy.errstate`, looked at after it; more turns than questions are asked."""
    data = np.random.default_rng(0).normal(size=(200, 200))
    data[3, 4], data[5, 6], data[7] = np.nan, np.inf, 0.0

    def over(xp: Any, x: Any) -> Any:
        return x[1:] / x[:-1]

    def written(xp: Any, x: Any) -> Any:
        x[:50] = x[50:100] / x[:50]
        return x

    def reduced(xp: Any, x: Any) -> Any:
        return (x / x).std()

    def called(xp: Any, x: Any) -> Any:
        return xp.linalg.norm(x / (x * 0.0))

    def in_place(xp: Any, x: Any) -> Any:
        x /= x * 0.0
        return x

    for function in (over, written, reduced, called, in_place):
        told = []
        for xp in (np, lf):
            for _ in range(7):
                x = xp.array(data)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    with np.errstate(**{ignored: "ignore"}):
                        result = function(xp, x)
                    np.asarray(result)
                told.append({str(each.message) for each in caught})
        assert told[:7] == told[7:], function.__name__
