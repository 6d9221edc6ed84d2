"""Numbers beside arrays give what NumPy gives, the first time and the next."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse

DTYPES = "?bBiIlQqefdgFD"
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 3, 127, 128, 255, 300, -129, 2**24 + 1, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**30,
    0.0, -0.0, 1.0, -1.0, 2.5, 0.1, 65520.0, 1e-50, 1e-42, 1e300, 3.5e38,
    float("inf"), -float("inf"), float("nan"),
    True, False, 1j, 0.0j, np.float32(1.5), np.float64(0.1), np.int8(3), np.uint64(5), np.bool_(1),
    np.complex64(1j), np.longdouble(2), np.float16(1.5),
)  # fmt: skip
OPERATORS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.and_, operator.lshift, operator.eq, operator.lt, operator.ge,
)  # fmt: skip
IN_PLACE = (operator.iadd, operator.imul, operator.itruediv, operator.ixor, operator.irshift)
UFUNCS = ("maximum", "add", "power", "hypot", "copysign", "arctan2", "less", "logaddexp", "ldexp")


def told(function: Callable[..., Any], *operands: Any) -> Any:
    """Dtype, type and bytes of a result, or the error; and the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            result = function(*operands)
        except Exception as error:
            return type(error), str(error), [str(each.message) for each in found]
    array = np.asarray(result)
    kind = "array" if isinstance(result, np.ndarray | lazyfuse.ndarray) else type(result)
    # numbers of 80 bits have bytes that say nothing
    plain = array.dtype.char in "OgG"
    values = [str(each) for each in array.flat] if plain else array.tobytes()
    return kind, array.dtype, array.shape, values, [str(each.message) for each in found]


def into(ufunc: Any, out: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: ufunc(x, y, out=out)


def operands(char: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    values = np.array([1, 0, 3]).astype(char)
    return values, values[:1].reshape(())


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("function", OPERATORS, ids=lambda each: each.__name__)
def test_operators(char: str, function: Callable[[Any, Any], Any]) -> None:
    for real in operands(char):
        ours = lazyfuse.array(real)
        for number in NUMBERS:
            right, left = told(function, real, number), told(function, number, real)
            for _ in range(2):  # made, then kept
                assert told(function, ours, number) == right, number
                assert told(function, number, ours) == left, number


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("function", IN_PLACE, ids=lambda each: each.__name__)
def test_in_place(char: str, function: Callable[[Any, Any], Any]) -> None:
    real = operands(char)[0]
    for number in NUMBERS:
        theirs, ours = real.copy(), lazyfuse.array(real)
        for _ in range(2):
            assert told(function, ours, number) == told(function, theirs, number), number
            assert told(np.asarray, ours) == told(np.asarray, theirs), number


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs(char: str, name: str) -> None:
    theirs, ours = getattr(np, name), getattr(lazyfuse, name)
    for real in operands(char):
        array = lazyfuse.array(real)
        for number in NUMBERS:
            right, left = told(theirs, real, number), told(theirs, number, real)
            written = told(into(theirs, np.zeros(3)), real, number)
            for _ in range(2):
                assert told(ours, array, number) == right, number
                assert told(ours, number, array) == left, number
                assert told(into(ours, lazyfuse.zeros(3)), array, number) == written, number
