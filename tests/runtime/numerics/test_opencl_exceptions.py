"""Warnings of operations that share a kernel of OpenCL: NumPy's words, kinds, lines and numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from tests.helpers.opencl_device import in_use
from tests.helpers.states import recording_all

SIZE = 10_007
Told = list[tuple[str, str, int]]
# Memory in common with the host, of its own, and the kernels made for GPUs.
MODES = {
    "shared": (True, False),
    "discrete": (False, False),
    "grid": (True, True),
    "discrete grid": (False, True),
}


@pytest.fixture(params=MODES, autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    share, grid = MODES[request.param]
    with in_use(share, grid), recording_all():
        yield


def told(function: Callable[..., Any], xp: Any, values: dict[str, Any]) -> Told:
    """Every warning until all results were looked at."""
    arrays = {name: xp.array(value) for name, value in values.items()}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        results = function(xp, **arrays)
        for each in results if isinstance(results, tuple) else (results,):
            numpy.asarray(each)
    return [(str(each.message), each.category.__name__, each.lineno) for each in found]


def check(function: Callable[..., Any], ordered: bool = True, **values: Any) -> None:
    """Warnings are NumPy's, in its order where each operation follows from the one before.

    Operations that do not depend on each other may run in any order.
    """
    sort: Callable[[Told], Told] = list if ordered else sorted
    expected = sort(told(function, numpy, values))
    assert expected, "NumPy has to warn"
    for _ in range(2):
        assert sort(told(function, np, values)) == expected


def ones(dtype: str, **places: float) -> Any:
    """Ones, but for some places."""
    found = numpy.ones(SIZE, dtype)
    for at, value in enumerate(places.values()):
        found[997 * at + 5] = value
    return found


FLOATS = pytest.mark.parametrize("dtype", ["f8", "f4"])


def independent(xp: Any, x: Any, y: Any, z: Any, w: Any) -> Any:
    a = 1 / x
    b = xp.log(y)
    c = z * z
    d = w - w
    return a + b * c - d


def chain(xp: Any, x: Any) -> Any:
    a = xp.exp(x)
    b = a - a
    c = xp.sqrt(b + 1.5 - x)
    return 1 / (c - c)


@FLOATS
def test_each_operation_has_its_own_conditions(dtype: str) -> None:
    inf, big = numpy.inf, float(numpy.finfo(dtype).max)
    places = {"x": 0.0, "y": -1.0, "z": big, "w": inf}
    for several in (("x",), ("w",), ("y", "z"), ("x", "y", "z", "w")):
        values = {name: ones(dtype, a=places[name] if name in several else 1.0) for name in places}
        check(independent, ordered=False, **values)


@FLOATS
def test_operations_that_follow_from_each_other_warn_in_order(dtype: str) -> None:
    check(chain, x=ones(dtype, a=1000.0, b=2.0))


@FLOATS
def test_the_same_condition_of_several_operations_is_told_of_each(dtype: str) -> None:
    def steps(xp: Any, x: Any) -> Any:
        a = xp.sqrt(x)
        b = xp.log(x)
        c = xp.arcsin(x)
        d = xp.log(x - 1)
        return a, b + c, d

    check(steps, ordered=False, x=ones(dtype, a=-7.0))


@FLOATS
def test_the_conditions_of_one_operation_come_in_numpys_order(dtype: str) -> None:
    def steps(xp: Any, x: Any, y: Any) -> Any:
        return (x + 1 - 1) / y

    big, small = float(numpy.finfo(dtype).max), float(numpy.finfo(dtype).tiny)
    check(steps, x=ones(dtype, a=0.0, b=1.0, c=big), y=ones(dtype, a=0.0, b=0.0, c=small))


@FLOATS
def test_a_reduction_and_what_it_reduces(dtype: str) -> None:
    big = float(numpy.finfo(dtype).max)

    def total(xp: Any, x: Any, y: Any) -> Any:
        a = xp.sqrt(x)
        b = y * 1
        return (
            xp.add.reduce(a * 0 + 1),
            xp.add.reduce(b),
        )

    check(total, ordered=False, x=ones(dtype), y=ones(dtype, a=big, b=big, c=big))
    check(total, ordered=False, x=ones(dtype, a=-1.0), y=ones(dtype))
    check(total, ordered=False, x=ones(dtype, a=-1.0), y=ones(dtype, a=big, b=big, c=big))


@FLOATS
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_that_share_a_kernel(dtype: str, axis: int | None) -> None:
    inf, big = numpy.inf, float(numpy.finfo(dtype).max)

    def totals(xp: Any, x: Any, y: Any) -> Any:
        a = xp.add.reduce(x + 0, axis)
        b = xp.add.reduce(y - x, axis)
        c = xp.max(x / y, axis)
        return a, b, c

    one = numpy.ones((300, 200), dtype)
    for first, second, third in ((big, 1, 1), (1, inf, 1), (1, 1, 0), (big, inf, 0)):
        x, y = one.copy(), one.copy()
        x[200, 7] = x[208, 7] = x[200, 15] = first
        y[100, 8], y[108, 8], y[100, 16] = second, -second, -second
        y[50, 100] = third
        if (first, second, third) != (1, 1, 1):
            check(totals, ordered=False, x=x, y=y)


@FLOATS
def test_updates_in_place(dtype: str) -> None:
    def update(xp: Any, x: Any, y: Any) -> Any:
        x -= 1
        x[10:] = 1 / x[10:]
        y *= y
        x += xp.sqrt(-y)
        return x, y

    big = float(numpy.finfo(dtype).max)
    for y in (ones(dtype, a=0.0), ones(dtype, a=big)):
        check(update, ordered=False, x=ones(dtype, a=2.0), y=y)


def test_integers_and_casts() -> None:
    def steps(xp: Any, i: Any, x: Any) -> Any:
        a = i // (i - 5)
        b = (x / 2).astype("i4")
        c = xp.add(x, 1).astype("f4")
        return a, b, c

    values = {"i": ones("i8", a=5), "x": ones("f8", a=1e300)}
    check(steps, ordered=False, **values)
    check(steps, ordered=False, i=values["i"], x=ones("f8"))
    check(steps, ordered=False, i=ones("i8"), x=ones("f8", a=1e30))


@pytest.mark.parametrize("dtype", ["c16", "c8"])
def test_complex_numbers(dtype: str) -> None:
    def steps(xp: Any, x: Any, y: Any) -> Any:
        a = x * x
        b = x + y
        c = b - y
        return a, c, xp.sum(b)

    big = float(numpy.finfo(dtype).max)
    check(steps, ordered=False, x=ones(dtype, a=big), y=ones(dtype))
    check(steps, ordered=False, x=ones(dtype), y=ones(dtype, a=numpy.inf))


def test_more_operations_than_a_word_has_room_for() -> None:
    def steps(xp: Any, x: Any) -> Any:
        for _ in range(30):
            x = xp.sqrt(x + 1) - 1
        y = xp.log(x - 2)
        for _ in range(10):
            y = y * 2
        return 1 / (y - y)

    check(steps, x=ones("f8", a=3.0))
    check(steps, x=ones("f8", a=numpy.inf))
