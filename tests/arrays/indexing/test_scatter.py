"""Writes at computed places, and reads along rows: NumPy's values, order, dtypes and errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.kernels import gather
from tests.helpers.compare import both
from tests.pairwise import first

COUNT = 40_013


@pytest.fixture(autouse=True)
def _by_routines(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "_WORTH", 1)


def values(dtype: str, size: int) -> Any:
    found: Any = np.random.default_rng(6).standard_normal(size) * 100
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


def indices(dtype: str, size: int, count: int = COUNT) -> Any:
    """Some places many times, some of them counted from the end."""
    limit = min(size, np.iinfo(dtype).max)
    found = np.random.default_rng(9).integers(0, limit, count).astype(dtype)
    if dtype[0] == "i" and limit == size:
        found[::3] -= np.dtype(dtype).type(size)
    return found


def written(xp: Any, target: Any, places: Any, value: Any) -> Any:
    target = target + 0
    target[places] = value
    return target


# a loop for each size of an element and each dtype of indices: nothing hangs on both,
# so that each is met once
PAIRS = [("f8", "i8"), ("u1", "u8"), ("c16", "i4"), ("c8", "u1")]
PAIRS += sorted(
    {*itertools.product(("f8", "u1", "c8", "c16"), ("i8", "i4", "u1", "u8"))} - {*PAIRS}
)


@pytest.mark.parametrize("dtypes", first(4, PAIRS), ids=str)
@pytest.mark.parametrize("size", [1, 50_000])
def test_the_last_write_wins(dtypes: tuple[str, str], size: int) -> None:
    dtype, index = dtypes
    target, places = values(dtype, size), indices(index, size)
    for value in (values(dtype, COUNT), values(dtype, 1)[0]):
        both(written, target, places, value)
    both(lambda xp, t, i, v: written(xp, t, i + 0, v * 2 + v), target, places, values("i2", COUNT))


@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
@pytest.mark.parametrize("value", [-3, 2.5, True, 300, 1e40, 2j, np.float32(0.1), np.int64(7)])
def test_numbers(dtype: str, value: Any) -> None:
    both(lambda xp, t, i: written(xp, t, i, value), values(dtype, 900), indices("i8", 900))


def test_other_targets_and_values() -> None:
    target, places = values("f8", 1200), indices("i8", 300)
    many = values("f8", COUNT)
    both(lambda xp, t, i, v: written(xp, t.reshape(300, 4), i, 2.0), target, places, many)
    both(lambda xp, t, i, v: written(xp, t[::4], i, v), target, places, many)
    both(lambda xp, t, i, v: written(xp, t[100:], i, v[::-1]), target, places, many)
    both(lambda xp, t, i, v: written(xp, t, i[:-2].reshape(3, -1).T, 1.5), target, places, many)
    both(lambda xp, t, i, v: written(xp, t, i, v[1:]), target, places, many)
    both(lambda xp, t, i, v: written(xp, t, (i,), v), target, places, many)
    both(lambda xp, t, i, v: written(xp, t, (i, ...), v), target, places, many)


def test_two_indices() -> None:
    target, rows, columns = values("f8", 1200).reshape(300, 4), indices("i4", 300), indices("i8", 4)
    both(
        lambda xp, t, i, j, v: written(xp, t, (i, j), v), target, rows, columns, values("f8", COUNT)
    )
    both(lambda xp, t, i, j: written(xp, t, (i, j), 3.0), target, rows, columns)
    both(lambda xp, t, i, j: (t * 2)[i, j], target, rows, columns)
    both(lambda xp, t, i, j: t[i + 0, j + 0], target, rows, columns)
    both(lambda xp, t, i, j: t[i, j[:1]], target, rows, columns)
    both(lambda xp, t, i, j: t.T[j, i], target, rows, columns)
    both(lambda xp, t, i, j: t[j, i], target, rows, columns)  # out of bounds


@pytest.mark.parametrize("wrong", [-301, 300])
def test_out_of_bounds(wrong: int) -> None:
    """NumPy's error at the call, and nothing written."""
    target, places, many = values("f8", 300), indices("i8", 300), values("f8", COUNT)
    places[30_000] = wrong

    def kept(xp: Any, t: Any, i: Any, v: Any) -> Any:
        t = t + 0
        for write in (lambda: t.__setitem__(i, v), lambda: xp.put(t, i, v)):
            with pytest.raises(IndexError):
                write()
        return t

    both(kept, target, places, many)
    both(lambda xp, t, i, v: xp.put(t, i, v), target, places, many)


def test_what_shares_memory() -> None:
    def itself(xp: Any, t: Any, i: Any) -> Any:
        t = t + 0
        t[i] = t[: i.size]
        return t

    def places_in_it(xp: Any, t: Any, i: Any) -> Any:
        i = i + 0
        i[i] = i[::-1]
        return i

    def through_a_view(xp: Any, t: Any, i: Any) -> Any:
        t = t + 0
        before, part = t * 2, t[500:]
        part[i % 700] = part[: i.size] + 1
        return t, before, part

    def both_sides(xp: Any, t: Any, i: Any) -> Any:
        t = t + 0
        t[i] += 1.0
        t[i] = t[i[::-1]] * 2
        return t

    target, places = values("f8", COUNT + 900), indices("i8", COUNT)
    for function in (itself, places_in_it, through_a_view, both_sides):
        both(function, target, places)


def test_put() -> None:
    target, places, many = values("f8", 1200), indices("i8", 1200), values("f8", COUNT)

    def put(xp: Any, t: Any, i: Any, v: Any, **named: Any) -> Any:
        t = t + 0
        assert xp.put(t, i, v, **named) is None
        return t

    both(lambda xp, t, i, v: put(xp, t, i, v), target, places, many)
    both(lambda xp, t, i, v: put(xp, t.reshape(30, 40), i * 1, v * 2), target, places, many)
    both(lambda xp, t, i, v: put(xp, t.reshape(30, 40).T, i, v), target, places, many)
    both(lambda xp, t, i, v: put(xp, t, i, v[:7]), target, places, many)
    both(lambda xp, t, i, v: put(xp, t, i, 3), target, places, many)
    both(lambda xp, t, i, v: put(xp, t, i * 3, v, mode="wrap"), target, places, many)
    both(lambda xp, t, i, v: put(xp, t, i * 3, v, mode="clip"), target, places, many)


@pytest.mark.parametrize("mode", ["raise", "clip", "wrap"])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_take(mode: str, dtype: str) -> None:
    given = values(dtype, 1200).reshape(300, 4)
    for factor in (1, 9):
        for axis in (0, 1):
            for index in ("i8", "u1"):
                both(
                    lambda xp, a, i, axis=axis, factor=factor: xp.take(
                        a * 1, i * factor, axis=axis, mode=mode
                    ),
                    given,
                    indices(index, 4, 20_003 if axis == 0 else 203),
                )


@pytest.mark.parametrize("index", ["i8", "u4", "f8"])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_take_along_axis(dtype: str, index: str) -> None:
    given = values(dtype, COUNT * 3)
    places = indices("i8" if index == "f8" else index, 100, 100 * 401).astype(index)
    matrix = given[: 401 * 100].reshape(401, 100)
    both(lambda xp, a, i: xp.take_along_axis(a, i.reshape(401, 100), 1), matrix, places)
    both(
        lambda xp, a, i: xp.take_along_axis(a + a, i.reshape(401, 100)[:, :90], -1), matrix, places
    )
    both(lambda xp, a, i: xp.take_along_axis(a, i.reshape(401, 100), 0), matrix, places)
    both(lambda xp, a, i: xp.take_along_axis(a, i.reshape(401, 100)[:1], 1), matrix, places)
    both(lambda xp, a, i: xp.take_along_axis(a, i, None), matrix, places)
    both(lambda xp, a, i: xp.take_along_axis(a, i, 0), given[:100], places)
    both(lambda xp, a, i: xp.take_along_axis(a, i, 0), given, places)
    both(lambda xp, a, i: xp.take_along_axis(a, i.reshape(401, 100) * 2, 1), matrix, places)
    order = np.argsort(matrix.real if dtype == "c16" else matrix, axis=1)
    both(lambda xp, a, i: xp.take_along_axis(a, xp.argsort(a, axis=1), axis=1), matrix.real, order)


@pytest.mark.parametrize("dtype", ["f8", "i8", "c16"])
@pytest.mark.parametrize("pair", [False, True])
def test_writes_at_indices_stay_in_the_memory(dtype: str, pair: bool, on_cpu: None) -> None:
    side = 300
    x = lf.zeros((side, side) if pair else side * side, dtype=dtype)
    expected = np.zeros(x.shape, dtype)
    places = indices("i8", side, 60_000)
    key = (places, places[::-1].copy()) if pair else places
    ours = tuple(map(lf.array, key)) if pair else lf.array(key)
    found = set()
    for number in range(6):
        x[ours] = number + 1
        expected[key] = number + 1
        found.add(x._node.value.ctypes.data)
    assert len(found) == 1
    np.testing.assert_array_equal(np.asarray(x), expected)
