"""Small arrays of plain dtypes: values, dtypes, order, warnings and errors are NumPy's.

Where lazyfuse has machine code these go through NumPy's inner loops without NumPy's way to them.
"""

from __future__ import annotations

import gc
import operator
import pickle
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import lazyfuse
from lazyfuse.codegen.table.ops import BY_UFUNC

DTYPES = "? b B h H i I l L q Q f d F D".split()
BINARY = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.lt,
    operator.le, operator.eq, operator.ne, operator.gt, operator.ge, operator.pow,
)  # fmt: skip
INPLACE = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
    operator.iand, operator.ior, operator.ixor,
)  # fmt: skip
UNARY = (operator.neg, operator.pos, operator.abs, operator.invert)
UFUNCS = (
    "exp log sqrt sin tanh floor sign isnan conjugate square reciprocal logical_not deg2rad "
    "degrees spacing bitwise_count"
).split()
PAIRS = (
    "maximum fmin arctan2 hypot copysign power logical_and fmod gcd heaviside nextafter float_power"
).split()
NUMBERS = (
    2, -1, 0, 300, 2**40, 2**70, 0.5, 2.0, -0.0, 1e39, 1e-320, float("inf"), float("nan"), True,
    1 + 2j, np.float64(1.5), np.float32(2.5), np.int64(3), np.bool_(True), np.uint8(200),
)  # fmt: skip
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, 5e-324, 1.0]


def made(shape: tuple[int, ...], char: str, seed: int) -> Any:
    """Random values, some of them special."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=shape) * 3
    if char in "fdFD":
        values = np.where(generator.random(shape) < 0.2, generator.choice(SPECIAL, shape), values)
    if char in "BHILQ":
        values = abs(values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(char) if char != "?" else np.asarray(values > 0)


def outcome(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """What a call gives or raises, and what it warns of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = function(*args, **named)
        except (TypeError, ValueError, OverflowError, IndexError) as error:
            return type(error), str(error), ()
    return "gave", result, tuple(str(each.message) for each in told)


def check(expected: Any, found: Any, units: int = 0) -> None:
    """Compare two outcomes."""
    assert found[0] == expected[0], (expected, found)
    assert found[2] == expected[2]
    compare(expected[1], found[1], units)


def units_of(ufunc: Any) -> int:
    """In what many floats may differ from NumPy's: both are within the units of the op table."""
    return 2 * BY_UFUNC[ufunc].ulps


def compare(expected: Any, found: Any, units: int = 0) -> None:
    """Compare two results bit for bit, but for the bits of NaN; many floats to so many units."""
    if isinstance(expected, np.ndarray):
        assert type(found) is lazyfuse.ndarray
        found = found.to_numpy()
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        sides = zip(found.shape, found.strides, expected.strides, strict=True)
        assert not found.size or all(
            length == 1 or ours == theirs for length, ours, theirs in sides
        )
        assert found.flags.writeable == expected.flags.writeable
        if found.tobytes() == expected.tobytes():
            return
        usual = ~np.isnan(expected)
        if expected.dtype.kind == "f" and expected.size >= 512 and units:
            finite = np.isfinite(expected)
            most = units * np.spacing(np.abs(expected[finite]))
            assert (abs(found[finite] - expected[finite]) <= most).all()
            found, expected = found[~finite], expected[~finite]
            usual = usual[~finite]
        np.testing.assert_array_equal(found, expected, strict=True)
        for part in ("real", "imag"):
            ours, theirs = getattr(found, part)[usual], getattr(expected, part)[usual]
            np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))
    else:
        assert type(found) is type(expected)
        assert repr(found) == repr(expected)


def both(shape: tuple[int, ...], char: str, seed: int, view: Any = None) -> tuple[Any, Any]:
    """The same values as an array of NumPy and one of ours, or the same view of both."""
    x = made(shape, char, seed)
    theirs, ours = x.copy(), lazyfuse.array(x)
    return (view(theirs), view(ours)) if view is not None else (theirs, ours)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "every second": lambda x: x[::2],
    "backwards": lambda x: x[::-1],
    "window": lambda x: x[1:-1, 1:-1] if x.ndim == 2 else x[1:-1],
    "column": lambda x: x[:, :1] if x.ndim == 2 else x[:1],
    "row": lambda x: x[:1],
    "none": lambda x: x[:0],
}


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_operators(char: str, view: str) -> None:
    for seed, shape in enumerate([(7,), (4, 5), (1500,)]):
        a, x = both(shape, char, seed, VIEWS[view])
        b, y = both(shape, char, seed + 9, VIEWS[view])
        whole, z = both(shape, char, seed + 20)
        for function in BINARY:
            check(outcome(function, a, b), outcome(function, x, y))
            check(outcome(function, a, a), outcome(function, x, x))
            check(outcome(function, a, whole), outcome(function, x, z))
        for function in UNARY:
            check(outcome(function, a), outcome(function, x))
        for name in UFUNCS:
            theirs, ours = getattr(np, name), getattr(lazyfuse, name)
            check(outcome(theirs, a), outcome(ours, x), units_of(theirs))
        for name in PAIRS:
            theirs, ours = getattr(np, name), getattr(lazyfuse, name)
            check(outcome(theirs, a, b), outcome(ours, x, y), units_of(theirs))


@pytest.mark.parametrize("char", DTYPES)
def test_numbers_beside_arrays(char: str) -> None:
    a, x = both((3, 4), char, 5)
    for number in NUMBERS:
        for function in BINARY:
            check(outcome(function, a, number), outcome(function, x, number))
            check(outcome(function, number, a[0]), outcome(function, number, x[0]))
        for name in PAIRS:
            check(
                outcome(getattr(np, name), a, number), outcome(getattr(lazyfuse, name), x, number)
            )
            check(
                outcome(getattr(np, name), number, a), outcome(getattr(lazyfuse, name), number, x)
            )


@pytest.mark.parametrize("char", DTYPES)
def test_two_dtypes(char: str) -> None:
    a, x = both((3, 4), char, 1)
    for other in DTYPES:
        b, y = both((3, 4), other, 2)
        for function in BINARY[:17]:
            check(outcome(function, a, b), outcome(function, x, y))


@pytest.mark.parametrize("char", DTYPES)
def test_in_place(char: str) -> None:
    for view in VIEWS.values():
        for function in INPLACE:
            for other in ("itself", "beside", 3, 0.5, "shifted"):
                a, x = both((6, 5), char, 3)
                b, y = both((6, 5), char, 4)
                if other == "shifted":
                    operands = (a[1:], a[:-1]), (x[1:], x[:-1])
                elif other == "itself":
                    operands = (view(a), view(a)), (view(x), view(x))
                elif other == "beside":
                    operands = (view(a), view(b)), (view(x), view(y))
                else:
                    operands = (view(a), other), (view(x), other)
                check(outcome(function, *operands[0]), outcome(function, *operands[1]))
                compare(a, x)


def test_results_written_to_an_array() -> None:
    for char in "dlfD":
        for name in (*PAIRS, "add", "multiply", "divide"):
            a, x = both((9,), char, 3)
            b, y = both((9,), char, 4)
            for target in ((a, x), (b, y)):
                theirs, ours = getattr(np, name), getattr(lazyfuse, name)
                expected, found = (
                    outcome(theirs, a, b, out=target[0]),
                    outcome(ours, x, y, out=target[1]),
                )
                check(expected, found)
                assert found[0] != "gave" or found[1] is target[1]
                compare(a, x)
                compare(b, y)


def test_a_condition_in_place_is_told_once_and_the_values_are_written() -> None:
    a, x = np.array([1.0, 0.0, -1.0]), lazyfuse.array([1.0, 0.0, -1.0])
    check(outcome(operator.itruediv, a, 0.0), outcome(operator.itruediv, x, 0.0))
    compare(a, x)
    y = lazyfuse.array([np.inf, 1.0])
    with pytest.raises(FloatingPointError), lazyfuse.errstate(all="raise"):
        y -= np.inf


def test_memory_that_is_not_to_be_written() -> None:
    a, x = np.arange(4.0), lazyfuse.arange(4.0)
    a.flags.writeable = x.flags.writeable = False
    for function in INPLACE[:3]:
        check(outcome(function, a, 1.0), outcome(function, x, 1.0))
    compare(a, x)


def test_shapes_that_broadcast() -> None:
    shapes = [(1,), (5,), (3, 1), (1, 5), (3, 5), (2, 1, 5), (2, 3, 1), (1, 1), (0, 5), (2, 0, 1)]
    for seed, first in enumerate(shapes):
        for second in shapes:
            a, x = both(first, "d", seed)
            b, y = both(second, "d", seed + 1)
            for function in (operator.add, operator.lt, operator.pow):
                check(outcome(function, a, b), outcome(function, x, y))
                check(outcome(function, a.T, b), outcome(function, x.T, y))


def test_strides_for_which_some_loops_of_numpy_are_wrong() -> None:
    x = made((2, 5, 2, 4), "f", 1)
    compare(-(x[1:, :4, :, :3]), -(lazyfuse.array(x)[1:, :4, :, :3]))


def test_windows_that_overlap() -> None:
    x = np.arange(12.0)
    windows = as_strided(x, (10, 3), (8, 8))
    ours = lazyfuse.asarray(x)
    view = lazyfuse.lib.stride_tricks.as_strided(ours, (10, 3), (8, 8))
    compare(windows * 2 + windows, view * 2 + view)


@pytest.mark.parametrize("char", DTYPES)
def test_reductions(char: str) -> None:
    for seed, shape in enumerate(
        [(1,), (9,), (130,), (20000 // 16,), (3, 17), (1, 5), (4, 1), (2, 3, 9)]
    ):
        a, x = both(shape, char, seed)
        for name in ("sum", "max", "min", "mean", "prod", "any", "argmax", "std"):
            for named in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": 5}):
                if name == "argmax" and "keepdims" in named:
                    continue
                check(outcome(getattr(a, name), **named), outcome(getattr(x, name), **named))
                theirs, ours = getattr(np, name), getattr(lazyfuse, name)
                check(outcome(theirs, a, **named), outcome(ours, x, **named))


def test_zeros_and_sums() -> None:
    for values in ([-0.0], [-0.0, -0.0], [0.0, -0.0], [], [np.nan, 1.0], [1e308, 1e308]):
        for char in "df":
            with np.errstate(all="ignore"):
                a = np.array(values).astype(char)
            x = lazyfuse.array(a)
            for name in ("sum", "max", "min", "mean"):
                check(outcome(getattr(a, name)), outcome(getattr(x, name)))


def test_where() -> None:
    for char in DTYPES:
        a, x = both((3, 4), char, 1)
        b, y = both((3, 4), char, 2)
        mask = made((3, 4), "?", 3)
        for left, right in (
            ((a, b), (x, y)),
            ((a, 2), (x, 2)),
            ((0.5, b), (0.5, y)),
            ((1, 2), (1, 2)),
        ):
            expected = outcome(np.where, mask, *left)
            check(expected, outcome(lazyfuse.where, lazyfuse.array(mask), *right))
        check(
            outcome(np.where, mask.T, a.T, 0),
            outcome(lazyfuse.where, lazyfuse.array(mask).T, x.T, 0),
        )


KEYS: tuple[Any, ...] = (
    0, -1, 7, slice(1, 3), slice(None, None, -1), slice(3, 1), (0, 1), (slice(None), 1), (1,), (),
    (..., 0), (None, 1), (slice(0, 2), slice(1, None)), (0, slice(None, None, 2)), np.int64(1),
    (5, 0), (0, 1, 2), slice(None), True, [0, 1],
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reads_and_writes(key: Any) -> None:
    a, x = both((4, 5), "d", 1)
    expected, found = outcome(operator.getitem, a, key), outcome(operator.getitem, x, key)
    check(expected, found)
    if isinstance(expected[1], np.ndarray):
        shared = np.shares_memory(found[1].to_numpy(), x.to_numpy())
        assert shared == np.shares_memory(expected[1], a)
        assert (found[1].base is x) == (expected[1].base is a)
    for value in (1, 2.5, np.float64(3)):
        check(outcome(operator.setitem, a, key, value), outcome(operator.setitem, x, key, value))
        compare(a, x)


def test_comparisons_without_a_loop() -> None:
    for a in (np.array([b"a", b"b"]), np.array([1, 2], "M8[s]")):
        for function in (operator.eq, operator.ne):
            check(outcome(function, a, 1.0), outcome(function, lazyfuse.array(a), 1.0))


def test_masks_and_places() -> None:
    a, x = both((20,), "d", 1)
    with np.errstate(invalid="ignore"):
        mask = a > 0
    compare(a[mask], x[lazyfuse.array(mask)])
    places = np.array([3, -1, 3])
    compare(a[places], x[lazyfuse.array(places)])
    a[mask] = 0.5
    x[lazyfuse.array(mask)] = 0.5
    compare(a, x)


def test_arrays_are_freed_and_can_be_watched() -> None:
    x = lazyfuse.arange(5.0)
    watch = weakref.ref(x)
    assert watch() is x
    view = x[1:]
    assert view.base is x
    del x
    assert watch() is not None
    del view
    gc.collect()
    assert watch() is None


def test_arrays_are_sequences_to_c_code() -> None:
    x = lazyfuse.arange(3.0)
    assert list(map(float, x)) == [0.0, 1.0, 2.0]
    assert [float(each) for each in reversed(x)] == [2.0, 1.0, 0.0]
    assert operator.indexOf(x, 2.0) == 2


def test_functions_have_names_and_can_be_pickled() -> None:
    for name in ("sum", "where", "concatenate", "argsort"):
        function = getattr(lazyfuse, name)
        assert function.__name__ == name
        assert pickle.loads(pickle.dumps(function)) is function
    assert lazyfuse.ndarray.sum.__name__ == "sum"
    assert lazyfuse.arange(3).sum.__self__.shape == (3,)
