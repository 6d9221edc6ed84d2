"""As `numpy.stack`: arrays of one shape that are not evaluated yet become parts of a new block.

What computes a part stores it there, as in `joining.py`, which joins along an axis that is there;
everything else goes NumPy's own way (decompositions.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import caller, from_node, geometry, ndarray, node_of, options, ready
from lazyfuse.arrays.operators import dtype_of, shape_of
from lazyfuse.arrays.storage import CANONICAL, leaf
from lazyfuse.codegen.graph.node import Layout, Node, Shape
from lazyfuse.codegen.graph.shapes import contiguous_strides, size_of
from lazyfuse.codegen.table import ops
from lazyfuse.functions import decompositions
from lazyfuse.functions.joining import PIECES
from lazyfuse.registry import OURS, THEIRS, dress
from lazyfuse.runtime.layout.meta_arrays import Array, Perm, joined_order
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling.compound_calls import as_one

_followed = decompositions.stack  # type: ignore[attr-defined]  # NumPy's text over our arrays


def stack(*args: Any, **kwargs: Any) -> Any:
    """As `numpy.stack`."""
    few = len(args) + len(kwargs) <= 2 and kwargs.keys() <= {"axis"}
    if few and args and type(args[0]) in (list, tuple):
        found = _stacked(args[0], kwargs.get("axis", args[1] if len(args) > 1 else 0))
        if found is not None:
            return found
    return _followed(*args, **kwargs)


@as_one
def _stacked(arrays: Any, axis: Any) -> Any:
    """The block; None where NumPy's own text decides."""
    if not 0 < len(arrays) <= PIECES or type(axis) is not int or not all(map(_has_shape, arrays)):
        return None
    own, dtype = shape_of(arrays[0]), dtype_of(arrays[0])
    pending = False
    for x in arrays:
        if shape_of(x) != own or dtype_of(x) != dtype:
            return None
        pending = pending or ready(x) is None
    rank = len(own) + 1
    size = size_of(own) * len(arrays)
    if not pending or not own or not -rank <= axis < rank or dtype not in CANONICAL:
        return None
    if size < max(options.eager_below, 1) or devices.current() is not devices.cpu():
        return None
    axis %= rank
    strides = tuple([geometry(x).strides for x in arrays])
    shape, perm, layouts = _arranged(own, strides, axis)
    packed = shape if perm is None else tuple([shape[each] for each in perm])
    block: Array = devices.cpu().empty(packed, dtype)
    node = leaf(block if perm is None else block.transpose(np.argsort(perm)), perm)
    where = caller()
    for x, layout in zip(arrays, layouts, strict=True):
        node = Node(ops.UPDATE, (node, node_of(x)), layout, shape, dtype, perm, where)
    return from_node(node)


def _has_shape(x: Any) -> bool:
    """Whether `x` is an array of ours, and no selection whose size nobody has asked for."""
    if type(x) is not ndarray:
        return False
    return x._small is not None or x._node is not None or x._storage is not None


@lru_cache(maxsize=512)
def _arranged(
    own: Shape, strides: tuple[tuple[int, ...], ...], axis: int
) -> tuple[Shape, Perm, list[Layout]]:
    """Shape and memory order of what arrays of these strides give, and where each lies in it."""
    shape = (*own[:axis], len(strides), *own[axis:])
    joined = (*own[:axis], 1, *own[axis:])
    shown = [
        np.lib.stride_tricks.as_strided(_NOTHING, joined, (*each[:axis], 0, *each[axis:]))
        for each in strides
    ]
    perm = joined_order(shown)
    steps = contiguous_strides(shape, perm)
    kept = (*steps[:axis], *steps[axis + 1 :])
    return shape, perm, [Layout(at * steps[axis], own, kept) for at in range(len(strides))]


_NOTHING = np.empty(1, np.bool_)

dress(stack, np.stack)
OURS[np.stack] = stack
THEIRS[stack] = np.stack
