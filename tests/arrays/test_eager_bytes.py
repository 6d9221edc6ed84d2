"""Operators on many single bytes, which NumPy runs at once, and parts assigned to themselves."""

from __future__ import annotations

import operator
import sys

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays.base import COMPILED
from lazyfuse.runtime.execution import concurrency

OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.and_,
    operator.xor,
    operator.eq,
    operator.lt,
]
OTHERS = [3, 1.5, True, np.uint8(7), np.float32(2.5), 1j]


def _bytes(dtype: str) -> np.ndarray:
    numbers = np.random.default_rng(3).integers(1, 100, (200, 250))
    return numbers % 2 == 0 if dtype == "?" else numbers.astype(dtype)


def _outcome(function, *operands):
    with np.errstate(all="ignore"):
        try:
            result = function(*operands)
        except (TypeError, OverflowError) as error:
            return type(error), str(error)
        real = np.asarray(result)
        return real.dtype, real.shape, real.tobytes()


@pytest.mark.parametrize("function", OPERATORS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("left", ["u1", "i1", "?"])
def test_bytes_beside_others(function, left):
    a = _bytes(left)
    x = lf.array(a)
    for right in ("u1", "i1", "?", "f8"):
        b = _bytes(right)
        y = lf.array(b)
        for p, q, r, s in (
            (a, b, x, y),
            (a, b[0], x, y[0]),
            (a.T, b.T, x.T, y.T),
            (a[::2], b[1::2], x[::2], y[1::2]),
        ):
            assert _outcome(function, r, s) == _outcome(function, p, q)
    for other in OTHERS:
        assert _outcome(function, x, other) == _outcome(function, a, other)
        assert _outcome(function, other, x) == _outcome(function, other, a)


def _turns(xp, a):
    x = xp.array(a)
    key = (slice(1, None), slice(None, -1))
    rest = x[2:]
    part = x[key]
    part += 1.0
    rest[key] = part[:-2]  # another view, the same key
    part = x[key]
    rest = x[1:]
    x[key] = part  # itself
    part = rest[:, :-1]
    x[key] = part  # the same memory through another view
    part = x[key]
    x[:-1, 1:] = part  # another key
    for number in range(15):
        where = slice(number, None)
        x[where] *= 0.5
        x[where, number] -= x[number, number]
    x.setflags(write=True)
    return x


@pytest.mark.parametrize("side", [20, 250])
def test_parts_assigned_to_themselves(side):
    a = np.random.default_rng(4).normal(size=(side, side))
    assert np.array_equal(np.asarray(_turns(lf, a)), _turns(np, a))


def test_the_same_key_of_a_block_that_may_not_be_written():
    x = lf.array(np.ones((250, 250)))
    np.asarray(x)
    key = slice(3, None)
    part = x[key]
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        x[key] = part


@pytest.mark.parametrize("exponent", [2, -1, 0.5, 3])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8])
def test_powers_of_many_bytes_have_the_dtype_of_few(dtype, exponent):
    """`**` is not `numpy.power`: two squares, which keeps the dtype of booleans small."""

    def power(xp):
        x = xp.asarray(np.ones(200_000, dtype))
        x = x | x
        return x**exponent

    try:
        wanted = power(np)
    except (ValueError, OverflowError) as error:  # integers to negative powers
        with pytest.raises(type(error), match=str(error)):
            power(lf)
        return
    found = power(lf)
    assert found.dtype == wanted.dtype
    assert np.array_equal(np.asarray(found), wanted)


BYTES = ["u + u", "u + 3", "~u", "u < 9", "np.maximum(u, 5)", "np.invert(u)", "u * 0.5", "v * u"]


@pytest.mark.skipif(not COMPILED, reason="the record path is pure Python")
@pytest.mark.parametrize("statement", BYTES)
def test_no_python_runs_for_many_bytes(statement, monkeypatch):
    monkeypatch.setattr(concurrency, "share", 0.0)  # no other thread has evaluated just now
    rng = np.random.default_rng(5)
    names = {"u": lf.array(rng.integers(0, 9, 100_000).astype("u1")), "np": lf}
    names["v"] = lf.array(rng.random(100_000))
    code = compile(statement, "<bytes>", "eval")
    calls = []
    for _ in range(20):
        seen = 0

        def note(frame, event, arg):
            nonlocal seen
            seen += event == "call"

        sys.setprofile(note)
        result = eval(code, names)
        sys.setprofile(None)
        calls.append(seen)
        del result
    assert min(calls) <= 1  # the statement itself


def test_a_snapshot_of_bytes_does_not_see_later_writes():
    u = np.arange(100_000).astype("u1")
    x, v = lf.array(u), lf.array(np.ones(100_000))
    for turn in range(6):
        product = v * x
        x[turn] = 77
        x += 1
        assert np.array_equal(np.asarray(product), u * np.ones(100_000))
        u[turn] = 77
        u += 1
