"""`median`, `quantile`, `percentile` of all elements: NumPy's bits, whatever the elements are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices
from tests.helpers.compare import both
from tests.pairwise import first

COUNT = 40_020


pytestmark = pytest.mark.usefixtures("threads")


def _elements(kind: str) -> Any:
    rng = np.random.default_rng(3)
    plain = rng.standard_normal(COUNT)
    return {
        "normal": plain,
        "wide": np.exp(plain * 100),
        "few": np.round(plain * 3) + 0.5,
        "zeros": np.where(plain > 0.5, plain, -0.0),
        "signed zeros": np.where(plain > 1, plain, np.copysign(0.0, plain)),
        "equal": np.full(COUNT, 3.25),
        "endless": np.where(plain > 0, np.inf, -np.inf),
        "some endless": np.where(np.abs(plain) > 2, plain * np.inf, plain),
        "absent": np.where(plain > 3, np.nan, plain),
        "small": plain * 1e-310,
    }[kind]


_KINDS = "normal wide few zeros equal endless absent small".split()
_KINDS += ["signed zeros", "some endless"]


@pytest.mark.parametrize("kind", _KINDS)
def test_floats(kind: str) -> None:
    given = _elements(kind)
    for dtype in ("f8", "f4"):
        with np.errstate(all="ignore"):
            narrow = given.astype(dtype)
            both(lambda xp, a: xp.median(a), narrow, warned=False)
            both(lambda xp, a: xp.median(a[1:] + a[1:]), narrow, warned=False)
            both(lambda xp, a: xp.percentile(a, 30), narrow, warned=False)
    with np.errstate(all="ignore"):
        for q in (0.0, 0.25, 0.5, 0.7123, 1.0, [0.1, 0.9], np.array([[0.3, 0.999]])):
            both(lambda xp, a, q=q: xp.quantile(a, q), given, warned=False)
        both(lambda xp, a: xp.percentile(a, [1, 50, 99.5]), given, warned=False)


@pytest.mark.parametrize("dtype", first(3, ["i8", "u4", "u1", "i4", "u8"]))
def test_integers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    for high in (100, int(limits.max)):
        rng = np.random.default_rng(high)
        given = rng.integers(limits.min if high > 100 else 0, high, COUNT, dtype, endpoint=True)
        both(lambda xp, a: xp.median(a), given)
        both(lambda xp, a: xp.median(a[1:]), given)
        both(lambda xp, a: xp.quantile(a, 0.3), given)


def test_other_calls() -> None:
    given = _elements("normal")
    for axis in (0, -1, None):
        both(lambda xp, a, axis=axis: xp.median(a, axis), given)
    for axis in (0, 1, (0, 1), None):
        both(lambda xp, a, axis=axis: xp.median(a.reshape(-1, 4), axis), given)
    both(lambda xp, a: xp.median(a, keepdims=True), given)
    both(lambda xp, a: xp.median(a.reshape(-1, 4).T), given)
    both(lambda xp, a: xp.quantile(a, 0.3, method="nearest"), given)
    both(lambda xp, a: xp.quantile(a, 1.3), given)
    both(lambda xp, a: xp.percentile(a, -1), given)
    both(lambda xp, a: xp.quantile(a, 1), given)


def test_they_are_compiled() -> None:
    """Where the CPU's compiler is there."""
    before = counters.totals().languages["routine"]
    assert lazyfuse.median(lazyfuse.array(_elements("normal"))) == np.median(_elements("normal"))
    ready = "numba" in devices.cpu().traits.languages
    assert (counters.totals().languages["routine"] > before) == ready
