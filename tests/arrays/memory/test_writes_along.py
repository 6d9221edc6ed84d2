"""`put_along_axis` by compiled loops: the last write wins, errors are NumPy's, rows are apart."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.helpers.compare import both
from tests.pairwise import first

ROWS, COUNT, ENTRIES = 307, 131, 97


pytestmark = pytest.mark.usefixtures("threads")


def target(dtype: str = "f8", shape: tuple[int, ...] = (ROWS, ENTRIES)) -> Any:
    found: Any = np.random.default_rng(1).standard_normal(shape) * 100
    return (np.abs(found) if dtype[0] == "u" else found).astype(dtype)


def places(dtype: str = "i8", shape: tuple[int, ...] = (ROWS, COUNT)) -> Any:
    limit = min(ENTRIES, np.iinfo(dtype).max)
    found = np.random.default_rng(2).integers(0, limit, shape).astype(dtype)
    if dtype[0] == "i" and limit == ENTRIES:
        found[::3] -= np.dtype(dtype).type(ENTRIES)
    return found


def put(xp: Any, t: Any, i: Any, v: Any, axis: Any = -1) -> Any:
    t = t + t.dtype.type(0)
    assert xp.put_along_axis(t, i, v, axis) is None
    return t


# a loop for each size of an element and each dtype of indices: nothing hangs on both
INDICES = ("i8", "i4", "i1", "u8", "u2")
TARGETS = ("f8", "f4", "u1", "c8", "c16", "i8", "b1")
PAIRS = [(dtype, "i8") for dtype in TARGETS]
PAIRS += [("u1", "i4"), ("f4", "i1"), ("f8", "u8"), ("c8", "u2")]
PAIRS += sorted({*itertools.product(TARGETS, INDICES)} - {*PAIRS})


@pytest.mark.parametrize("dtypes", first(len(TARGETS) + 4, PAIRS), ids=str)
def test_the_last_write_of_a_row_wins(dtypes: tuple[str, str]) -> None:
    dtype, index = dtypes
    for value in (target(dtype, (ROWS, COUNT)), target(dtype)[0, 0]):
        both(put, target(dtype), places(index), value)


@pytest.mark.parametrize("value", [-3, 2.5, True, 300, 1e40, np.float32(0.1), np.int64(7)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
def test_numbers(dtype: str, value: Any) -> None:
    both(lambda xp, t, i: put(xp, t, i, value), target(dtype), places())


def test_axes_layouts_and_shapes() -> None:
    t, i, v = target(), places(), target("f8", (ROWS, COUNT))
    both(lambda xp, t, i, v: put(xp, t, i * 1, v * 2, 1), t, i, v)
    both(lambda xp, t, i, v: put(xp, t.T, i.T, v.T, 0), t, i, v)
    both(lambda xp, t, i, v: put(xp, t, i[:1], v[:1], 1), t, i, v)
    both(lambda xp, t, i, v: put(xp, t, i, v[:, :1], 1), t, i, v)
    both(lambda xp, t, i, v: put(xp, t, i, 5.0, 0), t, places("i8", (90, ENTRIES)) % 90, v)
    cube, three = target("f8", (7, 43, ENTRIES)), places("i8", (7, 43, COUNT))
    both(lambda xp, t, i: put(xp, t, i, 1.5), cube, three)
    both(lambda xp, t, i: put(xp, t, i, xp.sqrt(i * 1.0 + 200)), cube, three)


def test_parts_and_what_overlaps_itself() -> None:
    def part(xp: Any, t: Any, i: Any) -> Any:
        t = t + 0.0
        xp.put_along_axis(t[:, 10:90], i % 80, 7.0, 1)
        xp.put_along_axis(t[100:200], i[100:200], t[100:200, :1] + 1.0, 1)
        return t

    both(part, target(), places())

    def over(xp: Any, t: Any) -> Any:
        t = t + 0
        xp.put_along_axis(t, t, t, 1)  # places, values and target are one
        return t

    both(over, places("i8", (ROWS, ENTRIES)))
    both(lambda xp, t: put(xp, t, t * 1, t[:, ::-1]), places("i8", (ROWS, ENTRIES)))


@pytest.mark.parametrize("wrong", [ENTRIES, -ENTRIES - 1])
def test_out_of_bounds_is_numpys_error_and_writes_what_numpy_writes(wrong: int) -> None:
    i = places()
    i[200, 77] = wrong
    both(lambda xp, t, i: put(xp, t, i, 3.0), target(), i)


def test_other_errors() -> None:
    both(lambda xp, t, i: put(xp, t, i * 1.0, 3.0), target(), places())
    both(lambda xp, t, i: put(xp, t, i, 3.0, 2), target(), places())
    both(lambda xp, t, i: put(xp, t, i[0], 3.0, 1), target(), places())
    both(lambda xp, t, i: put(xp, t, i, "x", 1), target(), places())
    both(lambda xp, t, i: put(xp, t, i, 2j, 1), target(), places())


def test_readers_keep_what_they_read() -> None:
    def program(xp: Any, t: Any, i: Any) -> Any:
        t = t * 2.0
        before = t + 1.0
        view = t[5:50]
        for turn in range(3):
            xp.put_along_axis(t, i, turn * 1.5, -1)
            after = t.sum(axis=1)
        return before, view * 1.0, after, t

    both(program, target(), places())
