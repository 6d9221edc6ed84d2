"""Reductions, compared with NumPy to the bit: values, dtypes, warnings, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.arrays.scalars import scalar
from tests.helpers.compare import both
from tests.pairwise import first

NAMES = (
    "sum prod min max amin amax any all mean var std argmin argmax ptp count_nonzero cumsum "
    "cumprod nansum nanprod nanmin nanmax nanmean nanvar nanstd nanargmin nanargmax nancumsum "
    "average median nanmedian cumulative_sum"
).split()
DTYPES = ("?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16", "O", "m8[s]", "U2")
# Products and what is built on complex multiplication need not be NumPy's to the last bit.
SLOPPY = {"prod", "nanprod", "cumprod"}


def values(dtype: str, shape: tuple[int, ...] = (5, 7)) -> Any:
    random = np.random.default_rng(len(dtype) + len(shape))
    found = random.normal(size=shape) * 3
    if dtype[0] == "c":
        return (found + 1j * random.normal(size=shape)).astype(dtype)
    if dtype[0] in "um?":
        found = abs(found)
    return found.astype("i8").astype(dtype) if dtype[0] in "mU" else found.astype(dtype)


def ulps(name: str, dtype: str) -> int:
    return 64 if name in SLOPPY or dtype[0] == "c" else 0


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype(name: str) -> None:
    for dtype in DTYPES:
        array = values(dtype)
        for axis in (None, 0, 1, -1):
            # a host call's warning does not yet name the ufunc
            both(lambda xp, x, axis: getattr(xp, name)(x, axis=axis), array, axis,
                 ulps=ulps(name, dtype), warned="cum" not in name)  # fmt: skip


@pytest.mark.parametrize("name", "sum min max any all mean var std argmax cumsum prod".split())
def test_methods(name: str) -> None:
    for dtype in ("?", "i4", "f8", "c16"):
        array = values(dtype)
        for args in ((), (0,), (1,), (-1,), (2,)):
            both(lambda xp, x, args: getattr(x, name)(*args), array, args, ulps=ulps(name, dtype))


KEYWORDS: list[dict[str, Any]] = [
    {"keepdims": True},
    {"keepdims": False, "axis": 1},
    {"axis": (0, 1), "keepdims": True},
    {"axis": ()},
    {"axis": (0, 0)},
    {"axis": 3},
    {"axis": "x"},
    {"dtype": "f4"},
    {"dtype": "i8", "axis": 0},
    {"dtype": "c16"},
    {"initial": 5},
    {"initial": -1.5, "axis": 0},
    {"where": [True, False, True, True, False, True, True]},
    {"where": False},
    {"ddof": 1},
    {"ddof": 1.5, "axis": 1},
    {"ddof": 100},
    {"correction": 1},
    {"correction": 1, "ddof": 1},
    {"nonsense": 1},
    {"out": 3},
]


@pytest.mark.parametrize("kwargs", KEYWORDS, ids=str)
@pytest.mark.parametrize("name", "sum prod min max any all mean var std argmin ptp".split())
def test_keywords(name: str, kwargs: dict[str, Any]) -> None:
    both(lambda xp, x: getattr(xp, name)(x, **kwargs), values("f8"), ulps=ulps(name, "f8"))
    both(lambda xp, x: getattr(xp, name)(x, **kwargs), values("i4"), ulps=ulps(name, "i4"))


@pytest.mark.parametrize("name", "sum min any mean var std argmin cumsum".split())
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
def test_out(name: str, dtype: str) -> None:
    def call(xp: Any, x: Any) -> Any:
        out = xp.zeros((5, 7) if name == "cumsum" else 7, dtype)
        result = getattr(xp, name)(x, axis=0, out=out)
        assert result is out
        return out

    both(call, values("f8"))
    both(lambda xp, x: getattr(xp, name)(x, axis=0, out=xp.zeros(3)), values("f8"))


@pytest.mark.parametrize("name", "sum prod min max any all mean var argmin nanmean nanmax".split())
def test_nothing_to_reduce(name: str) -> None:
    for shape in ((0,), (0, 3), (3, 0)):
        for axis in (None, 0):
            both(lambda xp, x, axis: getattr(xp, name)(x, axis=axis), np.zeros(shape), axis)
    both(lambda xp, x: getattr(xp, name)(x), np.array(2.5))
    both(lambda xp, x: getattr(xp, name)(x), [1.0, 2.5])
    both(lambda xp, x: getattr(xp, name)(x), 3)


@pytest.mark.parametrize("name", "sum mean var std min argmax cumsum prod any".split())
def test_memory_orders(name: str) -> None:
    array = values("f8", (6, 5, 4))
    for turn in (
        lambda x: x.T,
        lambda x: x.transpose(1, 2, 0),
        lambda x: x[::2, ::-1],
        lambda x: x[:, 1:3].copy("F"),
        lambda x: x[:, :1],
    ):
        for axis in (None, 0, 1, 2):
            both(lambda xp, x, axis, turn: getattr(xp, name)(turn(x), axis=axis), array, axis,
                 turn, ulps=ulps(name, "f8"))  # fmt: skip


# what is reduced is chosen by dtype, how by axis: each name is met with float64s, with two or three
# other dtypes and with each axis, and each dtype with each axis
BIG: list[tuple[str, str, int | None]] = []
BIG_REST: list[tuple[str, str, int | None]] = []
for _i, _name in enumerate(("sum", "mean", "var", "std", "min", "argmax", "any", "ptp")):
    for _k, _dtype in enumerate(("f8", "f4", "f2", "i4", "u1", "?")):
        for _at, _axis in enumerate((None, 0, 1)):
            _usual = (_i + _k) % 3 == _at and (_k == 0 or (_i + _k) % 2 == 1)
            (BIG if _usual else BIG_REST).append((_name, _dtype, _axis))


@pytest.mark.parametrize("big", first(len(BIG), BIG + BIG_REST), ids=str)
def test_big_arrays(big: tuple[str, str, int | None]) -> None:
    name, dtype, axis = big
    array = values(dtype, (130, 259))
    if name == "ptp" and dtype == "?":
        array = array[:0]
    both(lambda xp, x, axis: getattr(xp, name)(x, axis=axis), array, axis)


def test_not_numbers() -> None:
    array = values("f8")
    array[1, 2:4] = np.nan
    array[3] = np.inf
    array[4] = np.nan
    for name in NAMES:
        for axis in (None, 0, 1):
            both(lambda xp, x, axis, name: getattr(xp, name)(x, axis=axis), array, axis, name)


def test_recorded_and_not_evaluated() -> None:
    x = lazyfuse.ones((400, 300))
    for name in "sum prod min max any all mean var std argmin ptp".split():
        for axis in (None, 0, 1):
            result = getattr(lazyfuse, name)(x, axis=axis)
            assert result._node.value is None
            assert (type(result) is scalar) == (axis is None)
    for name in ("cumsum", "cumprod"):
        assert getattr(x, name)(axis=1)._node.value is None
    assert lazyfuse.add.reduce(x, 1)._node.value is None
    assert lazyfuse.linalg.norm(x, axis=1)._node.value is None


@pytest.mark.smoke
def test_results_are_numpys() -> None:
    x = lazyfuse.array([1.0, 2.0])
    assert type(x.sum()) is np.float64
    assert type(lazyfuse.mean(x)) is np.float64
    assert isinstance(lazyfuse.ones(1 << 16).sum(), float)
    assert isinstance(lazyfuse.count_nonzero(lazyfuse.ones(1 << 16)), type(np.count_nonzero(0)))
