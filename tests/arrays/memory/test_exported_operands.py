"""Operations on memory that somebody outside may change run at once where that spares a copy."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays.ndarray import ndarray

SIZE = 40_000
SIGNS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "ge", "eq", "ne")
DTYPES = ("?", "u2", "i8", "f4", "f8", "D")


def numbers(dtype: str, shape: Any = SIZE, seed: int = 3) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, 7, shape).astype(dtype)
    return np.asarray(found + found.dtype.type(0.5)) if found.dtype.kind in "fc" else found


def is_pending(x: Any) -> bool:
    return x._node is not None and x._node.value is None


def same(ours: Any, theirs: Any) -> None:
    assert type(ours) is ndarray
    assert ours.dtype == theirs.dtype
    assert ours.strides == theirs.strides
    np.testing.assert_array_equal(np.asarray(ours), theirs, strict=True)


def outcome(function: Callable[[], Any]) -> tuple[Any, list[tuple[Any, str]]]:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = function()
            if isinstance(found, ndarray):
                found = np.asarray(found)
        except Exception as error:  # whatever NumPy raises
            found = type(error), str(error)
    return found, [(each.category, str(each.message)) for each in heard]


@pytest.mark.parametrize("device", ["", "cpu", "auto"])
def test_every_name_of_the_host_is_one(device: str) -> None:
    a = numbers("f8")
    with lf.options(device=device):
        same(lf.asarray(a) + lf.asarray(a), a + a)


@pytest.mark.parametrize("sign", SIGNS)
def test_values_and_warnings_are_numpys(sign: str) -> None:
    function = getattr(operator, sign)
    for first in DTYPES:
        for second in (first, "f8"):
            a, b = numbers(first), numbers(second, seed=5)
            for left, right in ((lf.asarray(a), lf.asarray(b)), (lf.array(a), b), (a, lf.array(b))):
                ours = outcome(lambda left=left, right=right: function(left, right))
                theirs = outcome(lambda a=a, b=b: function(a, b))
                assert ours[1] == theirs[1]
                if isinstance(theirs[0], tuple):
                    assert ours[0] == theirs[0]
                else:
                    np.testing.assert_array_equal(ours[0], theirs[0], strict=True)


@pytest.mark.parametrize("number", [2, 2.5, True, 1j, np.float32(3), 10**30, -(2**70)])
@pytest.mark.parametrize("dtype", ["u2", "f4", "f8"])
def test_numbers_beside(dtype: str, number: Any) -> None:
    a = numbers(dtype)
    x = lf.asarray(a)
    for function in (operator.add, operator.truediv, operator.lt, operator.pow):
        for swapped in (False, True):
            args = (number, x) if swapped else (x, number)
            real = (number, a) if swapped else (a, number)
            ours = outcome(lambda function=function, args=args: function(*args))
            theirs = outcome(lambda function=function, real=real: function(*real))
            assert ours[1] == theirs[1]
            if isinstance(theirs[0], tuple):
                assert ours[0] == theirs[0]
            elif function is not operator.pow:
                np.testing.assert_array_equal(ours[0], theirs[0], strict=True)
            else:
                np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


def test_orders_and_shapes() -> None:
    a, b = numbers("f8", (200, 300)), numbers("f8", (200, 300), 5)
    row, column = numbers("f8", (1, 300)), numbers("f8", (200, 1))
    pairs = [
        (a, b), (a.T, b.T), (np.asfortranarray(a), b), (a[::2], b[::2]), (a[:, ::-1], b), (a, row),
        (column, a), (column, row), (a.T, row.T), (a, np.float64(2)), (a, np.array(2.0)),
    ]  # fmt: skip
    for first, second in pairs:
        same(lf.asarray(first) + second, first + second)
        same(lf.multiply(first, lf.asarray(second)), first * second)
        same(lf.asarray(first) < lf.asarray(second), first < second)
        same(-lf.asarray(first), -first)
        same(lf.asarray(first) ** 2, first**2)
    with pytest.raises(ValueError, match="could not be broadcast"):
        lf.asarray(a) + b[:7]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1.0, lambda x: x + x, lambda x: -x, lambda x: x**2, lambda x: x > 3,
        lambda x: 3.0 * x, np.sqrt, lambda x: lf.add(x, 1.0), lambda x: np.where(x > 3, x, 0.0),
        lambda x: x.sum(), lambda x: x.max(axis=0), np.exp, lambda x: x.std(), lambda x: x.mean(0),
        lambda x: np.logaddexp(x, x[::-1]), lambda x: operator.iadd(lf.ones(SIZE) * 3, x),
        lambda x: (x * 2 + x) * x,
        lambda x: x[1:] - x[:-1], lambda x: lf.add(x, x, out=lf.zeros(SIZE)),
        lambda x: operator.iadd(lf.ones(SIZE), x),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["asarray", "exported"])
def test_later_writes_from_outside_are_not_seen(function: Callable[[Any], Any], way: str) -> None:
    for turn in range(4):
        a = numbers("f8", seed=turn)
        x = lf.asarray(a) if way == "asarray" else lf.array(a) + 0.0
        held = a if way == "asarray" else np.asarray(x)
        expected = np.array(function(lf.array(a)))  # from memory that is nobody else's
        result = function(x)
        held[:] = -1.0
        np.testing.assert_array_equal(np.asarray(result), expected)
        np.testing.assert_array_equal(np.asarray(x), held)
        assert float(np.asarray(lf.asarray(x) + 0.0).sum()) == -SIZE


@pytest.mark.usefixtures("on_cpu")
def test_the_result_is_an_array_of_its_own_that_is_recorded_on() -> None:
    a = numbers("f8")
    result = lf.asarray(a) * 2.0
    assert not is_pending(result)
    after = result + 1.0
    assert is_pending(after)
    result += 5.0
    result[3] = 0.0
    np.testing.assert_array_equal(np.asarray(after), a * 2.0 + 1.0)
    expected = a * 2.0 + 5.0
    expected[3] = 0.0
    np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.usefixtures("on_cpu")
def test_what_stays_recorded() -> None:
    a = numbers("f8")
    x, own = lf.asarray(a), lf.ones(SIZE)
    pending = own * 3.0
    assert is_pending(pending)
    assert is_pending(x + pending)
    assert is_pending(pending)  # it was not evaluated for that
    large = np.ones(40 * lf.options.eager_below)
    assert not is_pending(lf.asarray(large) + 1.0)
    assert not is_pending(lf.exp(x))
    assert not is_pending(x**1.7)
    assert not is_pending(x + 1.0)
    assert is_pending(x[:, np.newaxis] * lf.ones((1, 8)))  # more than would be copied
    with lf.options(exported_at_once=False):
        assert is_pending(lf.exp(x))
        assert is_pending(x + 1.0)
        assert is_pending(lf.asarray(large) + 1.0)
    with lf.options(eager_below=0):
        assert is_pending(lf.asarray(a) + 1.0)
    held = np.asarray(own)
    assert not is_pending(own + 1.0)
    del held
    assert is_pending(own + 1.0)  # nobody else sees it any more


def test_pending_outputs_are_not_evaluated() -> None:
    a = numbers("f8")
    out = lf.ones(SIZE) * 2.0
    lf.add(lf.asarray(a), 1.0, out=out)
    np.testing.assert_array_equal(np.asarray(out), a + 1.0)
    total = lf.ones(SIZE) * 2.0
    total += lf.asarray(a)
    assert is_pending(total)
    np.testing.assert_array_equal(np.asarray(total), a + 2.0)


def test_old_values_of_an_output_are_kept_for_those_who_want_them() -> None:
    a = numbers("f8")
    for write in (
        lambda out: lf.add(lf.asarray(a), 1.0, out=out),
        lambda out: operator.iadd(out, lf.asarray(a)),
    ):
        out = lf.array(a)
        before = out * 2.0
        view = out[::2]
        write(out)
        np.testing.assert_array_equal(np.asarray(before), a * 2.0)
        np.testing.assert_array_equal(np.asarray(view), np.asarray(out)[::2])


def test_an_output_that_overlaps() -> None:
    for base in (lf.asarray(numbers("f8")), lf.array(numbers("f8"))):
        expected = np.array(base)
        np.add(expected[1:], expected[:-1], out=expected[1:])
        held = np.asarray(base)
        lf.add(base[1:], base[:-1], out=base[1:])
        np.testing.assert_array_equal(held, expected)


def test_error_states() -> None:
    a, zero = np.ones(SIZE), np.zeros(SIZE)
    x = lf.asarray(a)
    with lf.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        x / zero
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(divide="ignore"):
            assert np.asarray(x / zero)[0] == np.inf
    with pytest.warns(RuntimeWarning, match="divide by zero") as heard:
        np.asarray(x / lf.asarray(zero))
    assert len(heard) == 1


@pytest.mark.usefixtures("on_cpu")
def test_fallbacks_count_it() -> None:
    a = numbers("f8")
    x = lf.asarray(a)
    before = sum(lf.fallbacks().values())
    assert not is_pending(x + 1.0)
    found = lf.fallbacks()
    assert sum(found.values()) == before + 1
    assert any(name == "add" and file == __file__ for name, file, _line in found)


def test_programs_with_other_values_each_turn() -> None:
    rng = np.random.default_rng(8)
    for turn in range(6):
        a, b = rng.random(SIZE), rng.random(SIZE) + 0.5
        x, y, z = lf.asarray(a), lf.asarray(b), lf.array(a)
        first = x + turn * y
        second = lf.where(x < y, x, z) - y / x
        total = (x * y).sum() + lf.asarray(a)[turn:].sum()
        z -= y
        chain, theirs = x, a
        for _ in range(4):
            chain, theirs = chain * y + x, theirs * b + a
        keep = a.copy(), b.copy()
        a[:], b[:] = -3.0, -4.0
        a, b = keep
        theirs = a
        for _ in range(4):
            theirs = theirs * b + a
        np.testing.assert_array_equal(np.asarray(first), a + turn * b)
        np.testing.assert_array_equal(np.asarray(second), np.where(a < b, a, a) - b / a)
        assert float(total) == (a * b).sum() + a[turn:].sum()
        np.testing.assert_array_equal(np.asarray(z), a - b)
        np.testing.assert_array_equal(np.asarray(chain), theirs)
