"""Division of integers by way of doubles: every bit and every condition is NumPy's."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf

NAMES = ("floor_divide", "remainder", "fmod")
COUNT = 40_000


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with lf.options(eager_below=0, compile_after=0, compile_ahead=False):
        yield


def edges(dtype: str) -> Any:
    """Small numbers, and the neighbours of powers of two, with both signs."""
    limits = np.iinfo(dtype)
    found = {0, 1, 2, 3, 5, 7, 1009, 10**9 + 7, limits.min, limits.min + 1, limits.max}
    for power in range(limits.bits):
        found |= {(1 << power) + near for near in (-1, 0, 1)}
    found |= {-each for each in found}
    return np.array(sorted(x for x in found if limits.min <= x <= limits.max), dtype)


def random(dtype: str, generator: np.random.Generator) -> Any:
    """Numbers of all lengths in bits."""
    shift = generator.integers(0, 64, COUNT).astype("u8")
    bits = generator.integers(0, 1 << 64, COUNT, dtype="u8") >> shift
    return bits.view(dtype) * generator.choice([1, -1], COUNT) if dtype == "i8" else bits


def check(name: str, a: Any, b: Any) -> None:
    with np.errstate(all="ignore"), lf.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
        found = getattr(lf, name)(lf.asarray(a), lf.asarray(b) if np.ndim(b) else b)
        found = found.to_numpy()
    assert found.dtype == expected.dtype
    wrong = np.nonzero(found != expected)[0]
    assert not len(wrong), (name, a[wrong[0]], np.broadcast_to(b, a.shape)[wrong[0]])


@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize("name", NAMES)
def test_all_pairs_of_edges(name: str, dtype: str) -> None:
    every = edges(dtype)
    a, b = np.meshgrid(every, every)
    check(name, a.ravel(), b.ravel())


@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize("name", NAMES)
def test_random_numbers_and_near_multiples(name: str, dtype: str) -> None:
    generator = np.random.default_rng(11)
    a, b = random(dtype, generator), random(dtype, generator)
    check(name, a, b)
    with np.errstate(all="ignore"):
        multiples = a // b * b + generator.integers(0, 3, COUNT).astype(dtype) - np.array(1, dtype)
    check(name, multiples, b)
    for divisor in (1, 2, 1009, (1 << 53) + 1, (1 << 63) - 1):
        check(name, a, np.array(divisor, dtype)[()])
    for divisor in (-1, -1009, -(1 << 63)) if dtype == "i8" else ():
        check(name, a, np.int64(divisor))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 5], [2, 0]),
        ([-(1 << 63), 4], [-1, 2]),
        ([5, (1 << 63) - 1], [1, 1]),
        ([-(1 << 63), 5], [-1, 0]),
        ([7, 7], [3, -3]),
        ([0, 7], [0, 7]),
    ],
)
@pytest.mark.parametrize("dtype", ["i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"])
@pytest.mark.parametrize("name", NAMES)
def test_conditions(name: str, dtype: str, a: list[int], b: list[int]) -> None:
    told = []
    for xp in (np, lf):
        x, y = (xp.asarray(np.tile(_least(each, dtype), 150_000)) for each in (a, b))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            np.asarray(getattr(xp, name)(x, y))
        told.append(sorted(str(each.message) for each in seen))
    assert told[0] == told[1]


def _least(numbers: list[int], dtype: str) -> Any:
    """The numbers, with the least one of the dtype in place of that of 64 bits."""
    least = np.iinfo(dtype).min
    return np.array([each if abs(each) < 100 else least for each in numbers]).astype(dtype)
