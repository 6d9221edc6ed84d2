"""`interp`: NumPy's bits for any table, ends, periods; and tables that are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices
from tests.helpers.compare import both
from tests.pairwise import first

COUNT = 20_012


pytestmark = pytest.mark.usefixtures("threads")


def _points(dtype: str = "f8") -> Any:
    found = np.random.default_rng(3).standard_normal(COUNT) * 3
    if dtype[0] == "f":
        found[::97], found[1::97], found[2::97], found[3::97] = np.nan, np.inf, -np.inf, -0.0
    return found.astype(dtype) if dtype[0] != "u" else np.abs(found).astype(dtype)


# values are converted to float64 one by one, all others alike: those that need it and those not
@pytest.mark.parametrize("dtype", first(2, ["f8", "u1", "f4", "i8", "i2"]))
@pytest.mark.parametrize("entries", [1, 2, 5, 700])
def test_tables(dtype: str, entries: int) -> None:
    rng = np.random.default_rng(entries)
    xp, fp = np.sort(rng.standard_normal(entries)), rng.standard_normal(entries)
    both(lambda xp_, a, x, y: xp_.interp(a, x, y), _points(dtype), xp, fp)
    both(lambda xp_, a, x, y: xp_.interp(a * 2, x, y, -7, 9.5) + 1, _points(dtype), xp, fp)
    both(lambda xp_, a, x, y: xp_.interp(a, x, y, period=1.5), _points(dtype), xp, fp)
    both(lambda xp_, a, x, y: xp_.interp(a.reshape(3, -1).T, x, y), _points(dtype)[:-2], xp, fp)


def test_strange_tables() -> None:
    """Equal places, infinities, values on the places, heights that are not finite."""
    rng = np.random.default_rng(8)
    for round_ in range(40):
        entries = int(rng.integers(2, 40))
        xp = np.sort(rng.integers(-4, 5, entries) / 2.0)
        fp = rng.standard_normal(entries)
        if round_ % 2:
            xp[-1] = np.inf
        if round_ % 3 == 0:
            xp[0] = -np.inf
        if round_ % 4 == 0:
            fp[rng.integers(0, entries, 3)] = rng.choice([np.nan, np.inf, -np.inf])
        given = _points()
        given[::5] = rng.choice(xp, given[::5].size)
        with np.errstate(all="ignore"):
            both(lambda xp_, a, x, y: xp_.interp(a, x, y), given, xp, fp)


def test_tables_that_are_left_to_numpy() -> None:
    given, heights = _points(), np.arange(5.0)
    for xp in ([3.0, 1.0, 2.0, 0.0, 9.0], [0.0, 1.0, np.nan, 2.0, 3.0]):
        both(lambda xp_, a, x, y: xp_.interp(a, x, y), given, np.array(xp), heights)
    both(lambda xp_, a, x, y: xp_.interp(a, x, y * 1j), given, np.arange(5.0), heights)
    both(lambda xp_, a, x, y: xp_.interp(a, x, y, period=0), given, np.arange(5.0), heights)
    both(lambda xp_, a, x, y: xp_.interp(a, x, y[1:]), given, np.arange(5.0), heights)


def test_it_is_compiled() -> None:
    """Where the CPU's compiler is there."""

    before = counters.totals().languages["routine"]
    np.asarray(lazyfuse.interp(lazyfuse.array(_points()), np.arange(5.0), np.ones(5)))
    ready = "numba" in devices.cpu().traits.languages
    assert (counters.totals().languages["routine"] > before) == ready
