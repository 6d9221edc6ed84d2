"""Running sums and products by compiled loops: NumPy's order, bits and warnings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lazyfuse import config, report
from tests.face.compare import both

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


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?", "c16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_along_every_axis(dtype: str, shape: tuple[int, ...], threads: int) -> None:
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


@pytest.mark.parametrize("asked", ["f8", "f4", "i8", "i2", "c16"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
def test_other_sums(asked: str, dtype: str) -> None:
    both(lambda xp, a: xp.cumsum(a, axis=1, dtype=asked), values(dtype, (201, 203)))


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


@pytest.mark.parametrize("shape", [(1000, 150), (5, 300, 100), (30_000, 5)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_in_chains(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    """Between kernels, tile by tile: the same bits and conditions."""

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
        before = report.totals.languages["routine"]
        with config.options(routines=wanted):
            both(lambda xp, a: xp.cumsum(a), values("f8", (50_000,)))
        assert (report.totals.languages["routine"] > before) == wanted
