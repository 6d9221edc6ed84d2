"""Ranges, constants and random numbers in parts, to NumPy's bits."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from lazyfuse.errors import UnsupportedError
from lazyfuse.io import chunks as geometry
from lazyfuse.io import generators
from tests.io import parts

DTYPES = ["i1", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", ">f8", ">i2"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arange(dtype: str) -> None:
    for args in ((0, 100, 1), (3, -90, -2), (0.1, 9.7, 0.1), (2.5, 90, 3), (0.5, 9.5, 0.5)):
        try:
            expected = np.arange(*args, dtype=dtype)
        except OverflowError:
            continue
        source = generators.arange(*args, dtype=dtype, chunks=7)
        assert isinstance(source, generators.Arange)
        parts.compare(source, expected, 10)


@pytest.mark.parametrize(
    "args",
    [
        (0, 1e5, 0.1), (0, 10), (np.float32(0), np.float32(5), np.float32(0.1)), (5, 5), (5, 2),
        (np.int8(1), np.int8(100), np.int8(3)), (np.float16(0), 3, 1), (-1e300, 1e300, 1e298),
        (1e16, 1e16 + 100, 1), (0, True), (0, np.uint64(9), 2), (1 << 62, (1 << 62) + 50, 3),
        (1 << 63, (1 << 63) + 5), (0.0, -0.0, 1.0), (1, 2, math.inf), (0, 1e-310, 1e-312),
    ],
    ids=str,
)  # fmt: skip
def test_arange_of_other_numbers(args: Any) -> None:
    parts.compare(generators.arange(*args, chunks=1000), np.arange(*args), 5)


def test_arange_of_dates_is_numpys() -> None:
    args = np.datetime64("2020-01-01"), np.datetime64("2020-03-01"), np.timedelta64(2, "D")
    parts.compare(generators.arange(*args, chunks=7), np.arange(*args))


@pytest.mark.parametrize(
    "args", [(0, 1, 0), (0, math.inf, 1), (0, math.nan, 1), (0, 10, 1, "S3"), (0, 300, 1, bool)]
)
def test_arange_refuses_what_numpy_refuses(args: Any) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  # whatever NumPy raises
        np.arange(*args)
    with pytest.raises(type(theirs.value)) as ours:
        generators.arange(*args)
    assert str(ours.value) == str(theirs.value)


def test_arange_of_many_numbers_needs_no_memory() -> None:
    source = generators.arange(0, 1e15, 1)
    assert source.read((slice(10**14, 10**14 + 3),)).tolist() == [1e14, 1e14 + 1, 1e14 + 2]


@pytest.mark.parametrize("dtype", [None, "f4", "i4", "f2", "c8", ">f8", "g"])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace(dtype: Any, endpoint: bool) -> None:
    cases: list[Any] = [
        (0, 1, 50), (0, 1, 1), (0, 1, 0), (3, 3, 10), (0, 5e-324, 10), (-3.3, 7.7, 101),
        (np.float32(0), np.float32(1), 77), (0, 1j, 11), (5, -5, 1000), (np.float16(1), 2, 9),
        (np.longdouble(1), 2, 9), (-0.0, 0.0, 5), (1, math.inf, 4),
    ]  # fmt: skip
    for args in cases:
        if dtype == "i4" and 1j in args:
            continue  # refused by NumPy
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # casts, as NumPy's
            expected = np.linspace(*args, endpoint=endpoint, dtype=dtype)
            source = generators.linspace(*args, endpoint=endpoint, dtype=dtype, chunks=7)
            parts.compare(source, expected, 5)


def test_linspace_refuses_what_numpy_refuses() -> None:
    with pytest.raises(TypeError, match="floor"):
        generators.linspace(0, 1j, 5, dtype=int)


def test_linspace_between_arrays_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="step"):
        generators.linspace([0, 1], 2, 10)


def expected_of(
    generator: np.random.Generator,
    chunks: geometry.Chunks,
    method: str,
    *args: Any,
    **keywords: Any,
) -> np.ndarray[Any, Any]:
    """As the documentation says it: a child for each chunk."""
    wanted = list(parts.chunk_boxes(chunks))
    result: Any = None
    for child, box in zip(generator.spawn(len(wanted)), wanted, strict=True):
        block = getattr(child, method)(*args, size=geometry.shape_of(box), **keywords)
        if result is None:
            result = np.empty(tuple(map(sum, chunks)), block.dtype)
        result[box] = block
    return np.asarray(result)


@pytest.mark.parametrize("bits", generators._BITS)
@pytest.mark.parametrize(
    ("method", "args", "keywords"),
    [
        ("normal", (1.0, 2.0), {}),
        ("random", (), {"dtype": "f4"}),
        ("integers", (3, 90), {"dtype": "u1"}),
        ("choice", ([3, 1, 4],), {"p": [0.2, 0.3, 0.5]}),
        ("poisson", (3.5,), {}),
    ],
)
def test_random(bits: str, method: str, args: Any, keywords: Any) -> None:
    def new() -> np.random.Generator:
        return np.random.Generator(getattr(np.random, bits)(7))

    chunks = ((7, 7, 6), (11, 0, 19))
    ours, theirs = new(), new()
    for _ in range(2):  # the second array has other children
        source = generators.random(ours, method, (20, 30), *args, chunks=chunks, **keywords)
        parts.compare(source, expected_of(theirs, chunks, method, *args, **keywords), 10)
    assert ours.bit_generator.state["bit_generator"] == bits


def test_random_numbers_do_not_depend_on_the_chunks_that_are_read() -> None:
    source = generators.random(np.random.default_rng(1), "random", (20, 20), chunks=7)
    whole = source.read((slice(0, 20), slice(0, 20)))
    for box in parts.chunk_boxes(geometry.normalise(9, (20, 20), source.dtype)):
        assert (source.read(box) == whole[box]).all()


def test_random_of_no_elements_and_of_one() -> None:
    source = generators.random(np.random.default_rng(1), "random", (0, 5))
    assert source.read((slice(0, 0), slice(0, 5))).shape == (0, 5)
    source = generators.random(np.random.default_rng(1), "random", ())
    assert source.read(()) == np.random.default_rng(1).spawn(1)[0].random()


@pytest.mark.parametrize(
    ("method", "args", "keywords"),
    [
        ("shuffle", ([1, 2],), {}),
        ("choice", (5,), {"replace": False}),
        ("normal", ([0.0, 1.0],), {}),
        ("random", (), {"out": np.zeros(3)}),
        ("dirichlet", ((1.0, 2.0),), {}),
    ],
)
def test_what_has_no_streams_is_refused(method: str, args: Any, keywords: Any) -> None:
    with pytest.raises(UnsupportedError, match="to_device"):
        generators.random(np.random.default_rng(), method, (3,), *args, **keywords)


def test_distributions_refuse_what_numpys_refuse() -> None:
    with pytest.raises(ValueError, match="scale < 0"):
        generators.random(np.random.default_rng(), "normal", (3,), 0, -1)
