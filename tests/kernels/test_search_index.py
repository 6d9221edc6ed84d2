"""Guides of sorted tables: kept between searches, and only for tables of the same bits (D3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.kernels import search_index
from tests.pairwise import first

N = 1 << 16


@pytest.fixture(autouse=True)
def _none_kept() -> Iterator[None]:
    search_index.kept.clear()
    yield
    search_index.kept.clear()


def table(dtype: str = "f8", size: int = 1 << 13) -> Any:
    found = numpy.sort(numpy.random.default_rng(5).normal(size=size) * 1000)
    return numpy.sort(found.astype(dtype))


def values(dtype: str = "f8") -> Any:
    return (numpy.random.default_rng(6).normal(size=N) * 1100).astype(dtype)


def counts() -> tuple[int, int]:
    found = np.cache_info()["tables"]
    return found["hits"], found["misses"]


def search(a: Any, v: Any, side: str = "left") -> Any:
    pytest.importorskip("numba")
    return numpy.asarray(np.searchsorted(np.array(a), np.array(v), side))


# guides hang on the dtype, the side is a comparison in the text: both with float64s, one with
# others
SEARCHES = [("f8", "left"), ("f8", "right"), ("f4", "left"), ("i8", "right"), ("i4", "left")]
SEARCHES += [("f4", "right"), ("i8", "left"), ("i4", "right")]


@pytest.mark.parametrize("search_for", first(5, SEARCHES), ids=str)
def test_a_table_that_is_searched_again_is_kept_D3(search_for: tuple[str, str]) -> None:
    dtype, side = search_for
    a, v = table(dtype), values(dtype)
    hits, misses = counts()
    for factor in (1, 2, 3):
        w = v // numpy.dtype(dtype).type(factor)
        numpy.testing.assert_array_equal(search(a, w, side), numpy.searchsorted(a, w, side))
    assert counts() == (hits + 2, misses + 1)


def test_a_table_that_was_written_to_is_another() -> None:
    a, v = table(), values()
    for place in (0, 1, 77, 4000, len(a) - 1):
        search(a, v)
        a[place:] += 1e-3  # one entry moves, or all behind it do
        numpy.testing.assert_array_equal(search(a, v), numpy.searchsorted(a, v))
    a[100], a[200] = a[200], a[100]  # not sorted: NumPy's answer, whatever it is
    numpy.testing.assert_array_equal(search(a, v), numpy.searchsorted(a, v))


def test_nan_and_zeros_at_the_ends() -> None:
    v = values()
    v[:3] = numpy.nan, 0.0, -0.0
    for last in (0, 1, 50, 1 << 13):
        a = table()
        a[len(a) - last :] = numpy.nan
        a[numpy.abs(a) < 1.0] = 0.0
        for sign in (1.0, -1.0):
            b = numpy.where(a == 0, sign * 0.0, a)
            for side in ("left", "right"):
                expected = numpy.searchsorted(b, v, side)
                numpy.testing.assert_array_equal(search(b, v, side), expected)


def test_interpolation_keeps_its_table_too_D3() -> None:
    pytest.importorskip("numba")
    a, v = table(), values()
    heights = numpy.sin(a)
    hits, _ = counts()
    for _ in range(3):
        got = numpy.asarray(np.interp(np.array(v), a, heights))
        numpy.testing.assert_array_equal(got, numpy.interp(v, a, heights))
    assert counts()[0] == hits + 2
    a[-1] = numpy.nan
    got = numpy.asarray(np.interp(np.array(v), a, heights))
    numpy.testing.assert_array_equal(got, numpy.interp(v, a, heights))


def test_the_oldest_go_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    v = values()
    tables = [table() + each for each in range(4)]
    size = search_index.BucketIndex(tables[0]).nbytes
    monkeypatch.setattr(search_index, "LIMIT", 2 * size)
    for a in tables:
        search(a, v)
        assert np.cache_info()["tables"]["bytes"] <= 2 * size
    _, misses = counts()
    search(tables[-1], v)
    assert counts()[1] == misses
    search(tables[0], v)
    assert counts()[1] == misses + 1
    np.cache_clear()
    assert np.cache_info()["tables"]["entries"] == 0


def test_small_tables_are_not_kept() -> None:
    a, v = table(size=100), values()
    numpy.testing.assert_array_equal(search(a, v), numpy.searchsorted(a, v))
    assert np.cache_info()["tables"]["entries"] == 0
