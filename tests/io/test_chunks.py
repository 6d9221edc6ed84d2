"""Chunk specifications as Dask's users write them, and the sizes that are chosen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lazyfuse.errors import ConfigurationError
from lazyfuse.io.chunks import is_aligned, normalise, pack, parse_bytes, shape_of, sizes_of, unpack
from tests.io.parts import chunk_boxes

F8 = np.dtype("f8")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128MB", 128_000_000), ("128 MiB", 128 << 20), ("1.5GB", 1_500_000_000), ("100", 100),
        ("5kB", 5_000), ("5 k", 5_000), ("1e6", 1_000_000), ("2gib", 2 << 30), (77, 77),
        ("3B", 3), ("0", 0), ("2Ti", 2 << 40), ("1e3 kb", 1_000_000), (1e6, 1_000_000),
    ],
)  # fmt: skip
def test_bytes(text: Any, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "12 apples", "1.2.3", "-5MB", -1, math.inf, "B1"])
def test_bytes_that_are_none(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="128MB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("chunks", "shape", "expected"),
    [
        (3, (7, 4), ((3, 3, 1), (3, 1))),
        ((3, -1), (7, 4), ((3, 3, 1), (4,))),
        ((3, None), (7, 4), ((3, 3, 1), (4,))),
        (-1, (7, 4), ((7,), (4,))),
        ({0: 2}, (7, 4), ((2, 2, 2, 1), (4,))),
        ({-1: 3}, (7, 4), ((7,), (3, 1))),
        (((3, 4), (1, 3)), (7, 4), ((3, 4), (1, 3))),
        (((3, 4), 2), (7, 4), ((3, 4), (2, 2))),
        ((3, 4), (7,), ((3, 4),)),
        ((3,), (7,), ((3, 3, 1),)),
        (100, (7, 4), ((7,), (4,))),
        (5, (), ()),
        (5, (0, 6), ((0,), (5, 1))),
        (np.int64(3), (7,), ((3, 3, 1),)),
        (((0, 7),), (7,), ((0, 7),)),
        ("64B", (7, 4), ((2, 2, 2, 1), (4,))),
        ("16B", (7, 4), ((1,) * 7, (2, 2))),
        ("1B", (2, 2), ((1, 1), (1, 1))),
        (["auto", 2], (7, 4), ((7,), (2, 2))),
        (("32B", 2), (7, 4), ((2, 2, 2, 1), (2, 2))),
    ],
)
def test_specifications(chunks: Any, shape: tuple[int, ...], expected: Any) -> None:
    found = normalise(chunks, shape, F8)
    assert found == expected
    assert unpack(pack(found), shape) == found


@pytest.mark.parametrize(
    ("chunks", "shape"),
    [
        (0, (7,)), (-2, (7,)), ((3, 3), (7, 4, 2)), (((3, 3),), (7,)), ({2: 1}, (7, 4)),
        ({"x": 1}, (7, 4)), (2.5, (7,)), (((3.5, 3.5),), (7,)), ("half", (7,)), (((),), (7,)),
        (((float("nan"),),), (7,)), (True, (7,)), (((8, -1),), (7,)),
    ],
)  # fmt: skip
def test_specifications_that_are_wrong(chunks: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"\[chunks\]"):
        normalise(chunks, shape, F8)


def test_rows_stay_whole() -> None:
    found = normalise(None, (1000, 1000, 100), F8, "8MB")
    assert found == ((10,) * 100, (1000,), (100,))
    assert sizes_of(None, (1000, 1000), F8, "8MB", order=(1, 0)) == (1000, 1000)
    assert sizes_of(None, (1000, 1000), F8, "4MB", order=(1, 0)) == (1000, 500)


def test_auto_makes_squares() -> None:
    found = normalise("auto", (10_000, 10_000), F8, "8MB")
    assert found == ((1000,) * 10, (1000,) * 10)
    (rows, columns) = normalise("auto", (10, 1_000_000), F8, "8MB")
    assert rows == (10,)
    assert max(columns) == 100_000


def test_no_small_rest() -> None:
    (found,) = normalise(None, (101,), F8, 800)
    assert found == (51, 50)


@pytest.mark.parametrize("chunks", [None, "auto"])
def test_sizes_are_near_the_limit_and_aligned(chunks: Any) -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        ndim = int(rng.integers(1, 5))
        shape = tuple(rng.integers(1, 300, ndim).tolist())
        storage = tuple(rng.integers(1, 40, ndim).tolist())
        limit = int(rng.integers(1, 1 << 20))
        found = unpack(sizes_of(chunks, shape, F8, limit, storage), shape)
        assert tuple(map(sum, found)) == shape
        assert is_aligned(found, storage)
        largest = 8 * math.prod(map(max, found))
        least = 8 * math.prod(map(min, storage, shape))
        assert largest <= max(limit, least)
        if chunks is None and len(list(chunk_boxes(found))) > 1:
            one_more = [max(sizes) + unit for sizes, unit in zip(found, storage, strict=True)]
            assert 8 * math.prod(one_more) * 2 >= min(limit, 8 * math.prod(shape))


def test_boxes_cover_the_array_once() -> None:
    counts = np.zeros((7, 5, 3), int)
    for box in chunk_boxes(((3, 4), (2, 0, 3), (1, 1, 1))):
        counts[box] += 1
        assert counts[box].shape == shape_of(box)
    assert (counts == 1).all()


def test_short_form_is_short() -> None:
    found = normalise(10, (1_000_005,), F8)
    assert pack(found) == (10,)
    assert pack(((3, 3, 4),)) == ((3, 3, 4),)
    assert pack(((0, 3), (0,))) == ((0, 3), 0)
    assert unpack((0,), (0,)) == ((0,),)


def test_alignment() -> None:
    assert is_aligned(((4, 4, 1), (5,)), (2, 100))
    assert not is_aligned(((3, 6), (5,)), (2, 5))
