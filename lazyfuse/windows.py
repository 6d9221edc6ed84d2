"""Numpy arrays as kernels and updates see them: strides over a domain, parts of flat memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.codegen.graph import Layout

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


def arrange(source: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """A view that permutes, adds and repeats axes."""
    strides = tuple([source.strides[axis] if axis >= 0 else 0 for axis in axes])
    return np.lib.stride_tricks.as_strided(source, shape, strides)


def arrange_stand_in(source: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """As `arrange`, by views alone, so that the result still leads to the memory of the source."""
    kept = [axis for axis in axes if axis >= 0]
    index: Any = tuple([slice(None) if axis in kept else 0 for axis in range(source.ndim)])
    view = source[(*index, ...)]  # with `...` nothing is read even where no axis is left
    ranks = sorted(kept)
    view = view.transpose([ranks.index(axis) for axis in kept])
    added: Any = tuple([None if axis < 0 else slice(None) for axis in axes])
    view = view[(*added, ...)]
    return view if view.shape == shape else np.broadcast_to(view, shape)


def is_dense(array: Array, perm: tuple[int, ...] | None) -> bool:
    """Whether an array fills its memory without gaps, its axes in memory order `perm`."""
    return bool((array if perm is None else array.transpose(perm)).flags.c_contiguous)


def flat_memory(array: Array, perm: tuple[int, ...] | None) -> Array:
    """A dense array as its flat memory: a view wherever it is dense indeed."""
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
