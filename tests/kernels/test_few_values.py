"""Sorting of integers of a small range: by counting them, with NumPy's result."""

from __future__ import annotations

import numpy as np
import pytest

from lazyfuse.kernels import sort
from tests.helpers.compare import both
from tests.pairwise import first

COUNT = 20_107


@pytest.fixture(autouse=True)
def _shorter(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 20,000 integers are worth the counting, in several chunks."""
    monkeypatch.setattr(sort, "_LONG", 1 << 12)
    monkeypatch.setattr(sort, "_BLOCK", 1 << 12)


# the text names the dtype: the narrowest, the widest, and those that are not counted
@pytest.mark.parametrize("dtype", first(5, ["i1", "i8", "u2", "u8", "?", "i2", "i4", "u1", "u4"]))
@pytest.mark.parametrize("span", [1, 3, 100, 2300, 1 << 20])
def test_integers(dtype: str, span: int) -> None:
    rng = np.random.default_rng(span)
    limits = np.iinfo("u1" if dtype == "?" else dtype)
    low = max(int(limits.min), int(limits.max) - span)
    given = rng.integers(
        low, min(low + span, int(limits.max)), COUNT, "i8" if low < 1 << 62 else "u8"
    )
    if dtype == "?":
        given = given & 1
    given = given.astype(dtype)
    both(lambda xp, a: xp.sort(a), given)
    both(lambda xp, a: xp.sort(a + a, kind="stable"), given)
    both(lambda xp, a: xp.sort(a[:-7].reshape(300, -1), axis=None), given)
    both(lambda xp, a: xp.sort(a[::-1], kind="heapsort"), given)


def test_uneven_counts_and_gaps() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = rng.integers(-1200, 1200, int(rng.integers(1, 9)))
        weights = rng.random(len(values)) ** 8 + 1e-9
        given = rng.choice(values, COUNT, p=weights / weights.sum())
        both(lambda xp, a: xp.sort(a), given)
        both(lambda xp, a: xp.sort(a.astype("i4")), given)
