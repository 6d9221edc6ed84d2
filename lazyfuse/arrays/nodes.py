"""Making nodes: from numpy arrays, numbers and other nodes, each with the user's source line.

Owns `caller`, the types of plain numbers, and what weak scalars become: arrays without axes for
NumPy, or nodes. Knows nodes and numpy arrays, not the array type.
"""

from __future__ import annotations

import opcode
import sys
from math import isinf
from types import FrameType
from typing import Any, Final

import numpy as np

from lazyfuse.arrays.storage import CANONICAL, leaf
from lazyfuse.bootstrap import PACKAGES
from lazyfuse.codegen.graph.node import Layout, Node, Shape, Where
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.config import options
from lazyfuse.devices.caches import memo
from lazyfuse.runtime.chunked import files
from lazyfuse.runtime.events import spans
from lazyfuse.runtime.layout.meta_arrays import (
    Array,
    DType,
    Perm,
    meta_array,
    packed_layout,
    packed_order,
    result_order,
)
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.placement import devices

FOLLOWED = "lazyfuse.followed"
"""The `__package__` of NumPy's own Python code where it is traced on our arrays."""

INSIDE = frozenset((*PACKAGES, FOLLOWED))
"""Packages whose frames are never a user's source line."""

_POOLED = 1 << 17  # bytes from which freed memory may go back to the system each time

_getframe = sys._getframe
_plain = True  # whether NumPy's floating-point error state is its default


def asking_frame() -> FrameType | None:
    """The frame that uses an array, if it is the user's: not a function of lazyfuse's."""
    frame: FrameType | None = _getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return None if frame is None or frame.f_globals.get("__package__") in INSIDE else frame


def user_frame() -> FrameType:
    """The first frame outside lazyfuse; the outermost one if there is none."""
    frame = _getframe(1)
    while frame.f_globals.get("__package__") in INSIDE:
        back = frame.f_back
        if back is None:
            break
        frame = back
    return frame


def is_by_operator() -> bool:
    """Whether an operator calls, not the method by its name, which NumPy leaves to the ufunc."""
    frame = user_frame()
    name = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
    return name.startswith(("BINARY", "COMPARE"))


def caller() -> Where:
    """The user's source line."""
    frame = user_frame()
    where = (frame.f_code, frame.f_lasti)
    if _plain and errstate.is_untouched():
        return where
    return errstate.SourceLocation.like(where, ignored=errstate.ignored_bits())


def snapshot(value: Array) -> Node:
    """A node for the present values of a numpy array that may change later.

    A file that is mapped to be read, and larger than the chunks that memory is for, is not copied.
    """
    if value.nbytes > options.chunk_memory and not value.flags.writeable:
        chunked = files.leaf_over(value)
        if chunked is not None:
            return chunked
    if spans.on and value.ndim:
        spans.clock.line(spans.here()).copied["snapshot"] += value.nbytes
    if not value.ndim:
        return scalar_node(value, CANONICAL[value.dtype])
    if 0 in value.strides:  # as in `node_of`: the order in which NumPy would walk it
        copy = np.empty_like(
            meta_array(value.shape, value.dtype, result_order(value.shape, (value,)))
        )
        copy[...] = value
    elif value.nbytes >= _POOLED and value.flags.c_contiguous and value.dtype in CANONICAL:
        copy = devices.empty(value.shape, value.dtype)
        np.copyto(copy, value)
    else:
        copy = value.copy(order="K")
    return leaf(copy, packed_order(copy)[1])


def scalar_node(value: Any, dtype: DType) -> Node:
    """A node for one number."""
    node = Node(ops.SCALAR, (), None, (), dtype, None, None)
    node.value = np.array(value, dtype)
    return node


def copy_of(node: Node) -> Node:
    """A node with the same values in memory of its own."""
    op = ops.TABLE["copy"]
    loop = promotion.resolve(op, (node.dtype,))
    return Node(op, (node,), loop, node.shape, node.dtype, node.perm, caller())


def lies_in_numpys_memory(node: Node) -> bool:
    """Whether the values of a node are a view in NumPy: sums follow the memory of its source."""
    return ops.is_view(node.op)


def is_read_only(node: Node) -> bool:
    """Whether a node has its values in memory that must not be written."""
    return node.value is not None and not node.value.flags.writeable


def may_be_shared(node: Node) -> bool:
    """Whether a copy may have the values of a node until one of both is written."""
    return not (lies_in_numpys_memory(node) or is_read_only(node))


def cast_node(node: Node, dtype: DType) -> Node:
    """The values of `node` converted as NumPy's unsafe casting does."""
    if node.dtype is dtype or node.dtype == dtype:
        return node
    loop = promotion.cast_loop(node.dtype, dtype)
    return Node(ops.TABLE["cast"], (node,), loop, node.shape, dtype, node.perm, caller())


def full_node(value: Node, shape: Shape, dtype: DType, perm: Perm) -> Node:
    """One number repeated."""
    return Node(ops.FULL, (value,), None, shape, dtype, perm, caller())


def _listen(plain: bool) -> None:
    global _plain
    _plain = plain


errstate.on_change(_listen)


def updated(old: Node, layout: Layout, value: Node, where: Where) -> Node:
    """The values of `old` with `value`, broadcast, in the part that `layout` describes."""
    if layout is packed_layout(old.shape, old.perm):
        if value.shape == old.shape and value.perm == old.perm:
            return value if may_be_shared(value) else copy_of(value)
        if value.shape == ():
            return full_node(value, old.shape, old.dtype, old.perm)
    return Node(ops.UPDATE, (old, value), layout, old.shape, old.dtype, old.perm, where)


# ------------------------------------------------------------------------------------ weak scalars

WEAK: Final = frozenset((int, float, complex))
STRONG: Final[dict[Any, Any]] = {
    np.dtype(char).type: CANONICAL[np.dtype(char)] for char in "?bBhHiIlLqQefdgFDG"
}
PLAIN: Final[Any] = WEAK | {bool} | set(STRONG)
STRONG[bool] = np.dtype(bool)


CONSTANTS: Final[dict[Any, Node]] = memo("arrays.nodes.constants", 1024)
"""Nodes of the numbers so far, by number and dtype."""


def constant(value: Any, dtype: Any) -> Node:
    """A node for a Python number, shared by equal ones (not by zeros, whose signs may differ).

    One that overflows is converted each time: NumPy warns each time.
    """
    if not value or type(value) is complex:
        return scalar_node(value, dtype)
    node = CONSTANTS.get((value, dtype))
    if node is None:
        node = scalar_node(value, dtype)
        made: Any = node.value
        if not isinf(abs(made)) or isinf(abs(value)):
            CONSTANTS[value, dtype] = node
    return node
