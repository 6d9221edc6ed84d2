"""As NumPy's functions of truth values and of indices: `nonzero`, `putmask`, `take`, `put`, ...

A parallel scan (compact.py) finds true elements, after the mask is evaluated. Selections stay
dynamic-size (mask_selection.py). Writes through masks are recorded if `copyto(where=)` or
`x[mask] = value` would do the same. `take` and `put` have compiled loops for large arrays of
indices. Everything else runs in NumPy at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays import library_indexing, mask_selection, scatter
from lazyfuse.arrays.ndarray import (
    cast_node,
    changing,
    concrete_value,
    gather,
    materialise,
    ndarray,
    node_of,
    wrap,
    writable,
)
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import may_record, may_write, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import HostCall
from lazyfuse.codegen.graph.shapes import normalize_axis
from lazyfuse.functions.elementwise import copyto
from lazyfuse.interop import fallback
from lazyfuse.interop.fallback import records
from lazyfuse.kernels import compact
from lazyfuse.kernels import gather as gathers
from lazyfuse.registry import implements
from lazyfuse.runtime.execution import routine

_BOOL = np.dtype(bool)


def _truth(a: Any) -> Any:
    """The truth values of a large array; None if NumPy should take `a` itself."""
    if type(a) is not ndarray or concrete_value(a) is not None or not may_record():
        return None
    if dtype_of(a) not in CANONICAL or not shape_of(a):
        return None
    truth: Any = a
    return truth if dtype_of(a) == _BOOL else truth.astype(bool)


@records(np.nonzero)
def nonzero(a: Any) -> Any:
    """As `numpy.nonzero`."""
    truth = _truth(a)
    if truth is None:
        return None
    return tuple([wrap(each) for each in compact.positions(gather(truth))])


@records(np.argwhere, eager="arrays")
def argwhere(a: Any) -> Any:
    """As `numpy.argwhere`."""
    truth = _truth(a)
    return None if truth is None else wrap(np.stack(compact.positions(gather(truth))).T)


@records(np.flatnonzero, eager="arrays")
def flatnonzero(a: Any) -> Any:
    """As `numpy.flatnonzero`; by a device's library for an array on the device."""
    device = library_indexing.device_for(a)
    if device is not None and dtype_of(a) in CANONICAL and len(shape_of(a)):
        truth = cast_node(node_of(a), _BOOL)
        found = library_indexing.computed(device, HostCall("flatnonzero", np.flatnonzero), truth)
        if found is not None:
            return found
    truth = _truth(a)
    if truth is None:
        return None
    return wrap(compact.positions(np.ascontiguousarray(gather(truth)).reshape(-1))[0])


@records(np.extract, eager="arrays")
def extract(condition: Any, arr: Any) -> Any:
    """As `numpy.extract`."""
    if type(arr) is not ndarray or type(condition) is not ndarray:
        return None
    truth = _truth(condition) if shape_of(condition) == shape_of(arr) else None
    return None if truth is None else mask_selection.selection(arr, truth)


@records(np.compress, eager="arrays")
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    """As `numpy.compress`."""
    if out is not None or type(a) is not ndarray or axis not in (None, 0, -1):
        return None
    return extract.recorded(condition, a) if len(shape_of(a)) == 1 else None


@implements(np.putmask)
def putmask(a: Any, /, mask: Any, values: Any) -> Any:
    """As `numpy.putmask`."""
    if _may_select(a, mask, values):
        copyto(a, values, "no" if type(values) is ndarray else "same_kind", mask)
        return None
    return fallback.run_writing(np.putmask, "putmask", (a, mask, values), {})


@implements(np.place)
def place(arr: Any, mask: Any, vals: Any) -> Any:
    """As `numpy.place`."""
    if type(vals) is not ndarray and _may_select(arr, mask, vals):
        copyto(arr, vals, "same_kind", mask)
        return None
    return fallback.run_writing(np.place, "place", (arr, mask, vals), {})


def _may_select(a: Any, mask: Any, values: Any) -> bool:
    """Whether a write through a mask is a `where` of `a` and `values`, element by element.

    Numbers must be of the kind of `a`, arrays of exactly its dtype: NumPy has special rules for
    others.
    """
    if type(a) is not ndarray or type(mask) is not ndarray or concrete_value(a) is not None:
        return False
    if not may_record() or not may_write(a) or dtype_of(mask) != _BOOL:
        return False
    shape, dtype = shape_of(a), dtype_of(a)
    if shape_of(mask) != shape or not shape:
        return False
    if type(values) is ndarray:
        return shape_of(values) == shape and dtype_of(values) == dtype
    return (type(values) is float and dtype.kind == "f") or (
        type(values) is int and dtype.kind in "iuf" and abs(values) < 128 and values >= 0
    )


# ------------------------------------------------------------------------------------ take and put

Array = np.ndarray[Any, np.dtype[Any]]

_MODES = ("raise", "clip", "wrap")


@records(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
    """As `numpy.take`."""
    if type(a) is ndarray and type(indices) is ndarray and out is None and mode in _MODES:
        found = _taken(a, indices, axis, mode)
        if found is not None:
            return wrap(found)
    if type(a) is ndarray and type(indices) is range and out is None and materialise(a) is None:
        part = _stretch(a, indices, axis)
        if part is not None:
            return part.copy()
    return None


def _stretch(a: ndarray, indices: range, axis: Any) -> Any:
    """The slice of a recorded array that `take` of a range gives; None if it leaves the bounds."""
    shape = shape_of(a)
    place = None if axis is None else _axis(axis, len(shape))
    if place is None or not indices:
        return None
    first, last = sorted((indices[0], indices[-1]))
    if first < 0 or last >= shape[place]:
        return None
    stop = indices[-1] + (1 if indices.step > 0 else -1)
    key = slice(indices[0], stop if stop >= 0 else None, indices.step)
    return a[(slice(None),) * place + (key,)]


def _is_ours(a: ndarray, indices: ndarray) -> bool:
    if dtype_of(a) not in CANONICAL or dtype_of(indices).kind not in "iu":
        return False
    return bool(shape_of(a)) and (materialise(indices) is None or materialise(a) is None)


def _axis(axis: Any, rank: int) -> int | None:
    try:
        return normalize_axis(axis, rank)
    except (TypeError, ValueError):
        return None


def _taken(a: ndarray, indices: ndarray, axis: Any, mode: str) -> Array | None:
    if not _is_ours(a, indices):
        return None
    rank = len(shape_of(a))
    place = 0 if axis is None else _axis(axis, rank)
    if place not in (0, rank - 1):
        return None
    scatter.look_together(a, indices)
    real, key = gather(a), gather(indices)
    if place:
        return routine.attempt(gathers.along, real, key, mode) if key.ndim == 1 else None
    real = real.reshape(-1) if axis is None and real.flags.c_contiguous else real
    if axis is None and real.ndim != 1:
        return None
    return routine.attempt(gathers.read, real, key, mode)


@records(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """As `numpy.take_along_axis`."""
    if type(arr) is ndarray and type(indices) is ndarray and _is_ours(arr, indices):
        shape, places = shape_of(arr), shape_of(indices)
        rank = len(shape)
        same = len(places) == rank and places[:-1] == shape[:-1]
        if same and axis is not None and _axis(axis, rank) == rank - 1:
            scatter.look_together(arr, indices)
            read = gathers.along if rank > 1 else gathers.read
            found = routine.attempt(read, gather(arr), gather(indices))
            if found is not None:
                return wrap(found)
    return None


@implements(np.put)
def put(a: Any, ind: Any, v: Any, mode: Any = "raise") -> Any:
    """As `numpy.put`."""
    if (
        type(a) is ndarray
        and type(ind) is ndarray
        and mode == "raise"
        and concrete_value(ind) is None
    ):
        scatter.look_together(ind, v)
        values = gather(v) if type(v) is ndarray else v
        if type(values) in scatter.NUMBERS or shape_of(v) == shape_of(ind):
            with changing(a):
                real = writable(a)
                if real.flags.c_contiguous and routine.attempt(
                    scatter.written, real.reshape(-1), gather(ind), values
                ):
                    return None
    named = {"mode": mode} if mode != "raise" else {}
    return fallback.run_writing(np.put, "put", (a, ind, v), named)


@implements(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> Any:
    """As `numpy.put_along_axis`."""
    if type(arr) is ndarray and type(indices) is ndarray and concrete_value(indices) is None:
        shape = shape_of(arr)
        rank = len(shape)
        along = axis is not None and rank > 1 and _axis(axis, rank) == rank - 1
        if along and shape_of(indices)[:-1] == shape[:-1]:
            scatter.look_together(indices, values)
            found = gather(values) if type(values) is ndarray else values
            with changing(arr):
                real = writable(arr)
                if routine.attempt(scatter.written_along, real, gather(indices), found):
                    return None
    args = (arr, indices, values, axis)
    return fallback.run_writing(np.put_along_axis, "put_along_axis", args, {})
