"""As NumPy's functions of truth values: `nonzero`, `argwhere`, `extract`, `place`, `putmask`, ...

What is true is found by a parallel scan (compact.py), after the recorded work that decides it;
selections stay deferred (mask_selection.py), and writes through masks are recorded where they are
what `copyto(where=)` or `x[mask] = value` is. Everything else is NumPy's at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays import mask_selection
from lazyfuse.arrays.ndarray import gather, ndarray, ready, wrap
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import may_record, may_write, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.functions.elementwise import copyto
from lazyfuse.interop import fallback
from lazyfuse.kernels import compact
from lazyfuse.registry import implements

_BOOL = np.dtype(bool)


def _truth(a: Any) -> Any:
    """The truth values of a big array; None where NumPy looks at `a` itself."""
    if type(a) is not ndarray or ready(a) is not None or not may_record():
        return None
    if dtype_of(a) not in CANONICAL or not shape_of(a):
        return None
    truth: Any = a
    return truth if dtype_of(a) == _BOOL else truth.astype(bool)


@implements(np.nonzero)
def nonzero(a: Any) -> Any:
    """As `numpy.nonzero`."""
    truth = _truth(a)
    if truth is None:
        return fallback.run(np.nonzero, "nonzero", (a,), {})
    return tuple([wrap(each) for each in compact.positions(gather(truth))])


@implements(np.argwhere)
def argwhere(a: Any) -> Any:
    """As `numpy.argwhere`."""
    truth = _truth(a)
    if truth is None:
        return fallback.run(np.argwhere, "argwhere", (a,), {})
    return wrap(np.stack(compact.positions(gather(truth))).T)


def flatnonzero(a: Any) -> Any:
    """As `numpy.flatnonzero`, of an array that is on no device of its own."""
    truth = _truth(a)
    if truth is None:
        return fallback.run(np.flatnonzero, "flatnonzero", (a,), {})
    return wrap(compact.positions(np.ascontiguousarray(gather(truth)).reshape(-1))[0])


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    """As `numpy.extract`."""
    if type(arr) is ndarray and type(condition) is ndarray and shape_of(condition) == shape_of(arr):
        truth = _truth(condition)
        found = None if truth is None else mask_selection.selection(arr, truth)
        if found is not None:
            return found
    return fallback.run(np.extract, "extract", (condition, arr), {})


@implements(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    """As `numpy.compress`."""
    if out is None and type(a) is ndarray and type(condition) is ndarray:
        shape = shape_of(a)
        if len(shape) == 1 and shape_of(condition) == shape and axis in (None, 0, -1):
            truth = _truth(condition)
            found = None if truth is None else mask_selection.selection(a, truth)
            if found is not None:
                return found
    args = (condition, a) if axis is None else (condition, a, axis)
    return fallback.run(np.compress, "compress", args, fallback.given(out=out))


def compress_method(self: ndarray, condition: Any, axis: Any = None, out: Any = None) -> Any:
    """As `numpy.ndarray.compress`."""
    if out is None and type(condition) is ndarray and self._small is None:
        return compress(condition, self, axis)
    args = (self, condition) if axis is None else (self, condition, axis)
    return fallback.run(np.ndarray.compress, "ndarray.compress", args, fallback.given(out=out))


@implements(np.putmask)
def putmask(a: Any, /, mask: Any, values: Any) -> None:
    """As `numpy.putmask`."""
    if _may_select(a, mask, values):
        copyto(a, values, "no" if type(values) is ndarray else "same_kind", mask)
        return
    fallback.run_writing(np.putmask, "putmask", (a, mask, values), {}, (0,))


@implements(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    """As `numpy.place`."""
    if type(vals) is not ndarray and _may_select(arr, mask, vals):
        copyto(arr, vals, "same_kind", mask)
        return
    fallback.run_writing(np.place, "place", (arr, mask, vals), {}, (0,))


def _may_select(a: Any, mask: Any, values: Any) -> bool:
    """Whether a write through a mask is a selection between `a` and `values`, element by element.

    Numbers are taken where they are of the kind of `a`, arrays where they are of its very dtype:
    NumPy has rules of its own for the others.
    """
    if type(a) is not ndarray or type(mask) is not ndarray or ready(a) is not None:
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
