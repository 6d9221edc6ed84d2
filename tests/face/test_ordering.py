"""Sorting on all threads: NumPy's order to the last index, ties, NaN and zeros included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lazyfuse import config, report
from tests.face.compare import both

SIZE = 140_101
KINDS: tuple[dict[str, Any], ...] = (
    {}, {"kind": "stable"}, {"stable": True}, {"stable": False}, {"kind": "heapsort"},
)  # fmt: skip


def row(dtype: str, special: str) -> Any:
    """Distinct elements, and among them what `special` says."""
    rng = np.random.default_rng(4)
    found: Any = rng.permutation(SIZE).astype("f8")
    if dtype[0] == "f":
        found = rng.standard_normal(SIZE) * 1000
        if special == "nan":
            found[77] = np.nan
        elif special == "many nan":
            found[[3, SIZE - 5]], found[5], found[SIZE - 7] = np.nan, np.inf, -np.inf
        elif special == "zeros":
            found[3], found[SIZE - 9] = -0.0, 0.0
        elif special == "close":  # equal in the upper bits
            found = 1e9 + found * 1e-3
    if special == "tie":
        found[100] = found[50_000]
    elif special == "few":
        found = np.round(found / 1000)
    elif special == "ascending":
        found = np.sort(found)
    elif special == "equal":
        found[:] = 3
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


SPECIALS = ("", "tie", "few", "ascending", "equal", "nan", "many nan", "zeros", "close")


@pytest.mark.parametrize("dtype", ["f8", "i8", "f4"])
@pytest.mark.parametrize("special", SPECIALS)
def test_one_row(dtype: str, special: str, threads: int) -> None:
    given = row(dtype, special)
    for named in KINDS[: 3 if dtype[1] == "8" else 2]:
        both(lambda xp, a, named=named: xp.argsort(a, **named), given)
        both(lambda xp, a, named=named: xp.sort(a, **named), given)


def test_extreme_numbers(threads: int) -> None:
    for dtype in ("i8", "u8", "i4"):
        limits = np.iinfo(dtype)
        given = row(dtype, "")
        given[[5, SIZE - 3]] = limits.min, limits.max
        both(lambda xp, a: xp.argsort(a, kind="stable"), given)
        both(lambda xp, a: xp.sort(a), given)
    given = row("f8", "")
    given[[5, 9, 11, SIZE - 3]] = np.inf, -np.inf, 5e-324, -5e-324
    both(lambda xp, a: xp.argsort(a), given)
    both(lambda xp, a: xp.argsort(-np.abs(a)), given)


@pytest.mark.parametrize("shape", [(300, 400), (7, 20_000), (20_000, 7), (30, 40, 50), (1, 60_000)])
@pytest.mark.parametrize("dtype", ["f8", "i2", "?", "c16"])
def test_rows(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    given: Any = (np.random.default_rng(8).standard_normal(shape) * 10).astype(dtype)
    for axis in (None, *range(-1, len(shape))):
        both(lambda xp, a, axis=axis: xp.argsort(a, axis=axis), given)
        both(lambda xp, a, axis=axis: xp.sort(a, axis=axis, kind="stable"), given)

    def in_place(xp: Any, a: Any) -> Any:
        a.sort(axis=0)
        return a

    both(in_place, given)


def test_a_key_that_is_computed(threads: int) -> None:
    given = np.random.default_rng(1).standard_normal(200_000)
    both(lambda xp, a: xp.argsort(1.0 / a + a * a), given)
    both(lambda xp, a: a[xp.argsort(xp.abs(a))][:10], given)


@pytest.mark.parametrize("shape", [(300, 400), (30, 40, 50), (60_000,)])
@pytest.mark.parametrize("dtype", ["f8", "i2", "c16"])
def test_partitions(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    given: Any = (np.random.default_rng(8).standard_normal(shape) * 10).astype(dtype)
    for axis in (None, *range(-1, len(shape))):
        for kth in (0, 3, -2, 10**6):
            both(lambda xp, a, k=kth, x=axis: xp.partition(a, k, axis=x), given)
            both(lambda xp, a, k=kth, x=axis: xp.argpartition(a, k, axis=x), given)
    both(lambda xp, a: xp.partition(a, (1, 5)), given)
    both(lambda xp, a: xp.argpartition(a, 9)[..., :9], given)


@pytest.mark.parametrize("dtypes", [("f8", "i8"), ("i4", "f4", "f8"), ("f8",), ("u1", "f8")])
@pytest.mark.parametrize("special", ["few", "nan", "tie", "zeros", ""])
def test_several_keys(dtypes: tuple[str, ...], special: str, threads: int) -> None:
    keys = [row(dtype, special)[::step] for dtype, step in zip(dtypes, (1, -1, 1), strict=False)]
    both(lambda xp, *rows: xp.lexsort(rows), *keys)
    both(lambda xp, *rows: xp.lexsort([-each for each in rows], axis=0), *keys)
    both(lambda xp, *rows: xp.lexsort(xp.stack(rows)), *keys)
    both(lambda xp, *rows: xp.lexsort((rows[0], rows[0][:5])), *keys)


def test_compiled_and_not() -> None:
    for wanted in (True, False):
        before = report.totals.languages["routine"]
        with config.options(routines=wanted, threads=2):
            both(lambda xp, a: xp.argsort(a), row("f8", ""))
        assert (report.totals.languages["routine"] > before) == wanted
