"""Shape rules against NumPy, exceptions and their texts included."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.exceptions import AxisError

from lazyfuse.codegen.graph import shapes

SHAPES = [(), (1,), (3,), (0,), (2, 3), (2, 1), (1, 3), (4, 1, 3), (4, 2, 3), (1, 1), (5,)]
AXES = [None, 0, 1, -1, -3, 2, 5, (0, 1), (1, -2), (0, 0), (0, 7), (), "a"]


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except (ValueError, TypeError) as error:
        return (type(error), str(error))


def add_shape(*each: tuple[int, ...]) -> tuple[int, ...]:
    return np.add(*[np.zeros(shape) for shape in each]).shape


@pytest.mark.parametrize("second", SHAPES)
@pytest.mark.parametrize("first", SHAPES)
def test_broadcast_equals_numpy(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert outcome(shapes.broadcast, first, second) == outcome(add_shape, first, second)
    assert outcome(shapes.broadcast_all, (first, second)) == outcome(add_shape, first, second)


def test_broadcast_of_three() -> None:
    for triple in itertools.product(SHAPES[:8], repeat=3):
        failure = (ValueError, shapes.mismatch(triple))
        want = outcome(np.broadcast_shapes, *triple)
        got = outcome(shapes.broadcast_all, triple)
        assert got == (failure if want[:1] == (ValueError,) else want)
    assert shapes.broadcast_all(()) == ()


@pytest.mark.parametrize(
    "axis", [None, 0, 1, -1, -3, 2, 5, (0, 1), (1, -2), (0, 0), (0, 7), (), "a"]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduced_shapes_equal_numpy(shape: tuple[int, ...], axis: Any, keepdims: bool) -> None:
    def mine() -> tuple[int, ...]:
        axes = shapes.normalize_axes(axis, len(shape))
        return shapes.reduced_shape(shape, axes, keepdims)

    def numpys() -> tuple[int, ...]:
        return np.shape(np.sum(np.zeros(shape), axis=axis, keepdims=keepdims))

    assert outcome(mine) == outcome(numpys)


def test_normalized_axes_are_sorted() -> None:
    assert shapes.normalize_axes((-1, 0), 3) == (0, 2)
    assert shapes.normalize_axes(np.int64(1), 3) == (1,)
    with pytest.raises(AxisError, match="axis 3 is out of bounds for array of dimension 3"):
        shapes.normalize_axis(3, 3)


def test_contiguous_strides_follow_the_memory_order() -> None:
    shape = (2, 3, 4)
    for perm in itertools.permutations(range(3)):
        array = np.empty([shape[axis] for axis in perm]).transpose(np.argsort(perm))
        want = tuple(stride // 8 for stride in array.strides)
        assert shapes.contiguous_strides(shape, perm) == want
    assert shapes.contiguous_strides(shape) == (12, 4, 1)
    assert shapes.size_of(shape) == 24
