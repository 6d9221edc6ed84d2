"""Reads at computed places and sums in place: values, order, bounds and errors are NumPy's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from lazyfuse import config
from lazyfuse.kernels import gather
from lazyfuse.runtime.events import counters
from tests.helpers.compare import both
from tests.pairwise import first

COUNT = 40_021


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of ours for fewer indices than are worth it, whatever their dtype."""
    monkeypatch.setattr(gather, "_WORTH", 1)
    monkeypatch.setattr(gather, "_FEWEST", COUNT // 2)


def values(dtype: str, size: int) -> Any:
    found: Any = np.random.default_rng(6).standard_normal(size) * 100
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


def indices(dtype: str, size: int) -> Any:
    """Some of them negative, where they can be."""
    limit = min(size, np.iinfo(dtype).max)
    found = np.random.default_rng(9).integers(0, limit, COUNT).astype(dtype)
    if dtype[0] == "i" and limit == size:
        found[::3] -= np.dtype(dtype).type(size)
    return found


# a loop for each size of an element and each dtype of indices: nothing hangs on both
PAIRS = [("f8", "i8"), ("f4", "i8"), ("u1", "i4"), ("c16", "i4"), ("f8", "u8"), ("f8", "i4")]
PAIRS += [("u1", "i8"), ("c16", "i8"), ("f4", "i4"), ("f4", "u8"), ("u1", "u8"), ("c16", "u8")]


@pytest.mark.parametrize("dtypes", first(5, PAIRS), ids=str)
@pytest.mark.parametrize("size", [1, 100_000])
def test_reads(dtypes: tuple[str, str], size: int, threads: int) -> None:
    dtype, index = dtypes
    given, places = values(dtype, size), indices(index, size)
    both(lambda xp, a, i: a[i], given, places)
    both(lambda xp, a, i: xp.take(a, i), given, places)
    both(lambda xp, a, i: (a + a).take(i + i - i), given, places)


@pytest.mark.parametrize("dtype", ["f8", "u1", "c16"])
def test_rows_and_shapes(dtype: str, threads: int) -> None:
    given, places = values(dtype, 900).reshape(300, 3), indices("i8", 300)
    both(lambda xp, a, i: a[i], given, places)
    both(lambda xp, a, i: a[i[:40_000].reshape(200, 200)], given, places)
    both(lambda xp, a, i: a[i[:40_000].reshape(200, 200).T], given, places)
    both(lambda xp, a, i: a.T[i[:100] % 3], given, places)
    both(lambda xp, a, i: a[i, 1], given, places)
    both(lambda xp, a, i: a[i[::-1], i % 3], given, places)
    for axis, count in ((None, COUNT), (0, COUNT), (1, 211), (-1, 211), (2, 211)):
        both(lambda xp, a, i, axis=axis: xp.take(a, i % 3, axis=axis), given, places[:count])
    both(lambda xp, a, i: xp.take(a, i * 7, mode="wrap"), given, places)
    both(lambda xp, a, i: xp.take(a, i, out=xp.zeros(i.shape, a.dtype)), given, places)


@pytest.mark.parametrize("wrong", [-301, 300])
def test_out_of_bounds(wrong: int, threads: int) -> None:
    """NumPy's error at the call, and nothing written."""
    given, places = values("f8", 300), indices("i8", 300)
    places[35_000] = wrong
    both(lambda xp, a, i: a[i], given, places)
    both(lambda xp, a, i: xp.take(a, i), given, places)
    both(lambda xp, a, i: xp.add.at(a, i, 1), given, places)

    def kept(xp: Any, a: Any, i: Any) -> Any:
        for write in (lambda: a.__setitem__(i, 3.0), lambda: xp.add.at(a, i, 1)):
            with pytest.raises(IndexError):
                write()
        return a

    both(kept, given, places)


def combined(name: str) -> Any:
    def combine(xp: Any, a: Any, i: Any, v: Any) -> Any:
        getattr(xp, name).at(a, i, v)
        return a

    return combine


# each of the three is a word of the text: the first names with floats and with whole numbers, with
# each dtype and each index, and some of the others that the table gives
SUMS = [("add", "f8", "i8"), ("subtract", "f8", "u2"), ("maximum", "f8", "i8")]
SUMS += [("add", "i8", "u2"), ("subtract", "i4", "i8"), ("maximum", "u1", "u2")]
SUMS += [("multiply", "i4", "u2"), ("bitwise_xor", "u1", "i8"), ("fmin", "i8", "u2")]
NAMES, DTYPES = ("add", "subtract", "maximum"), ("f8", "i8", "i4", "u1")
SUMS += sorted({*itertools.product(NAMES, DTYPES, ("i8", "u2"))} - {*SUMS})


@pytest.mark.parametrize("asked", first(9, SUMS), ids=str)
def test_sums_in_place(asked: tuple[str, str, str], threads: int) -> None:
    name, dtype, index = asked
    given, places = values(dtype, 40_000), indices(index, 40_000)
    both(combined(name), given, places, values(dtype, COUNT))
    for number in (1, -1, 0.1, True, 1 << 40):
        both(combined(name), given, places, number)


def test_conditions_are_told(threads: int) -> None:
    places = indices("i4", 40_000)
    huge, endless = np.full(COUNT, 1e308), np.full(COUNT, np.inf)
    both(combined("add"), huge[:40_000], places, huge)
    both(combined("subtract"), -huge[:40_000], places, huge)
    both(combined("add"), endless[:40_000], places, -endless)


def test_writes(threads: int) -> None:
    """The last write to a place counts; operands may be the memory that is written."""
    given, places = values("f8", 40_000), indices("i8", 40_000)

    def put(xp: Any, a: Any, i: Any, v: Any) -> Any:
        a[i] = v
        return a

    def overlapping(xp: Any, a: Any, i: Any) -> Any:
        a[i[:40_000]] = a[::-1]
        a[i[:20_000]] += a[20_000:]
        xp.add.at(a, i[:40_000], a)
        return a

    def own(xp: Any, i: Any) -> Any:
        xp.add.at(i, i, i)
        return i

    both(put, given, places, values("f8", COUNT))
    both(put, given, places, 3)
    both(overlapping, given, places)
    both(own, np.arange(40_000) % 977)


@pytest.mark.smoke
def test_memory_is_its_own() -> None:
    """What was read at computed places is no view."""

    def changed(xp: Any, a: Any, i: Any) -> Any:
        read = a[i]
        a[:] = 0
        read[0] = 7
        return read, a

    both(changed, values("f8", 50_000), indices("i8", 50_000))


def test_compiled_and_not() -> None:
    for wanted in (True, False):
        before = counters.totals().languages["routine"]
        with config.options(routines=wanted, threads=2):
            both(lambda xp, a, i: a[i], values("f8", 300), indices("i8", 300))
        assert (counters.totals().languages["routine"] > before) == wanted
