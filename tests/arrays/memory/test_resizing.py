"""`ndarray.resize`, which works in place where nothing else looks at the memory."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse

LARGE = 20_000


def released(x: Any) -> None:
    memoryview(x).release()


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: None,
    "an alias": lambda x: x,
    "a list": lambda x: [x],
    "a view": lambda x: x[1:],
    "another shape": lambda x: x.reshape(2, -1),
    "a copy": lambda x: x.copy(),
    "a result": lambda x: x + 1,
    "a buffer": memoryview,
    "a buffer that was released": released,
    "numpy.asarray": numpy.asarray,
    "a view of numpy.asarray": lambda x: numpy.asarray(x)[3:],
    "a weak reference": weakref.ref,
    "an iterator": iter,
}

MAKERS: dict[str, Callable[[Any, int], Any]] = {
    "computed": lambda xp, n: xp.arange(float(n)) * 2,
    "constant": lambda xp, n: xp.ones(n),
    "a buffer's": lambda xp, n: xp.frombuffer(bytearray(8 * n)),
    "a part": lambda xp, n: xp.ones(2 * n)[:n],
    "reshaped": lambda xp, n: reshaped(xp.ones(n)),
}


def reshaped(x: Any) -> Any:
    with warnings.catch_warnings():  # NumPy 2.5 would rather see a view
        warnings.simplefilter("ignore", DeprecationWarning)
        x.shape = (2, -1)
    return x


def resized(xp: Any, size: int, make: str, hold: str, shape: Any, refcheck: bool) -> Any:
    x = MAKERS[make](xp, size)
    holder = HOLDERS[hold](x)
    try:
        x.resize(shape, refcheck=refcheck)
    except (ValueError, TypeError, OverflowError) as error:
        return type(error), str(error)
    values = holder.tolist() if hold in ("a copy", "a result") else None
    return x.shape, x.strides, x.tolist(), values


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("size", [8, LARGE])
def test_resize_is_refused_where_numpy_refuses(make: str, size: int) -> None:
    for shape in (size // 2, size, (2, size // 2), (3, size), (2, -4), 1 << 70, "a"):
        for hold in HOLDERS:
            for refcheck in (True, False):
                case = (size, make, hold, shape, refcheck)
                assert resized(lazyfuse, *case) == resized(numpy, *case), case


def test_an_array_of_as_many_elements_stays_where_it_is() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.arange(float(size))
        part = x[2:-2]
        part.resize(2, (size - 4) // 2)
        part += 100
        turned = xp.asfortranarray(x.reshape(2, -1) * 1.0)
        first = turned[0]
        turned.resize(size)
        turned[0] = -5
        return x.tolist(), part.tolist(), first.tolist(), turned.tolist()

    for size in (10, LARGE):
        assert program(lazyfuse, size) == program(numpy, size)
