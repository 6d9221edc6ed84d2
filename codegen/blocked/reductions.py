"""The functions that "numpy" texts call to reduce a chunk. NumPy only; knows nothing of kernels.

`value` is packed, one axis per loop, and `target` a view of the same shape whose strides are 0 on
reduced axes (they share one element). `flags` says which axes are reduced. With
`lows`, the reduced axes are cut: the first axis of `target` is over segments of the raveled axes
that begin at `lows`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Flags = tuple[bool, ...]


def reduce_runs(
    ufunc: np.ufunc, value: Array, target: Array, flags: Flags, lows: Array | None = None
) -> None:
    """Reduce at once. Sums of floats: only for trailing reduced axes, which NumPy adds pairwise."""
    if lows is None:
        axes = tuple(at for at, flag in enumerate(flags) if flag)
        ufunc.reduce(value, axis=axes, dtype=value.dtype, out=_kept(target, flags))
        return
    rows = _raveled(value, flags)
    for result, (low, high) in zip(_stretches(target, flags), _bounds(lows, rows), strict=True):
        ufunc.reduce(rows[..., low:high], axis=-1, dtype=value.dtype, out=result)


def reduce_in_order(ufunc: np.ufunc, value: Array, target: Array, flags: Flags) -> None:
    """Reduce one element after the other, the axes in their order."""
    rows = _rows(value, flags)
    if ufunc is np.add and rows.shape[1] == 1:  # `reduce` would add pairwise
        result = np.add.accumulate(rows[:, 0])[-1:] + value.dtype.type(0)
    else:  # NumPy combines whole rows where the first axis is the slow one
        result = ufunc.reduce(rows, axis=0, dtype=value.dtype)
    kept = _kept(target, flags)
    kept[...] = result.reshape(kept.shape)


def find(
    function: Any,
    value: Array,
    positions: Array,
    target: Array,
    values: Array,
    flags: Flags,
    lows: Array | None = None,
) -> None:
    """The position of the least or greatest element and its value; the lowest position if tied."""
    positions = np.broadcast_to(positions, value.shape)
    if lows is None:
        pairs = [(_rows(value, flags), _rows(positions, flags))]
        targets = [(_kept(target, flags), _kept(values, flags))]
    else:
        rows, places = _raveled(value, flags), _raveled(positions, flags)
        pairs = [
            (_flat(rows[..., low:high]), _flat(places[..., low:high]))
            for low, high in _bounds(lows, rows)
        ]
        targets = list(zip(_stretches(target, flags), _stretches(values, flags), strict=True))
    for (rows, places), (position, best) in zip(pairs, targets, strict=True):
        rank = np.argsort(places, axis=0, kind="stable")
        rows = np.take_along_axis(rows, rank, axis=0)
        places = np.take_along_axis(places, rank, axis=0)
        found = np.expand_dims(function(rows, axis=0), 0)
        position[...] = np.take_along_axis(places, found, axis=0).reshape(position.shape)
        best[...] = np.take_along_axis(rows, found, axis=0).reshape(best.shape)


def _kept(target: Array, flags: Flags) -> Array:
    return target[(*(0 if flag else slice(None) for flag in flags), ...)]  # 0-d stays an array


def _rows(value: Array, flags: Flags) -> Array:
    """Packed (reduced elements, results)."""
    slow = [at for at, flag in enumerate(flags) if flag]
    kept = [at for at, flag in enumerate(flags) if not flag]
    count = int(np.prod([value.shape[at] for at in slow], dtype=np.int64))
    return np.ascontiguousarray(value.transpose(*slow, *kept)).reshape(count, -1)


def _flat(rows: Array) -> Array:
    """(results, ..., elements) as (elements, results)."""
    return np.moveaxis(rows, -1, 0).reshape(rows.shape[-1], -1)


def _raveled(value: Array, flags: Flags) -> Array:
    """The trailing reduced axes as one."""
    return np.ascontiguousarray(value).reshape(*value.shape[: flags.index(True)], -1)


def _bounds(lows: Array, rows: Array) -> list[tuple[int, int]]:
    edges = [*lows.tolist(), rows.shape[-1]]
    return list(pairwise(edges))


def _stretches(target: Array, flags: Flags) -> list[Array]:
    return [_kept(each, flags) for each in target]
