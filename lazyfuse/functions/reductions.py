"""As NumPy's reductions: `sum`, `mean`, `var`, `argmax` and so on.

Reductions of large arrays are recorded as nodes that repeat NumPy's own steps
(`numpy/_core/_methods.py`), so that the bits are NumPy's. NumPy runs at once for small arrays,
`out=`, `where=`, `initial=`, and calls that make NumPy raise or warn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import mask_selection
from lazyfuse.arrays.eager_policy import middling_operands, spares_copy
from lazyfuse.arrays.exported_memory import read_in_place
from lazyfuse.arrays.ndarray import (
    SELECTIONS,
    cast_node,
    concrete_value,
    from_node,
    ndarray,
    node_of,
    scalar_node,
)
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import host, is_packed, may_record, reduce_node, shape_of, step
from lazyfuse.arrays.scalars import all_stay
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.linearize import is_even
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.shapes import normalize_axes, size_of
from lazyfuse.codegen.table.op import Op
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.interop.fallback import Refused, records
from lazyfuse.runtime.scheduling.compound_calls import as_one
from lazyfuse.versions import DEVIATIONS_ARE_SQUARED

_NoValue = np._NoValue
_INTP = np.dtype(np.intp)
_DOUBLE = CANONICAL[np.dtype("f8")]
_ADD = TABLE["reduce:add"]


def _source(a: Any, *unusual: Any) -> ndarray:
    """`a`, if its reduction can be recorded and the caller gave no `unusual` argument."""
    if type(a) is not ndarray or a._eager is not None or concrete_value(a) is not None:
        raise Refused
    for value in unusual:
        if value is not None and value is not _NoValue:
            raise Refused
    shape = shape_of(a)
    if not shape or not size_of(shape) or not may_record():
        raise Refused
    dtype = dtype_of(a)
    if dtype not in CANONICAL or (dtype.kind in "fc" and _is_copied_packed(a)):
        raise Refused
    return a


def _is_copied_packed(a: ndarray) -> bool:
    """Whether recorded work would read a packed copy of `a`, and sum it in another order."""
    storage = a._storage
    if storage is None or storage.exports is None or is_even(a._view.shape, a._view.strides):
        return False
    return storage.shared()


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if type(axis) is bool:
        raise Refused  # NumPy raises
    try:
        axes = normalize_axes(axis, ndim)
    except Exception as error:  # NumPy raises its own error
        raise Refused from error
    if not axes:
        raise Refused
    return axes


def _flag(keepdims: Any) -> bool:
    if keepdims is _NoValue or keepdims is None:
        return False
    if keepdims is True or keepdims is False:
        return bool(keepdims)
    raise Refused


def _requested(dtype: Any) -> Any:
    if dtype is None:
        return None
    try:
        found = CANONICAL.get(np.dtype(dtype))
    except TypeError as error:
        raise Refused from error
    if found is None:
        raise Refused
    return found


def _reduced(
    row: Op, source: Node, axes: tuple[int, ...], keepdims: bool, dtype: Any = None
) -> Node:
    if len(axes) > 1 and not row.reorderable:
        raise Refused
    node = reduce_node(row, source, axes, keepdims, dtype)
    if node is None:
        raise Refused
    return node


def _simple(row: Op, a: Any, axis: Any, dtype: Any, keepdims: Any, *unusual: Any) -> Any:
    """The result of one recorded reduce node."""
    if SELECTIONS and type(a) is ndarray:
        found = mask_selection.reduced(row, a, axis, dtype, keepdims, unusual)
        if found is not None:
            return found
    x = _source(a, *unusual)
    shape = shape_of(x)
    axes, kept = _axes(axis, len(shape)), _flag(keepdims)
    if dtype is None and spares_copy(row, (x,)):
        raise Refused
    # NumPy is as quick to give a number, or positions by rows
    at_once = (len(axes) == len(shape) and not all_stay()) or row.ufunc is None
    if at_once and not kept and middling_operands((x,), size_of(shape)):
        raise Refused
    return read_in_place(_one, row, x, axis, axes, dtype, kept)


def _one(row: Op, x: ndarray, axis: Any, axes: tuple[int, ...], dtype: Any, kept: bool) -> Any:
    node = _reduced(row, node_of(x), axes, kept, _requested(dtype))
    return from_node(node)


def recorded_reduction(row: Op, x: ndarray, axis: Any, dtype: Any, keepdims: Any) -> Any:
    """The recorded result for `ufunc.reduce`, or None."""
    try:
        return _simple(row, x, axis, dtype, keepdims)
    except Refused:
        return None


# ------------------------------------------------------------------ one ufunc


def _total(theirs: Callable[..., Any], row: Op) -> Any:
    @records(theirs)
    def total(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = _NoValue,
        initial: Any = _NoValue,
        where: Any = _NoValue,
    ) -> Any:
        return _simple(row, a, axis, dtype, keepdims, out, initial, where)

    return total


sum = _total(np.sum, _ADD)  # NumPy's name
prod = _total(np.prod, TABLE["reduce:multiply"])


def _extreme(theirs: Callable[..., Any], row: Op) -> Any:
    @records(theirs)
    def extreme(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = _NoValue,
        initial: Any = _NoValue,
        where: Any = _NoValue,
    ) -> Any:
        return _simple(row, a, axis, None, keepdims, out, initial, where)

    return extreme


max = _extreme(np.max, TABLE["reduce:maximum"])  # NumPy's name
min = _extreme(np.min, TABLE["reduce:minimum"])  # NumPy's name
amax = _extreme(np.amax, TABLE["reduce:maximum"])
amin = _extreme(np.amin, TABLE["reduce:minimum"])


def _truth(theirs: Callable[..., Any], row: Op) -> Any:
    @records(theirs)
    def truth(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = _NoValue,
        *,
        where: Any = _NoValue,
    ) -> Any:
        return _simple(row, a, axis, np.bool_, keepdims, out, where)

    return truth


any = _truth(np.any, TABLE["reduce:logical_or"])  # NumPy's name
all = _truth(np.all, TABLE["reduce:logical_and"])  # NumPy's name


def _position(theirs: Callable[..., Any], row: Op) -> Any:
    @records(theirs)
    def position(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _NoValue) -> Any:
        if type(axis) is tuple:
            raise Refused
        return _simple(row, a, axis, None, keepdims, out)

    return position


argmax = _position(np.argmax, TABLE["reduce:argmax"])
argmin = _position(np.argmin, TABLE["reduce:argmin"])


# ------------------------------------------------------------- several steps


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    items = 1
    for axis in axes:
        items *= shape[axis]
    return items


def _divided(total: Node, by: Any) -> Node:
    """`true_divide(total, by, casting="unsafe")`, `by` a NumPy number, in the dtype of `total`."""
    if total.dtype is _DOUBLE:  # numbers of one dtype are divided in C (replay.c)
        by = np.float64(by)
    divisor = scalar_node(by, CANONICAL[by.dtype])
    return cast_node(step(TABLE["divide"], total, divisor), total.dtype)


@records(np.mean)
def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _NoValue,
    *,
    where: Any = _NoValue,
) -> Any:
    """As `numpy.mean`."""
    return read_in_place(_mean, a, axis, dtype, keepdims, out, where)


@as_one
def _mean(a: Any, axis: Any, dtype: Any, keepdims: Any, *unusual: Any) -> Any:
    if SELECTIONS and (found := mask_selection.mean(a, axis, dtype, keepdims, unusual)) is not None:
        return from_node(_divided(*found))
    x = _source(a, *unusual)
    shape = shape_of(x)
    axes = _axes(axis, len(shape))
    asked = _requested(dtype)
    source = node_of(x)
    half = False
    if asked is None:
        if source.dtype.kind in "biu":
            asked = np.dtype("f8")
        elif source.dtype.char == "e":
            asked = np.dtype("f4")
            half = True
    total = _reduced(_ADD, source, axes, _flag(keepdims), asked)
    result = _divided(total, np.intp(_count(shape, axes)))
    return from_node(cast_node(result, source.dtype) if half else result)


def _square(node: Node) -> Node:
    if DEVIATIONS_ARE_SQUARED:
        return step(TABLE["square"], node)
    return step(TABLE["multiply"], node, node)


def _var(a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, *unusual: Any) -> Node:
    """The steps of NumPy's `_var`: mean, deviations, squares, sum, division."""
    x = _source(a, *unusual)
    shape = shape_of(x)
    axes = _axes(axis, len(shape))
    asked = _requested(dtype)
    count = np.intp(_count(shape, axes))
    if type(ddof) not in (int, float) or ddof >= count:
        raise Refused  # NumPy warns
    source = node_of(x)
    kind = source.dtype.kind
    if asked is None and kind in "biu":
        asked = np.dtype("f8")
    # the mean of all elements is a number: it needs no kernel over one element
    average = _divided(_reduced(_ADD, source, axes, len(axes) < len(shape), asked), count)
    deviation = step(TABLE["subtract"], source, average)
    if kind in "fiu" and deviation.dtype.kind != "c":
        squares = _square(deviation)
    elif deviation.dtype.kind == "c":
        real = _square(step(TABLE["real"], deviation))
        imaginary = _square(step(TABLE["imag"], deviation))
        squares = step(TABLE["add"], real, imaginary)
    else:
        squares = step(TABLE["multiply"], deviation, deviation)
    total = _reduced(_ADD, squares, axes, _flag(keepdims), asked)
    return _divided(total, np.maximum(count - ddof, 0))


def _correction(ddof: Any, correction: Any) -> Any:
    if correction is _NoValue:
        return ddof
    if ddof != 0:
        raise Refused  # NumPy's ValueError
    return correction


def _deviation(theirs: Callable[..., Any], root: bool) -> Any:
    """`var`, or its square root: recorded, or by NumPy at once."""

    @records(theirs)
    def deviation(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = _NoValue,
        *,
        where: Any = _NoValue,
        mean: Any = _NoValue,
        correction: Any = _NoValue,
    ) -> Any:
        asked = a, axis, dtype, _correction(ddof, correction), keepdims
        return read_in_place(_spread, *asked, root, out, where, mean)

    return deviation


var = _deviation(np.var, False)
std = _deviation(np.std, True)


@as_one
def _spread(
    a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, root: bool, *unusual: Any
) -> Any:
    node = _var(a, axis, dtype, ddof, keepdims, *unusual)
    if root:
        if node.dtype.kind not in "fc":
            raise Refused  # NumPy raises, or converts the scalar
        node = cast_node(step(TABLE["sqrt"], node), node.dtype)
    return from_node(node)


@records(np.ptp, eager="arrays")
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NoValue) -> Any:
    """As `numpy.ptp`."""
    return read_in_place(_ptp, a, axis, keepdims, out)


@as_one
def _ptp(a: Any, axis: Any, keepdims: Any, *unusual: Any) -> Any:
    x = _source(a, *unusual)
    axes = _axes(axis, len(shape_of(x)))
    if dtype_of(x).kind == "b":
        raise Refused  # NumPy's TypeError
    source = node_of(x)
    high = _reduced(TABLE["reduce:maximum"], source, axes, _flag(keepdims))
    low = _reduced(TABLE["reduce:minimum"], source, axes, _flag(keepdims))
    return from_node(step(TABLE["subtract"], high, low))


_COUNT: Any = type(np.count_nonzero(()))


@records(np.count_nonzero, eager="arrays")
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """As `numpy.count_nonzero`; without an axis older NumPys give a Python int."""
    counted = read_in_place(_count_nonzero, a, axis, keepdims)
    return int(counted) if _COUNT is int and axis is None and not keepdims else counted


@as_one
def _count_nonzero(a: Any, axis: Any, keepdims: Any) -> Any:
    if SELECTIONS and (found := mask_selection.count_nonzero(a, axis, keepdims)) is not None:
        return from_node(found)
    x: Any = _source(a)
    axes = _axes(axis, len(shape_of(x)))
    truth = x.astype(bool, copy=False)  # in the memory order of x, as in NumPy
    return from_node(_reduced(_ADD, node_of(truth), axes, _flag(keepdims), _INTP))


# ------------------------------------------------------------------------ scans


def _scan(theirs: Callable[..., Any], row: Op) -> Any:
    @records(theirs)
    def scan(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = _source(a, out)
        shape = shape_of(x)
        axes = _axes(axis, len(shape))
        if not is_packed(x) or (axis is not None and len(axes) != 1) or type(axis) is tuple:
            raise Refused
        asked = _requested(dtype)
        probe = reduce_node(row, node_of(x), axes, False, asked)
        if probe is None:
            raise Refused
        if axis is None:
            shape = (size_of(shape),)
        axis = None if axis is None else axes[0]
        # its name appears in NumPy's warnings
        function = functools.partial(theirs, axis=axis, dtype=asked)
        return host("accumulate", function, (x,), shape, probe.dtype)

    return scan


cumsum = _scan(np.cumsum, _ADD)
cumprod = _scan(np.cumprod, TABLE["reduce:multiply"])
