"""Sorting on all threads: NumPy's order to the last index, ties, NaN and zeros included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lazyfuse import config
from lazyfuse.kernels import sort
from lazyfuse.runtime.events import counters
from tests.helpers.compare import both
from tests.pairwise import first

SIZE = 20_101
KINDS: tuple[dict[str, Any], ...] = (
    {}, {"kind": "stable"}, {"stable": True}, {"stable": False}, {"kind": "heapsort"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def _shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 20,000 elements are cut as those of 140,000 are."""
    monkeypatch.setattr(sort, "_LONG", 1 << 12)
    monkeypatch.setattr(sort, "_MANY", 1 << 12)
    monkeypatch.setattr(sort, "_BLOCK", 1 << 12)
    monkeypatch.setattr(sort, "_SHORTEST", SIZE // 2)


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
        elif special == "zeros":  # each before the other somewhere
            found[3], found[SIZE - 9], found[SIZE // 2] = 0.0, -0.0, 0.0
        elif special == "close":  # equal in the upper bits
            found, found[9] = np.random.default_rng(4).uniform(1e9, 1e9 + 8, SIZE), -1.0
    if special == "tie":
        found[100] = found[SIZE // 3]
    elif special == "few":
        found = np.round(found / 1000)
    elif special == "ascending":
        found = np.sort(found)
    elif special == "equal":
        found[:] = 3
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


SPECIALS = ("", "tie", "few", "ascending", "equal", "nan", "many nan", "zeros", "close")
# NumPy's order of float32s is that of float64s: of them what hangs on their bits
ROWS = [("f8", special) for special in SPECIALS]
ROWS += [("i8", special) for special in SPECIALS[:5]]
ROWS += [("f4", special) for special in ("", "nan", "zeros", "close")]
USUAL = len(ROWS)
ROWS += [("f4", special) for special in SPECIALS if ("f4", special) not in ROWS]


@pytest.mark.parametrize("made", first(USUAL, ROWS), ids=str)
def test_one_row(made: tuple[str, str], threads: int) -> None:
    dtype, special = made
    given = row(dtype, special)
    for named in KINDS[: 3 if dtype[1] == "8" else 2]:
        both(lambda xp, a, named=named: xp.argsort(a, **named), given)
        both(lambda xp, a, named=named: xp.sort(a, **named), given)


# the widest whole numbers, with a sign and without: narrow ones lie between them
@pytest.mark.parametrize("dtype", first(3, ["f8", "i8", "u8", "i4"]))
def test_extreme_numbers(dtype: str, threads: int) -> None:
    if dtype != "f8":
        limits = np.iinfo(dtype)
        given = row(dtype, "")
        given[[5, SIZE - 3]] = limits.min, limits.max
        both(lambda xp, a: xp.argsort(a, kind="stable"), given)
        both(lambda xp, a: xp.sort(a), given)
        return
    given = row("f8", "")
    given[[5, 9, 11, SIZE - 3]] = np.inf, -np.inf, 5e-324, -5e-324
    both(lambda xp, a: xp.argsort(a), given)
    both(lambda xp, a: xp.argsort(-np.abs(a)), given)
    both(lambda xp, a: xp.argsort(xp.sort(a)), given)


# how rows are shared out follows from the shape, NumPy sorts them whatever their dtype
SHAPES: list[tuple[int, ...]] = [(90, 200), (3, 6000), (6000, 3), (21, 20, 40), (1, 20_000)]
SHARED: list[tuple[str, tuple[int, ...]]] = [("f8", shape) for shape in SHAPES]
SHARED += [("i2", SHAPES[0]), ("?", SHAPES[2]), ("c16", SHAPES[3]), ("i2", SHAPES[4])]
SHARED += [(d, s) for d in ("i2", "?", "c16") for s in SHAPES if (d, s) not in SHARED]


@pytest.mark.parametrize("shared", first(9, SHARED), ids=str)
def test_rows(shared: tuple[str, tuple[int, ...]], threads: int) -> None:
    dtype, shape = shared
    given: Any = (np.random.default_rng(8).standard_normal(shape) * 10).astype(dtype)
    for axis in (None, *range(-1, len(shape))):
        both(lambda xp, a, axis=axis: xp.argsort(a, axis=axis), given)
        both(lambda xp, a, axis=axis: xp.sort(a, axis=axis, kind="stable"), given)

    def in_place(xp: Any, a: Any) -> Any:
        a.sort(axis=0)
        return a

    both(in_place, given)


def test_a_key_that_is_computed(threads: int) -> None:
    given = np.random.default_rng(1).standard_normal(SIZE)
    both(lambda xp, a: xp.argsort(1.0 / a + a * a), given)
    both(lambda xp, a: a[xp.argsort(xp.abs(a))][:10], given)


@pytest.mark.parametrize("shape", [(90, 200), (21, 20, 40), (20_000,)])
@pytest.mark.parametrize("dtype", ["f8", "i2", "c16"])
def test_partitions(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    given: Any = (np.random.default_rng(8).standard_normal(shape) * 10).astype(dtype)
    for axis in (None, *range(-1, len(shape))):
        for kth in (0, 3, -2, 10**6):
            both(lambda xp, a, k=kth, x=axis: xp.partition(a, k, axis=x), given)
            both(lambda xp, a, k=kth, x=axis: xp.argpartition(a, k, axis=x), given)
    both(lambda xp, a: xp.partition(a, (1, 5)), given)
    both(lambda xp, a: xp.argpartition(a, 9)[..., :9], given)


# each key is sorted by itself: what is special is met among three keys, nothing among others
KEYS: list[tuple[tuple[str, ...], str]] = [
    (dtypes, special)
    for dtypes in (("i4", "f4", "f8"), ("f8", "i8"), ("f8",), ("u1", "f8"))
    for special in ("few", "nan", "tie", "zeros", "")
]
KEYS.sort(key=lambda asked: len(asked[0]) < 3 and asked[1] != "")


@pytest.mark.parametrize("asked", first(8, KEYS), ids=str)
def test_several_keys(asked: tuple[tuple[str, ...], str], threads: int) -> None:
    dtypes, special = asked
    rows = [row(dtype, special)[::step] for dtype, step in zip(dtypes, (1, -1, 1), strict=False)]
    both(lambda xp, *keys: xp.lexsort(keys), *rows)
    both(lambda xp, *keys: xp.lexsort([-each for each in keys], axis=0), *rows)
    both(lambda xp, *keys: xp.lexsort(xp.stack(keys)), *rows)
    both(lambda xp, *keys: xp.lexsort((keys[0], keys[0][:5])), *rows)


@pytest.mark.smoke
def test_compiled_and_not() -> None:
    for wanted in (True, False):
        before = counters.totals().languages["routine"]
        with config.options(routines=wanted, threads=2):
            both(lambda xp, a: xp.argsort(a), row("f8", ""))
        assert (counters.totals().languages["routine"] > before) == wanted
