"""As NumPy's sorting: `sort`, `argsort`, `partition`, `lexsort`.

Recorded as host calls for large packed arrays, since the results have a known shape. Functions
whose result size depends on the data (`unique`, `nonzero`, ...) run at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.ndarray import concrete_value, ndarray, write_node
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import host, host_node, is_packed, may_write, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.shapes import normalize_axis
from lazyfuse.interop import fallback
from lazyfuse.interop.fallback import records
from lazyfuse.kernels import sort as ordering
from lazyfuse.registry import implements
from lazyfuse.runtime.execution import routine
from lazyfuse.runtime.layout.meta_arrays import Array

_INTP = np.dtype(np.intp)
_KINDS = (None, "quicksort", "mergesort", "heapsort", "stable")


def _is_recorded(a: Any, kind: Any, order: Any, stable: Any) -> bool:
    return (
        type(a) is ndarray
        and concrete_value(a) is None
        and order is None
        and kind in _KINDS
        and stable in (None, True, False)
        and (kind is None or stable is None)
        and dtype_of(a) in CANONICAL
        and is_packed(a)
    )


def _axis(a: ndarray, axis: Any) -> int | None:
    shape = shape_of(a)
    try:
        return normalize_axis(axis, len(shape)) if shape else None
    except (TypeError, ValueError):
        return None


def _sorted(theirs: Callable[..., Any], a: ndarray, axis: Any, kind: Any, stable: Any) -> Any:
    """The call as (function, shape); None if NumPy must raise."""
    shape = shape_of(a)
    named = {"kind": kind} if stable is None else {"stable": stable}
    if axis is None:
        return functools.partial(theirs, axis=None, **named), (int(np.prod(shape, dtype=int)),)
    place = _axis(a, axis)
    if place is None:
        return None
    return functools.partial(theirs, axis=place, **named), shape


def sort_down(a: Array, axis: Any = -1, **named: Any) -> Array:
    """`numpy.sort`, the largest first; a stable sort keeps the order of equal elements."""
    if axis is None:
        a, axis = a.reshape(-1), 0
    turned = np.flip(a, axis)
    return np.flip(np.sort(turned, axis, **named), axis).copy()


def argsort_down(a: Array, axis: Any = -1, **named: Any) -> Array:
    """`numpy.argsort`, the largest first; a stable sort keeps the order of equal elements."""
    if axis is None:
        a, axis = a.reshape(-1), 0
    found = np.flip(np.argsort(np.flip(a, axis), axis, **named), axis)
    return (max(a.shape[axis] - 1, 0) if a.ndim else 0) - found


def _ordering(theirs: Callable[..., Any], down: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function, recorded if possible; `descending=True` is `down` instead (array API)."""
    name = theirs.__name__

    @implements(theirs)
    def ordered(
        a: Any,
        axis: Any = -1,
        kind: Any = None,
        order: Any = None,
        *,
        stable: Any = None,
        descending: bool = False,
    ) -> Any:
        function = down if descending else theirs
        if _is_recorded(a, kind, order, stable):
            call = _sorted(function, a, axis, kind, stable)
            if call is not None:
                return host(name, call[0], (a,), call[1], dtype_of(a) if name == "sort" else _INTP)
        if descending:
            a = _as_array(a)
        named = fallback.given(kind=kind, order=order, stable=stable)
        return fallback.run(function, name, (a, axis), named)

    return ordered


sort = _ordering(np.sort, sort_down)
argsort = _ordering(np.argsort, argsort_down)


def _as_array(a: Any) -> Any:
    return a if isinstance(a, (ndarray, np.ndarray)) else np.asarray(to_numpy(a))


def sort_method(
    self: ndarray, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> None:
    """As `numpy.ndarray.sort`: in place."""
    if axis is not None and _is_recorded(self, kind, order, stable) and may_write(self):
        call = _sorted(np.sort, self, axis, kind, stable)
        if call is not None:
            write_node(self, host_node("sort", call[0], (self,), call[1], dtype_of(self)))
            return
    args = (self, axis, kind, order)
    fallback.run_writing(np.ndarray.sort, "ndarray.sort", args, {"stable": stable})


# -------------------------------------------------------------------------------- parts and keys


def _splitting(theirs: Callable[..., Any]) -> None:
    """Register `partition` or `argpartition`, recorded for a single integer `kth`."""
    name = theirs.__name__
    keeps = name == "partition"

    @records(theirs)
    def split(
        a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None
    ) -> Any:
        if type(kth) is int and kind == "introselect" and _is_recorded(a, None, order, None):
            place = _axis(a, axis)
            shape = shape_of(a)
            if place is not None and -shape[place] <= kth < shape[place]:
                function = functools.partial(theirs, kth=kth, axis=place)
                return host(name, function, (a,), shape, dtype_of(a) if keeps else _INTP)
        return None


_splitting(np.partition)
_splitting(np.argpartition)


@records(np.lexsort, eager="arrays")
def lexsort(keys: Any, axis: Any = -1) -> Any:
    """As `numpy.lexsort`; recorded for rows of equal length."""
    rows = list(keys) if type(keys) in (list, tuple) else []
    if rows and axis in (-1, 0) and all(type(row) is ndarray for row in rows):
        shape = shape_of(rows[0])
        real = all(_is_recorded(row, None, None, None) for row in rows)
        if real and len(shape) == 1 and all(shape_of(row) == shape for row in rows):
            return host("lexsort", _ByRows(), rows, shape, _INTP)
    return None


class _ByRows:
    """`numpy.lexsort` of rows."""

    has_routine = True

    def __call__(self, *keys: Array) -> Array:
        return routine.either(ordering.lexsort, np.lexsort, keys)
