"""Shape rules: broadcasting, axes and reduced shapes, with NumPy's exceptions."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from numpy.exceptions import AxisError

from lazyfuse.devices.caches import cached

Shape = tuple[int, ...]

_CACHE_SIZE = 4096  # distinct pairs of shapes a program meets; a pair costs about 200 bytes


def broadcast(first: Shape, second: Shape) -> Shape:
    """The broadcast shape of two shapes; NumPy's ValueError if there is none."""
    if first == second or not second:
        return first
    if not first:
        return second
    return _broadcast_pair(first, second)


@cached(_CACHE_SIZE)
def _broadcast_pair(first: Shape, second: Shape) -> Shape:
    return _combine((first, second))


def broadcast_all(shapes: Sequence[Shape]) -> Shape:
    """The broadcast shape of any number of shapes."""
    result: Shape = ()
    for shape in shapes:
        if shape != result and shape != ():
            return _broadcast_many(tuple(shapes))
    return result


@cached(_CACHE_SIZE)
def _broadcast_many(shapes: tuple[Shape, ...]) -> Shape:
    return _combine(shapes)


def _combine(shapes: tuple[Shape, ...]) -> Shape:
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size == 1 or size == result[axis]:
                continue
            if result[axis] != 1:
                raise ValueError(mismatch(shapes))
            result[axis] = size
    return tuple(result)


def mismatch(shapes: Iterable[Shape]) -> str:
    """NumPy's text for operands that do not broadcast."""
    texts = "".join("(" + _spell(shape) + ") " for shape in shapes)
    return f"operands could not be broadcast together with shapes {texts}"


def _spell(shape: Shape) -> str:
    text = ",".join(str(size) for size in shape)
    return text + "," if len(shape) == 1 else text


def normalize_axis(axis: Any, ndim: int) -> int:
    """One axis as a non-negative int; NumPy's AxisError if it is out of range."""
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise AxisError(number, ndim)
    return number + ndim if number < 0 else number


def normalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The sorted axes of a reduction: None means all of them, an int one, a tuple several."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, tuple):
        if ndim == 0 and operator.index(axis) in (0, -1):
            return ()  # NumPy lets a 0-d array be reduced over axis 0
        return (normalize_axis(axis, ndim),)
    axes = [normalize_axis(each, ndim) for each in axis]
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(axes))


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape that is left when `axes` (normalized) are reduced."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def size_of(shape: Shape) -> int:
    """The number of elements of a shape."""
    return math.prod(shape)


def contiguous_strides(shape: Shape, perm: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Strides in elements of a packed array in memory order `perm` (None: C order)."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(perm if perm is not None else range(len(shape))):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


@cached(_CACHE_SIZE)
def crosses_itself(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether two indices of an array may be one element, as in sliding windows."""
    reach = 0
    for stride, size in sorted(zip(map(abs, strides), shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False
