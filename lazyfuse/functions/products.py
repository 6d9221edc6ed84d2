"""As NumPy's products of arrays: `matmul`, `dot`, `inner`, `vdot`.

Recorded where shapes and dtypes say what comes out; NumPy's (BLAS's) own function runs at the end.
Owns what `@` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import (
    caller,
    from_node,
    gather,
    geometry,
    ndarray,
    node_of,
    options,
    ready,
    wrap,
)
from lazyfuse.arrays.operators import dtype_of, set_matmul
from lazyfuse.arrays.recording import host, may_record, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import Node, Shape
from lazyfuse.codegen.graph.shapes import broadcast, broadcast_all, size_of
from lazyfuse.codegen.table import promotion
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.interop import fallback
from lazyfuse.registry import implements
from lazyfuse.runtime.execution import matmul
from lazyfuse.runtime.layout.meta_arrays import result_order

_MATMUL = TABLE["matmul"]


def taken(operands: Sequence[Any], big: bool = False) -> list[ndarray] | None:
    """The operands, if their product is recorded: one of them is big, all are of known dtypes."""
    found = []
    for x in operands:
        if type(x) in (list, tuple, np.ndarray):
            x = wrap(np.array(fallback.gathered(x)))
        if type(x) is not ndarray or dtype_of(x) not in CANONICAL:
            return None
        big = big or ready(x) is None
        found.append(x)
    return found if big and may_record() else None


def _is_over_at_once(operands: Sequence[ndarray], shape: Shape) -> bool:
    """Whether a product is best done now: its operands are there and what comes out is small.

    Small arrays are never recorded, and what follows them would be because of this one. Memory
    that somebody outside may change would be copied for later, which takes longer than most
    products of it (a matrix and a vector).
    """
    if size_of(shape) < options.eager_below and all(is_there(x) for x in operands):
        return True
    if not any(_is_shared(x) for x in operands):
        return False
    first, second = operands
    return not matmul.is_ours(shape_of(first), shape_of(second), [dtype_of(x) for x in operands])


def _is_shared(x: ndarray) -> bool:
    """Whether a read of an array copies it, since somebody outside may look at its memory."""
    return x._node is None and ready(x) is None and x._storage is not None and x._storage.shared()


def is_there(x: ndarray) -> bool:
    """Whether the values of an array are in the host's memory."""
    if ready(x) is not None:
        return True
    storage, node = x._storage, x._node
    if storage is not None:
        return storage.memory() is not None
    return node is not None and node.value is not None


def _matmul_shape(first: Shape, second: Shape) -> Shape | None:
    if not first or not second:
        return None
    rows, inner = (first[-2:-1], first[-1])
    columns = second[-1:] if len(second) > 1 else ()
    if inner != (second[-2] if len(second) > 1 else second[-1]):
        return None
    try:
        stack = broadcast(first[:-2], second[:-2])
    except ValueError:
        return None
    return (*stack, *rows, *columns)


def _is_stacked_in_order(operands: Sequence[ndarray], shape: Shape) -> bool:
    """Whether NumPy stacks the matrices of a product in C order, as recorded products are."""
    if len(shape) < 4 or any(0 in shape_of(x) for x in operands):
        return True
    stacks = [geometry(x)[..., 0, 0] for x in operands]
    return result_order(broadcast_all([x.shape for x in stacks]), stacks) is None


def _recorded_matmul(first: Any, second: Any) -> Any:
    operands = taken((first, second))
    if operands is None:
        return None
    left, right = operands
    shape = _matmul_shape(shape_of(left), shape_of(right))
    if shape is None or not _is_stacked_in_order(operands, shape):
        return None
    if _is_over_at_once(operands, shape):
        return wrap(fallback.call(matmul.matmul, [gather(left), gather(right)], {}))
    try:
        loop = promotion.resolve(_MATMUL, (dtype_of(left), dtype_of(right)))
    except TypeError:
        return None
    if loop.out not in CANONICAL:
        return None
    nodes = (node_of(left), node_of(right))
    matmul.foresee(*nodes, loop.ins)
    return from_node(Node(_MATMUL, nodes, loop, shape, loop.out, None, caller()))


def _matmul(first: Any, second: Any) -> Any:
    """`first @ second`."""
    if type(first) is ndarray and type(second) is ndarray:
        left, right = first._small, second._small
        if left is not None and right is not None:
            return wrap(fallback.call(np.matmul, [left, right], {}))
    result = _recorded_matmul(first, second)
    return _THEIR_MATMUL.now(first, second) if result is None else result


def _dot_shape(first: Shape, second: Shape) -> Shape | None:
    if not first or not second:
        return None
    if first[-1] != (second[-2] if len(second) > 1 else second[-1]):
        return None
    return (*first[:-1], *second[:-2], *(second[-1:] if len(second) > 1 else ()))


def _inner_shape(first: Shape, second: Shape) -> Shape | None:
    if not first or not second or first[-1] != second[-1]:
        return None
    return (*first[:-1], *second[:-1])


def _vdot_shape(first: Shape, second: Shape) -> Shape | None:
    sizes = np.prod(first, dtype=np.intp), np.prod(second, dtype=np.intp)
    return () if sizes[0] == sizes[1] else None


def _product(
    theirs: Any, shape_rule: Callable[[Shape, Shape], Shape | None], first: Any, second: Any
) -> Any:
    """A product as a host node; None if NumPy should run or refuse it now."""
    operands = taken((first, second))
    if operands is None:
        return None
    left, right = operands
    shape = shape_rule(shape_of(left), shape_of(right))
    if shape is None:
        return None
    if _is_over_at_once(operands, shape):
        ours = matmul.dot if theirs is np.dot else theirs
        return wrap(fallback.call(ours, [gather(left), gather(right)], {}))
    dtype = np.result_type(dtype_of(left), dtype_of(right))
    return host(theirs.__name__, theirs, operands, shape, dtype)


@implements(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """As `numpy.dot`."""
    result = None if out is not None else _product(np.dot, _dot_shape, a, b)
    return (
        fallback.run(np.dot, "dot", (a, b), fallback.given(out=out)) if result is None else result
    )


@implements(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    """As `numpy.inner`."""
    result = _product(np.inner, _inner_shape, a, b)
    return fallback.run(np.inner, "inner", (a, b), {}) if result is None else result


@implements(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    """As `numpy.vdot`."""
    result = _product(np.vdot, _vdot_shape, a, b)
    return fallback.run(np.vdot, "vdot", (a, b), {}) if result is None else result


_THEIR_MATMUL = ufunc_of(np.matmul)
_THEIR_MATMUL.recorder = _recorded_matmul
set_matmul(_matmul)
