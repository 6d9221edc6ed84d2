"""Functions that make and copy small arrays: NumPy's results, dtypes, layouts, errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays.ndarray import ndarray

MADE: list[Callable[[Any], Any]] = [
    lambda xp: xp.zeros(3),
    lambda xp: xp.zeros((2, 3), "i4"),
    lambda xp: xp.zeros((2, 3), dtype=np.float32, order="F"),
    lambda xp: xp.zeros(()),
    lambda xp: xp.zeros((0, 3)),
    lambda xp: xp.zeros([2, 2]),
    lambda xp: xp.zeros(np.int64(3)),
    lambda xp: xp.ones((1, 3)),
    lambda xp: xp.ones(50_000),
    lambda xp: xp.full((2, 2), 1.5),
    lambda xp: xp.full(3, [1, 2, 3]),
    lambda xp: xp.full(3, 2, dtype="u1"),
    lambda xp: xp.eye(3, 4, 1),
    lambda xp: xp.identity(300),
    lambda xp: xp.array([1, 2.5, True]),
    lambda xp: xp.array([[1, 2], [3, 4.5]]),
    lambda xp: xp.array([[[True], [2**40]], [[3], [-1]]]),
    lambda xp: xp.array([[[[[1.0]]]]]),
    lambda xp: xp.array([[], []]),
    lambda xp: xp.array([[1, 2], [3]]),
    lambda xp: xp.array([1, [2]]),
    lambda xp: xp.array([[2**70, 1], [1, 2]]),
    lambda xp: xp.array([list(range(40))] * 30),
    lambda xp: xp.array([xp.array([1.0, 2.0]), [3, 4]]),
    lambda xp: xp.array([]),
    lambda xp: xp.array([1, 10**30]),
    lambda xp: xp.array([np.float32(1), np.int8(2)]),
    lambda xp: xp.array([[1, 2], [3, 4]]),
    lambda xp: xp.zeros(-1),
    lambda xp: xp.zeros((2, -1)),
    lambda xp: xp.zeros("a"),
    lambda xp: xp.zeros(3, "no dtype"),
    lambda xp: xp.full(3, "x", dtype="f8"),
    lambda xp: xp.zeros(1 << 62),
]
COPIED: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: xp.array(x),
    lambda xp, x: xp.array(x, "f4"),
    lambda xp, x: xp.array(x, copy=None),
    lambda xp, x: xp.ascontiguousarray(x),
    lambda xp, x: xp.asfortranarray(x),
    lambda xp, x: x.copy(),
    lambda xp, x: x.copy("F"),
    lambda xp, x: x.flatten(),
    lambda xp, x: x.flatten("F"),
    lambda xp, x: x.astype("i4"),
    lambda xp, x: x.astype(x.dtype, copy=False),
    lambda xp, x: x.astype("f4", order="F"),
    lambda xp, x: xp.add.outer(x, x),
    lambda xp, x: xp.copyto(x, 2.0) or x,
    lambda xp, x: xp.copyto(x, xp.zeros(7)),
    lambda xp, x: xp.copyto(xp.zeros(x.shape, "i4"), x),
    lambda xp, x: xp.copyto(x, x * 2, where=x > 1) or x,
    lambda xp, x: x.fill(3) or x,
    lambda xp, x: x.fill("x"),
]
SHAPES = [(5,), (2, 3), (3, 1), (), (40_000,)]


def outcome(function: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        found = function()
    except Exception as error:  # whatever NumPy raises
        return type(error), str(error)
    if found is None:
        return (None,)
    shown = np.asarray(found)
    return found.dtype, found.shape, found.strides, shown.tolist()


@pytest.mark.parametrize("make", MADE)
def test_made(make: Callable[[Any], Any]) -> None:
    assert outcome(lambda: make(lf)) == outcome(lambda: make(np))


@pytest.mark.parametrize("copy", COPIED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turned", [False, True])
def test_copied(copy: Callable[[Any, Any], Any], shape: tuple[int, ...], turned: bool) -> None:
    if np.prod(shape) > 1000 and "outer" in inspect.getsource(copy):
        return
    values = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    values = np.asfortranarray(values) if turned else values
    first, x = np.array(values), lf.array(values)
    theirs = outcome(lambda: copy(np, first))
    assert outcome(lambda: copy(lf, x)) == theirs
    np.testing.assert_array_equal(np.asarray(x), first)  # what was written to it


def test_copies_are_new_and_what_needs_none_is_the_same() -> None:
    x = lf.arange(6.0).reshape(2, 3)
    for made in (lf.array(x), x.copy(), x.flatten(), x.astype("f8")):
        assert type(made) is ndarray
        assert not np.shares_memory(made, x)
    assert lf.ascontiguousarray(x) is x
    assert x.astype("f8", copy=False) is x
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_buffers() -> None:
    x = lf.arange(6.0)
    view = memoryview(x)
    view[0] = 7.0
    assert float(x[0]) == 7.0
    assert np.shares_memory(np.asarray(x), x)
    pending = lf.ones(40_000) + 1.0
    assert memoryview(pending)[3] == 2.0
    with pytest.raises((BufferError, ValueError, SystemError, TypeError)):
        memoryview(lf.zeros(3, "M8[s]"))
