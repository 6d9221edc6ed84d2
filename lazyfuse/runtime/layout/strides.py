"""NumPy arrays as kernels and updates see them: strides over a domain, parts of flat memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.node import Layout
from lazyfuse.devices.caches import cached

Array = np.ndarray[Any, np.dtype[Any]]


def strides_over(array: Array, shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Element strides of an operand over the domain; 0 where it is repeated."""
    own = array.shape
    size = array.itemsize
    if own == shape:
        return tuple([stride // size for stride in array.strides])
    missing = rank - len(own)
    strides = [0] * missing
    for axis, stride in enumerate(array.strides):
        strides.append(0 if own[axis] == 1 else stride // size)
    return tuple(strides)


def strides_kept(array: Array, reduced: tuple[bool, ...], rank: int) -> tuple[int, ...]:
    """Element strides of a reduction's result over the domain; 0 on reduced axes."""
    keepdims = array.ndim == rank
    own = iter(array.strides)
    found = []
    for flag in reduced:
        if flag:
            if keepdims:
                next(own)
            found.append(0)
        else:
            found.append(next(own) // array.itemsize)
    return tuple(found)


def picked(source: Array, picks: tuple[int, ...]) -> Array:
    """A view at one index along some axes; -1: the whole axis."""
    if not picks:
        return source
    index: Any = tuple([slice(None) if place < 0 else place for place in picks])
    view: Array = source[(*index, ...)]
    return view


def arrange(source: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """A view with permuted, added and repeated axes."""
    strides = tuple([source.strides[axis] if axis >= 0 else 0 for axis in axes])
    return np.lib.stride_tricks.as_strided(source, shape, strides)


def arrange_meta(source: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """As `arrange`, for meta arrays: plain views, whose bases lead to the memory of the source."""
    kept = [axis for axis in axes if axis >= 0]
    index: Any = tuple([slice(None) if axis in kept else 0 for axis in range(source.ndim)])
    view = source[(*index, ...)]  # `...` gives a view even if no axis is left
    ranks = sorted(kept)
    view = view.transpose([ranks.index(axis) for axis in kept])
    added: Any = tuple([None if axis < 0 else slice(None) for axis in axes])
    view = view[(*added, ...)]
    return view if view.shape == shape else np.broadcast_to(view, shape)


def is_dense(array: Array, perm: tuple[int, ...] | None) -> bool:
    """Whether an array fills its memory without gaps, its axes in memory order `perm`."""
    return bool((array if perm is None else array.transpose(perm)).flags.c_contiguous)


def flat_memory(array: Array, perm: tuple[int, ...] | None) -> Array:
    """The flat memory of an array: a view if the array is dense in that order, else a copy."""
    return array.ravel() if perm is None else array.transpose(perm).ravel()


def dense(flat: Array, shape: tuple[int, ...], perm: tuple[int, ...] | None) -> Array:
    """The inverse of `flat_memory`."""
    if perm is None:
        return flat.reshape(shape)
    return flat.reshape([shape[axis] for axis in perm]).transpose(np.argsort(perm))


def window(flat: Array, layout: Layout) -> Array:
    """The part of a flat buffer that a layout describes."""
    size = flat.itemsize
    strides = tuple([stride * size for stride in layout.strides])
    return np.ndarray(layout.shape, flat.dtype, flat, layout.offset * size, strides)


def is_alone(array: Array) -> bool:
    """Whether an array is the only owner of its memory and may be written.

    The caller must know that it holds the only reference to the array itself.
    """
    if not array.flags.writeable:
        return False
    while isinstance(array.base, np.ndarray):
        if references.of(array.base) > 1:  # 1: the view of it
            return False
        array = array.base
    return True


@cached(1024)
def around(dense_shape: tuple[int, ...], layout: Layout) -> tuple[Any, ...] | None:
    """The parts of a block outside a window; None if it is no box or covers less than half.

    `dense_shape` is the block's shape in its memory order.
    """
    box = _box(dense_shape, layout)
    if box is None:
        return None
    if 2 * math.prod([stop - start for start, stop in box]) < math.prod(dense_shape):
        return None
    slabs: list[tuple[slice, ...]] = []
    inner: list[slice] = []
    for n, (start, stop) in zip(dense_shape, box, strict=True):
        if start > 0:
            slabs.append((*inner, slice(0, start)))
        if stop < n:
            slabs.append((*inner, slice(stop, n)))
        inner.append(slice(start, stop))
    return tuple(slabs)


def _box(dense_shape: tuple[int, ...], layout: Layout) -> list[tuple[int, int]] | None:
    """Start and stop along each axis of a block, if a window is a box of adjacent elements."""
    if 0 in layout.shape:
        return None
    lengths = dict[int, int]()
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        if length > 1:
            if stride in lengths:
                return None
            lengths[stride] = length
    box: list[tuple[int, int]] = []
    rest, step = layout.offset, math.prod(dense_shape)
    for n in dense_shape:
        step //= n
        start, rest = divmod(rest, step)
        stop = start + (lengths.pop(step, 1) if n > 1 else 1)
        if stop > n:
            return None
        box.append((start, stop))
    return None if lengths or rest else box
