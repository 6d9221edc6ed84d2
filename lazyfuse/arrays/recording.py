"""Nodes from operands: what functions of several arrays record, beyond Python's operators.

Owns the choice of loops for any number of operands, reduce nodes and host nodes. Every function
here returns None where an operation cannot be recorded; the caller then runs NumPy at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays import base
from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.ndarray import (
    caller,
    from_node,
    geometry,
    is_part_of_number,
    materialise,
    ndarray,
    node_of,
    wrap,
)
from lazyfuse.arrays.operators import (
    PLAIN,
    WEAK,
    choose_loop,
    dtype_of,
    loop_for,
    operand_key,
    operand_node,
    order_of,
    root,
)
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import LONGEST, HostCall, Node, Reduction, Shape
from lazyfuse.codegen.graph.shapes import broadcast_all, reduced_shape
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.codegen.table.op import Op
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.devices.caches import cached
from lazyfuse.runtime.layout.meta_arrays import Array, DType, Perm
from lazyfuse.runtime.numerics import errstate

_POWER = TABLE["power"]


def may_record() -> bool:
    """Whether the floating-point error state lets operations run later."""
    return errstate.is_default() or not errstate.must_run_at_once()


def may_write(x: ndarray) -> bool:
    """Whether a write to all of `x` can be recorded: its memory is writable and not exported."""
    if materialise(x) is not None:
        return False
    storage = x._storage
    if storage is None:
        return True
    return not storage.shared() and x._view.flags.writeable and not is_part_of_number(x)


def steps_over(x: ndarray, value: Any, region: Array | None = None) -> bool:
    """Whether `value` overlaps the part of `x` that it is written to, with another stride.

    `region`: that part; None: all of `x`.

    NumPy then reads some of what it has just written, in an order that only NumPy knows.
    """
    if type(value) is not ndarray or x._storage is None or value._storage is not x._storage:
        return False
    part, region = geometry(value), geometry(x) if region is None else region
    if region.ndim != 1 or not part.ndim:
        return False
    step, other = region.strides[0], part.strides[-1]  # further axes of the value are of length 1
    return step != other and step * other >= 0 and np.may_share_memory(part, region)


def as_operand(x: Any) -> Any:
    """A list as an array; everything else unchanged."""
    return wrap(np.asarray(to_numpy(x))) if type(x) in (list, tuple) else x


def is_operand(x: Any) -> bool:
    """Whether `x` can be the operand of a node: an array of ours or NumPy's, or a number."""
    return isinstance(x, ndarray) or type(x) is np.ndarray or type(x) in PLAIN


def shape_of(x: Any) -> Shape:
    """The shape of an operand."""
    if isinstance(x, ndarray):
        node = x._node
        if node is not None:
            return node.shape
        small = x._eager
        if small is None and x._storage is None:
            return tuple(base.HOOKS.selection_shape(x))
        real = small if small is not None else x._view
        return tuple(real.shape)
    return tuple(x.shape) if type(x) is np.ndarray else ()


def find_loop(
    op: Op,
    operands: Sequence[Any],
    signature: tuple[Any, ...] | None = None,
    casting: str = "same_kind",
) -> promotion.Loop | None:
    """The loop for these operands; None if it cannot be recorded."""
    keys = tuple([operand_key(x) for x in operands])
    if signature is None and casting == "same_kind":
        return loop_for(op, keys)
    if op.ufunc is None:
        return None
    found = choose_loop(
        op, keys, lambda op, keys: promotion.resolve_with(op, keys, signature, casting)
    )
    if found and casting == "unsafe" and any(map(drops_imaginary, keys, found.ins)):
        return None
    return found


def drops_imaginary(key: Any, dtype: DType) -> bool:
    """Whether NumPy drops the imaginary part of an operand, and warns."""
    is_complex = key is complex or (key not in WEAK and key.kind == "c")
    return is_complex and dtype.kind not in "cb"


def map_node(
    op: Op,
    operands: Sequence[Any],
    signature: tuple[Any, ...] | None = None,
    casting: str = "same_kind",
) -> Node | None:
    """An elementwise operation as a node. Raises NumPy's error for shapes that do not fit."""
    loop = find_loop(op, operands, signature, casting)
    if loop is None:
        return None
    shape = broadcast_all([shape_of(x) for x in operands])
    row = _power_row(operands, loop) if op is _POWER else op
    if row is None:
        return None
    try:
        nodes = tuple([operand_node(x, want) for x, want in zip(operands, loop.ins, strict=True)])
    except OverflowError:  # a Python number that the dtype cannot hold
        return None
    node = Node(row, nodes, loop, shape, loop.out, order_of(shape, *operands), caller())
    return root(node, operands[1]) if row is _POWER else node


def _power_row(operands: Sequence[Any], loop: promotion.Loop) -> Op | None:
    if loop.out.kind != "i":
        return _POWER
    exponent = operands[1]
    if type(exponent) in PLAIN and exponent >= 0:
        return TABLE["power_nonnegative"]
    if dtype_of(exponent).kind in "ub" if isinstance(exponent, ndarray) else False:
        return TABLE["power_nonnegative"]
    return None  # a negative exponent raises: NumPy has to look


def record(op: Op, *operands: Any) -> Any:
    """An elementwise operation as a recorded array; None if it cannot be recorded."""
    node = map_node(op, operands)
    return None if node is None else from_node(node)


def step(op: Op, *nodes: Node) -> Node:
    """An elementwise operation on nodes of one shape (or no axes), in their memory order."""
    loop = promotion.resolve(op, tuple([node.dtype for node in nodes]))
    first = nodes[0]
    shape = first.shape
    for node in nodes[1:]:
        if node.shape != shape:
            shape = broadcast_all([node.shape for node in nodes])
            first = next((node for node in nodes if node.shape == shape), first)
            break
    return Node(op, nodes, loop, shape, loop.out, first.perm, caller())


# -------------------------------------------------------------------------------- reductions


@cached(4096)
def _reduction(
    axes: tuple[int, ...], keepdims: bool, accumulator: np.dtype[Any], short: int
) -> Reduction:
    """The same object for the same arguments: evaluations are found again by its address."""
    return Reduction(axes, keepdims, accumulator, short)


def reduce_node(
    op: Op, source: Node, axes: tuple[int, ...], keepdims: bool, requested: Any = None
) -> Node | None:
    """A reduction of `source` as a node; `requested` is the dtype that the user asked for."""
    try:
        accumulator, result = promotion.resolve_reduce(op, source.dtype, requested)
    except TypeError:
        return None
    if accumulator not in CANONICAL or result not in CANONICAL:
        return None
    if source.dtype.kind == "c" and result.kind in "iuf" and requested is not None:
        return None  # NumPy warns of it
    shape = reduced_shape(source.shape, axes, keepdims)
    # results without a ufunc (argmin, argmax) are in C order
    perm = _reduced_order(source.perm, axes, keepdims) if op.ufunc is not None else None
    number = source.shape[axes[0]] if len(axes) == 1 else 0
    short = number if 1 < number <= LONGEST else 0  # plans may unroll it
    arg = _reduction(axes, keepdims, CANONICAL[accumulator], short)
    return Node(op, (source,), arg, shape, CANONICAL[result], perm, caller())


def _reduced_order(perm: Perm, axes: tuple[int, ...], keepdims: bool) -> Perm:
    if perm is None or keepdims:
        return perm
    left = [axis for axis in perm if axis not in axes]
    order = [axis - sum(each < axis for each in axes) for axis in left]
    return None if order == sorted(order) else tuple(order)


# -------------------------------------------------------------------------------- host calls


def host_node(
    name: str,
    function: Callable[..., Any],
    sources: Sequence[Any],
    shape: Shape,
    dtype: Any,
    perm: Perm = None,
) -> Node:
    """A NumPy call that runs later, on the evaluated `sources`, and returns one array."""
    nodes = tuple([as_node(x) for x in sources])
    return Node(ops.HOST, nodes, HostCall(name, function), shape, CANONICAL[dtype], perm, caller())


def host(
    name: str,
    function: Callable[..., Any],
    sources: Sequence[Any],
    shape: Shape,
    dtype: Any,
    perm: Perm = None,
) -> Any:
    """The array, or lazy scalar, of a `host_node`."""
    return from_node(host_node(name, function, sources, shape, dtype, perm))


def as_node(x: Any) -> Node:
    """Any operand as a node, numbers with their own dtype."""
    if isinstance(x, ndarray):
        return node_of(x)
    return operand_node(x, np.dtype(type(x))) if type(x) in WEAK else operand_node(x, x.dtype)


def is_packed(x: ndarray) -> bool:
    """Whether `x` is in C order: then the results of most functions are, too."""
    node = x._node
    if node is not None:
        return node.perm is None
    small = x._eager
    return bool((small if small is not None else geometry(x)).flags.c_contiguous)
