"""NumPy's own `errstate` around lazyfuse's: what ends unheard holds nothing back afterwards."""

from __future__ import annotations

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import deferred


def test_selections_are_deferred_again_once_the_outer_state_has_ended() -> None:
    x = lf.asarray(np.random.default_rng(0).normal(size=400_000)) * 2.0
    with np.errstate(all="ignore"), lf.errstate(divide="ignore"):
        pass
    assert deferred.may_defer(x, x > 0)
    assert float(x[x > 0].max()) == float(np.asarray(x).max())


def test_a_state_that_raises_is_heard_inside() -> None:
    x = lf.asarray(np.full(400_000, 1e308))
    with np.errstate(all="ignore"), lf.errstate(over="raise"), pytest.raises(FloatingPointError):
        np.asarray(x * 10.0)
    with pytest.warns(RuntimeWarning, match="overflow"):
        np.asarray(x * 10.0)
