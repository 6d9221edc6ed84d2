"""Functions of truth values, `unique` of integers, and the scan behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lazyfuse import config
from lazyfuse.kernels import compact
from tests.helpers.compare import both
from tests.pairwise import first

SIZE = 150_001  # above the sizes at which NumPy finds the places by itself
WAYS: tuple[dict[str, Any], ...] = ({}, {"routines": False}, {"threads": 1})


@pytest.fixture(params=WAYS, ids=str, autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with config.options(compile_after=0, eager_below=16384, **request.param):
        yield


def _values(dtype: str = "f8", size: int = SIZE) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(3)
    return (generator.standard_normal(size) * 3).astype(dtype)


FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "nonzero": lambda xp, x, m: xp.nonzero(m),
    "nonzero of numbers": lambda xp, x, m: x.nonzero(),
    "nonzero of a condition": lambda xp, x, m: xp.nonzero((x > 1) & m),
    "nonzero of rows": lambda xp, x, m: xp.nonzero(m[1:].reshape(-1, 250)),
    "nonzero of columns": lambda xp, x, m: xp.nonzero(m[1:].reshape(-1, 250).T),
    "nonzero of a cube": lambda xp, x, m: xp.nonzero(m[1:].reshape(-1, 25, 10)),
    "nonzero, strided": lambda xp, x, m: xp.nonzero(m[::2]),
    "strides": lambda xp, x, m: [each.strides for each in xp.nonzero(m[1:].reshape(-1, 250))],
    "where": lambda xp, x, m: xp.where(x > 0.5),
    "flatnonzero": lambda xp, x, m: xp.flatnonzero(x[1:].reshape(-1, 250).T > 2),
    "argwhere": lambda xp, x, m: xp.argwhere(m),
    "argwhere of rows": lambda xp, x, m: xp.argwhere(m[1:].reshape(-1, 250)),
    "extract": lambda xp, x, m: xp.extract(m, x),
    "extract by numbers": lambda xp, x, m: xp.extract(x.astype(int), x).sum(),
    "compress": lambda xp, x, m: xp.compress(m, x),
    "compress, a method": lambda xp, x, m: x.compress(m, axis=0).sum(),
    "compress rows": lambda xp, x, m: xp.compress(m[:10], x[1:].reshape(10, -1), axis=0),
    "compress, wrong": lambda xp, x, m: xp.compress(m, x[1:].reshape(10, -1), axis=3),
    "select": lambda xp, x, m: x[m],
    "select all but the last": lambda xp, x, m: x[:-1][m[1:]],
    "select, strided": lambda xp, x, m: x[::3][m[::3]],
    "select a mask": lambda xp, x, m: m[x > 0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    x = _values()
    for m in (x > 0.3, x > 100, x < 100):
        both(FUNCTIONS[name], x, m)


def _written(write: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    def work(xp: Any, x: Any, m: Any) -> Any:
        before = x + 0
        y = x * 2
        write(xp, y, m)
        write(xp, x, m)
        return [x, y, before, m]

    return work


WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "putmask": lambda xp, x, m: xp.putmask(x, m, 3.0),
    "putmask, an integer": lambda xp, x, m: xp.putmask(x, m, 3),
    "putmask, an array": lambda xp, x, m: xp.putmask(x, m, x[::-1]),
    "putmask, itself": lambda xp, x, m: xp.putmask(x, m, x * x),
    "putmask, repeated": lambda xp, x, m: xp.putmask(x, m, xp.array([1.0, 2.0, 3.0])),
    "putmask, wrong": lambda xp, x, m: xp.putmask(x, m[1:], 3.0),
    "place": lambda xp, x, m: xp.place(x, m, 3.0),
    "place, a list": lambda xp, x, m: xp.place(x, m, [1.0, 2.0]),
    "place, an array": lambda xp, x, m: xp.place(x, m, x[5:9]),
    "copyto": lambda xp, x, m: xp.copyto(x, 5.0, where=m),
    "a number": lambda xp, x, m: x.__setitem__(m, 2),
    "added": lambda xp, x, m: x.__setitem__(m, x[m] + 1),
    "in place": lambda xp, x, m: exec("x[m] *= 3; x[m] -= x[m] / 2", {"x": x, "m": m}),
    "of another": lambda xp, x, m: x.__setitem__(m, (x * x)[m]),
    "by another mask": lambda xp, x, m: x.__setitem__(m, x[m][::-1]),
    "wrong length": lambda xp, x, m: x.__setitem__(m, x[~m]),
}


# how a mask is written is chosen by its name, what by dtype: each name with float64s and, by turns,
# each third with one other dtype
WRITTEN = [(name, "f8") for name in WRITES]
WRITTEN += [(name, ("i4", "?")[at % 2]) for at, name in enumerate(WRITES) if at % 3 == 1]
USUAL = len(WRITTEN)
WRITTEN += [(name, ("i4", "?")[at % 2]) for at, name in enumerate(WRITES) if at % 3 != 1]
WRITTEN += [(name, ("?", "i4")[at % 2]) for at, name in enumerate(WRITES)]
WRITTEN.remove(("in place", "?"))  # NumPy refuses to subtract truth values


@pytest.mark.parametrize("written", first(USUAL, WRITTEN), ids=str)
def test_writes(written: tuple[str, str]) -> None:
    name, dtype = written
    x = _values(dtype, 20_001)
    both(_written(WRITES[name]), x, _values("f8", 20_001) > 0.5)


# the narrowest with a sign, the widest without
@pytest.mark.parametrize("dtype", first(2, ["i1", "u8", "i4", "u1", "i2", "i8"]))
def test_unique(dtype: str) -> None:
    limits = np.iinfo(dtype)
    generator = np.random.default_rng(1)
    for low, high in ((limits.min, limits.min + 100), (limits.max - 100, limits.max), (5, 5)):
        x = generator.integers(low, high, 40_000, dtype=dtype, endpoint=True)
        both(lambda xp, x: [xp.unique(x), xp.unique(x.reshape(200, -1).T), xp.unique(x[:0])], x)
        both(lambda xp, x: xp.unique(x, return_counts=True), x)
    both(
        lambda xp, x: xp.unique(x), generator.integers(limits.min, limits.max, 40_000, dtype=dtype)
    )
    both(lambda xp, x: xp.unique(x), generator.standard_normal(40_000).round(1))


@pytest.mark.parametrize("dtype", ["?", "i4", "u8", "f4", "f8", "c16"])
def test_few_test_elements(dtype: str) -> None:
    """`isin` compares with up to eight of the same dtype; NumPy does the rest."""
    for size in (SIZE, 700, 5):
        x = (
            _values(dtype if dtype != "?" else "i8", size) % 7
            if dtype[0] in "iu"
            else _values(dtype, size)
        )
        if dtype[0] == "f":
            x[::3] = np.round(x[::3])
            x[1] = np.nan
        for few in (x[:5], x[:1], x[:0], x[:12], x[2:5].reshape(3, 1), [1, 2]):
            for named in ({}, {"invert": True}, {"assume_unique": True}):
                both(lambda xp, x, few, named=named: xp.isin(x, few, **named), x, few)
        if size > 6:
            both(lambda xp, x: xp.isin(x[1:].reshape(2, -1), x[:3]), x[: 2 * (size // 2) - 1])
    both(lambda xp, x: xp.isin(x, x[:2], kind="sort"), _values("i8", 40))
    both(lambda xp, x: xp.isin(x, x[:2], kind="nonsense"), _values("i8", 40))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_a_selection_writes_nothing_behind_itself(size: int) -> None:
    generator = np.random.default_rng(size)
    dtype = {1: "u1", 2: "f2", 4: "f4", 8: "i8", 16: "c16"}[size]
    for count in (1, 7, 63, 64, 65, 1023, 1025, 65_535, 65_537, 140_000):
        values = generator.integers(0, 100, count).astype(dtype)
        for share in (0.0, 0.01, 0.5, 0.99, 1.0):
            mask = generator.random(count) < share
            mask.view("u1")[mask] = generator.integers(1, 256, mask.sum())  # any byte but 0 is true
            assert np.array_equal(compact.select(values, mask), values[mask])
            assert compact.kept(mask).number == np.count_nonzero(mask)
