"""Running sums and products by compiled loops: NumPy's order, bits and warnings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lazyfuse import config
from lazyfuse.runtime.events import counters
from tests.helpers.compare import both
from tests.pairwise import first

SHAPES = ((50_021,), (1, 40_001), (40_001, 1), (201, 203), (7, 5, 1201), (3, 20_011), (20_011, 3))


def values(dtype: str, shape: tuple[int, ...], special: str = "") -> Any:
    rng = np.random.default_rng(2)
    found: Any = rng.standard_normal(shape) * 100
    flat = found.reshape(-1)
    if special == "nan":
        flat[::997], flat[::337] = np.nan, -0.0
    elif special == "inf":
        flat[5::9973], flat[7::9973] = np.inf, -np.inf
    if dtype[0] == "c":
        found = found + 1j * rng.standard_normal(shape)
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


# small whole numbers differ by the cast of one element: all shapes of one of them, a row of truth
# values; bytes are cast in other sums, below
ALONG = [(dtype, shape) for dtype in ("f8", "f4", "i4", "c16") for shape in SHAPES]
ALONG += [("?", SHAPES[0]), ("u1", SHAPES[0])]
ALONG += [(dtype, shape) for dtype in ("u1", "?") for shape in SHAPES[1:]]


@pytest.mark.parametrize("along", first(4 * len(SHAPES) + 1, ALONG), ids=str)
def test_along_every_axis(along: tuple[str, tuple[int, ...]], threads: int) -> None:
    dtype, shape = along
    given = values(dtype, shape)
    for axis in (None, *range(-1, len(shape))):
        both(lambda xp, a, axis=axis: xp.cumsum(a, axis=axis), given)
        both(lambda xp, a, axis=axis: (a + a).cumprod(axis=axis), given)


@pytest.mark.parametrize("special", ["nan", "inf"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_conditions_are_told(special: str, dtype: str, axis: int | None) -> None:
    """Overflow, invalid operations, and underflow where it is wanted."""
    given = values(dtype, (211, 203), special)
    both(lambda xp, a: xp.cumsum(a, axis=axis), given)
    both(lambda xp, a: xp.cumprod(a, axis=axis), given)
    large = 1e306 if dtype == "f8" else 1e36
    both(lambda xp, a: xp.cumsum(a * large, axis=axis), given)
    with np.errstate(under="warn"):
        both(lambda xp, a: xp.cumprod(xp.abs(a) / 1000, axis=axis), given)


# one text with two names of dtypes: each kind of cast, up and down
CASTS = [
    ("f4", "f8"), ("f4", "i8"), ("f8", "f4"), ("f8", "c16"), ("i4", "i2"), ("u1", "f4"),
    ("i4", "f8"), ("u1", "i8"), ("f4", "f4"), ("f4", "i2"), ("f4", "c16"), ("f8", "f8"),
    ("f8", "i8"), ("f8", "i2"), ("i4", "f4"), ("i4", "i8"), ("i4", "c16"), ("u1", "f8"),
    ("u1", "i2"), ("u1", "c16"),
]  # fmt: skip


@pytest.mark.parametrize("cast", first(6, CASTS))
def test_other_sums(cast: tuple[str, str]) -> None:
    dtype, asked = cast
    both(lambda xp, a: xp.cumsum(a, axis=1, dtype=asked), values(dtype, (201, 203)))


@pytest.mark.smoke
def test_views_and_orders() -> None:
    given = values("f8", (120_000,))
    both(lambda xp, a: xp.cumsum(a.reshape(300, 400).T, axis=1), given)
    both(lambda xp, a: xp.cumsum(a[::2]), given)
    both(lambda xp, a: xp.cumsum(a[::-1]) * 2.0, given)

    def rolling(xp: Any, a: Any) -> Any:
        total = xp.cumsum(a, axis=0)
        return (total[16:] - total[:-16]) / 16

    both(rolling, given)
    both(lambda xp, a: xp.cumsum(xp.cumsum(a.reshape(300, 400), axis=1), axis=0), given)


# tiles are cut by bytes: of the dtype that is their size; long rows and short ones, eight bytes and
# four; three axes are met along every axis
CHAINS: list[tuple[tuple[int, ...], str]] = [
    ((1000, 150), "f8"), ((30_000, 5), "i4"), ((30_000, 5), "f8"), ((5, 300, 100), "i4"),
    ((1000, 150), "f4"), ((1000, 150), "i4"), ((5, 300, 100), "f8"), ((5, 300, 100), "f4"),
    ((30_000, 5), "f4"),
]  # fmt: skip


@pytest.mark.parametrize("chain", first(2, CHAINS))
def test_in_chains(chain: tuple[tuple[int, ...], str], threads: int) -> None:
    """Between kernels, tile by tile: the same bits and conditions."""
    shape, dtype = chain

    def shares(xp: Any, a: Any) -> Any:
        total = xp.cumsum(a * 2 + 1, axis=-1)
        return total / total.max(axis=-1, keepdims=True), xp.cumprod(a - 1, axis=-1) + total

    def columns(xp: Any, a: Any) -> Any:
        total = xp.cumsum(a + a, axis=0)
        return total - total.mean(axis=-1, keepdims=True)

    given = values(dtype, shape)
    for _ in range(3):  # cold, compiled, prepared
        both(shares, given)
        both(columns, given)
        with config.options(pipelining=False):
            both(shares, given)
        if dtype[0] == "f":
            large = 1e305 if dtype == "f8" else 1e34
            both(lambda xp, a, x=large: xp.cumsum(a * 2 * x, axis=-1) / 2, given)


def test_compiled_and_not() -> None:
    for wanted in (True, False):
        before = counters.totals().languages["routine"]
        with config.options(routines=wanted):
            both(lambda xp, a: xp.cumsum(a), values("f8", (50_000,)))
        assert (counters.totals().languages["routine"] > before) == wanted
