"""What an assignment stores: values as nodes of the dtype they are written to, or NumPy's errors.

Owns the rules for values that arrays take; indexing.py decides which elements are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import (
    CANONICAL,
    OURS,
    cast_node,
    ndarray,
    node_of,
    scalar_node,
    snapshot,
)
from lazyfuse.arrays.operators import PLAIN, dtype_of, shape_of
from lazyfuse.arrays.recording import may_record
from lazyfuse.codegen.graph.node import Layout, Node
from lazyfuse.codegen.graph.shapes import broadcast, contiguous_strides
from lazyfuse.codegen.table import ops
from lazyfuse.errors import refuses_ours
from lazyfuse.runtime.layout.meta_arrays import Array, one_element
from lazyfuse.runtime.scheduling import stand_ins


def store_foreign(error: ValueError, real: Array, key: Any, value: Any) -> None:
    """Write `value` if NumPy refused it only because its `__array__` gives an array of ours."""
    if not refuses_ours(error):
        raise error
    assign_foreign(real, key, value)


def _no_foreign(real: Array, key: Any, value: Any) -> None:
    raise NotImplementedError("lazyfuse.interop.fallback was not imported")


assign_foreign = _no_foreign  # set by fallback.py, for objects whose `__array__` gives ours


def converted(value: Any, dtype: Any, shape: tuple[int, ...]) -> Array:
    """A list, a string or any other object as an array of `dtype`, which it is written to."""
    try:
        # NumPy takes no more dimensions of a list than the part has
        own = value.shape if issubclass(type(value), np.ndarray) else np.shape(value)
    except ValueError:
        own = shape
    found = np.empty(own if len(own) <= len(shape) and fits(own, shape) else shape, dtype)
    try:
        found[...] = value  # raises
    except ValueError as error:
        found = np.empty(shape, dtype)
        store_foreign(error, found, ..., value)
    return found


def may_not_hold(dtype: Any, value: Any) -> bool:
    """Whether NumPy must see a lazy scalar: it refuses numbers that integers cannot hold."""
    if type(value) not in OURS or type(value) is ndarray or dtype.kind not in "iu":
        return False
    return not np.can_cast(dtype_of(value), dtype)


def needs_numpys_cast(value: Any, dtype: Any) -> bool:
    """Whether storing `value` in an element takes more than a plain cast."""
    if type(value) in PLAIN:
        return False
    if type(value) not in OURS and type(value) is not np.ndarray:
        return True
    kind = value.dtype.kind
    return shape_of(value) != () or (kind in "fc" and kind != dtype.kind)


def value_node(value: Any, dtype: Any, shape: tuple[int, ...], key: Any = ...) -> Node | None:
    """The assigned value as a node of `dtype` that broadcasts to `shape`; None: not recordable.

    Raises NumPy's errors for values that do not fit (an element, key (), has its own rules).
    """
    kind = type(value)
    if kind in PLAIN:
        stand_ins.speak_of(value, dtype)
        number = np.empty((), dtype)
        number[key] = value
        return scalar_node(number, dtype)
    if type(value) in OURS:
        source = dtype_of(value)
        if source not in CANONICAL:
            return None
        own = shape_of(value)
    elif value.dtype not in CANONICAL:
        return None
    else:
        source, own = value.dtype, value.shape
    if own != shape and not fits(own, shape):
        one_element(shape, dtype)[...] = one_element(own, source)  # raises
    if source.kind == "c" != dtype.kind:
        stand_ins.speak()
        np.empty((), dtype)[...] = np.zeros((), source)  # warns
    if source != dtype and not may_record():
        return None
    node = node_of(value) if type(value) in OURS else snapshot(value)
    return cast_node(_without_leading(node, len(shape)), dtype)


def fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a value of shape `own` can be assigned to a part of that shape."""
    extra = len(own) - len(shape)
    if extra > 0:
        if any(length != 1 for length in own[:extra]):
            return False
        own = own[extra:]
    try:
        return broadcast(own, shape) == shape
    except ValueError:
        return False


def _without_leading(node: Node, rank: int) -> Node:
    extra = len(node.shape) - rank
    if extra <= 0:
        return node
    strides = contiguous_strides(node.shape, node.perm)
    layout = Layout(0, node.shape[extra:], strides[extra:])
    return Node(ops.VIEW, (node,), layout, layout.shape, node.dtype, None, None)
