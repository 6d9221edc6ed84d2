"""Promotion against NumPy: what its ufuncs really return, and how they really fail."""

from __future__ import annotations

import itertools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from lazyfuse.codegen.table import promotion
from lazyfuse.codegen.table.ops import KERNEL_DTYPES, TABLE
from lazyfuse.codegen.table.promotion import LOOPS, cast_loop, resolve, resolve_reduce

ALL = [np.dtype(spelled) for spelled in (*KERNEL_DTYPES, "f2", "g", "G")]
WEAK = {int: 2, float: 2.0, complex: 2j}
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "power",
    "maximum",
    "less",
    "equal",
    "logical_and",
]
BINARY += [
    "bitwise_and",
    "left_shift",
    "arctan2",
    "copysign",
    "gcd",
    "ldexp",
    "heaviside",
    "float_power",
]
UNARY = [
    "negative",
    "absolute",
    "sqrt",
    "exp",
    "sign",
    "invert",
    "isnan",
    "logical_not",
    "floor",
    "conjugate",
    "square",
]
UNARY += ["bitwise_count", "signbit", "spacing", "reciprocal", "degrees"]


def outcome(function: Any, *args: Any) -> Any:
    """The dtype of a result, or the exception's type and text."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args)
        except TypeError as error:
            return (type(error), str(error))


@pytest.mark.parametrize("name", BINARY)
def test_resolve_equals_the_dtype_numpy_returns(name: str) -> None:
    op = TABLE[name]
    operands = [(dtype, np.ones(2, dtype)) for dtype in ALL]
    weak = list(WEAK.items())
    pairs = [*itertools.product(operands, operands), *itertools.product(operands, weak)]
    for (first, left), (second, right) in [*pairs, *itertools.product(weak, operands)]:
        want = outcome(lambda a, b: op.ufunc(a, b).dtype, left, right)
        got = outcome(lambda a, b: resolve(op, (a, b)).out, first, second)
        assert got == want, (name, first, second)


@pytest.mark.parametrize("name", UNARY)
def test_resolve_of_one_operand(name: str) -> None:
    op = TABLE[name]
    for dtype in ALL:
        want = outcome(lambda a: op.ufunc(a).dtype, np.ones(2, dtype))
        assert outcome(lambda a: resolve(op, (a,)).out, dtype) == want, (name, dtype)


def test_where_and_clip_promote_as_numpy_does() -> None:
    for first, second in itertools.product(ALL, ALL):
        values = (np.ones(2, first), np.ones(2, second))
        loop = resolve(TABLE["where"], (np.dtype(bool), first, second))
        assert loop.out == np.where(np.ones(2, bool), *values).dtype
        assert loop.ins == (np.dtype(bool), loop.out, loop.out)
        want = np.clip(values[0], values[1], values[1]).dtype
        assert resolve(TABLE["clip"], (first, second, second)).out == want
    single = np.ones(2, "f4")
    loop = resolve(TABLE["where"], (np.dtype("i4"), np.dtype("f4"), float))
    assert loop.out == np.where(np.ones(2, "i4"), single, 2.0).dtype
    assert loop.ins[0] == np.dtype(bool)


def test_parts_of_numbers() -> None:
    assert resolve(TABLE["real"], (np.dtype("c8"),)).out == np.dtype("f4")
    assert resolve(TABLE["imag"], (np.dtype("i2"),)).out == np.dtype("i2")
    assert resolve(TABLE["modf_fraction"], (np.dtype("i8"),)).ins == (np.dtype("f8"),)
    assert resolve(TABLE["frexp_exponent"], (np.dtype("f4"),)).out == np.dtype("i4")


def test_loops_are_interned() -> None:
    first = resolve(TABLE["add"], (np.dtype("f4"), np.dtype("f8")))
    assert first is resolve(TABLE["multiply"], (np.dtype("f8"), float))
    assert LOOPS[(TABLE["add"], np.dtype("f4"), np.dtype("f8"))] is first
    assert pickle.loads(pickle.dumps(first)) is first
    assert cast_loop(np.dtype("f8"), np.dtype("i4")) is cast_loop(np.dtype("f8"), np.dtype("i4"))
    assert np.dtype("q") == np.dtype("l")
    assert resolve(TABLE["negative"], (np.dtype("q"),)) is resolve(
        TABLE["negative"], (np.dtype("l"),)
    )


def test_a_foreign_byte_order_resolves_to_a_native_loop() -> None:
    foreign = np.dtype("f8").newbyteorder()
    assert resolve(TABLE["add"], (foreign, foreign)).ins[0].isnative


def test_resolve_with_a_signature_and_a_casting_rule() -> None:
    op = TABLE["add"]
    short = np.dtype("i4")
    doubles = (np.dtype("f8"), np.dtype("f8"))
    loop = promotion.resolve_with(op, doubles, (short, short, short), "unsafe")
    assert loop.out == short
    with pytest.raises(TypeError) as mine:
        promotion.resolve_with(op, doubles, (short, short, short))
    with pytest.raises(TypeError) as theirs:
        op.ufunc(np.ones(2), np.ones(2), signature=(short, short, short))
    assert str(mine.value) == str(theirs.value)


REDUCTIONS = [
    "add",
    "multiply",
    "minimum",
    "maximum",
    "fmin",
    "fmax",
    "logical_and",
    "logical_or",
    "bitwise_and",
]


@pytest.mark.parametrize("name", [*REDUCTIONS, "bitwise_xor", "subtract", "logaddexp", "hypot"])
def test_resolve_reduce_equals_the_dtype_numpy_returns(name: str) -> None:
    op = TABLE[f"reduce:{name}"]
    for dtype in ALL:
        want = outcome(lambda a: op.ufunc.reduce(a).dtype, np.ones(3, dtype))
        got = outcome(lambda a: resolve_reduce(op, a)[1], dtype)
        if isinstance(want, tuple):
            assert isinstance(got, tuple), (name, dtype)
            assert got == want
        else:
            assert got == want, (name, dtype)
        for requested in (np.dtype("f4"), np.dtype("i2"), np.dtype("c16")):
            want = outcome(
                lambda a, dt=requested: op.ufunc.reduce(a, dtype=dt).dtype, np.ones(3, dtype)
            )
            got = outcome(lambda a, dt=requested: resolve_reduce(op, a, dt)[1], dtype)
            if isinstance(want, np.dtype):
                assert got == want, (name, dtype, requested)


def test_argmin_counts_in_intp() -> None:
    pair = resolve_reduce(TABLE["reduce:argmin"], np.dtype("f4"))
    assert pair == (np.dtype("f4"), np.dtype(np.intp))
