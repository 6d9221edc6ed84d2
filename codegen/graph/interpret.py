"""The reference interpreter: runs a graph node by node with NumPy.

Every test compares with it, and it is the last fallback of a run.

Owns the meaning of each op kind in NumPy's terms. Simple on purpose: nothing here is fused or fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lazyfuse.codegen.graph.moves import Moves, assemble, seen
from lazyfuse.codegen.graph.node import Layout, Node, Reduction, topological
from lazyfuse.codegen.table.ops import Op

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
Perm = tuple[int, ...] | None


def interpret(nodes: Sequence[Node]) -> list[Array]:
    """The values of `nodes`. Writes to neither the nodes nor their leaves."""
    values: dict[int, Array] = {}
    for node in topological(nodes):
        if node.value is not None:
            values[id(node)] = node.value
            continue
        sources = [values[id(source)] for source in node.src]
        perms = [source.perm for source in node.src]
        values[id(node)] = run_node(
            node.op, node.arg, node.shape, node.dtype, node.perm, sources, perms
        )
    return [values[id(node)] for node in nodes]


def run_node(
    op: Op,
    arg: Any,
    shape: Shape,
    dtype: np.dtype[Any],
    perm: Perm,
    values: Sequence[Array],
    perms: Sequence[Perm] | None = None,
) -> Array:
    """The value of one node: a fresh packed array in memory order `perm`.

    `perms` are the memory orders of the sources, which views and updates need; the default is to
    derive them from the values.
    """
    if op.kind in ("view", "update"):
        order = perms[0] if perms is not None else _packed_order(values[0])
        flat = _flat_memory(values[0], order)
        if op.kind == "view":
            return _packed(_window(flat, arg), shape, dtype, perm)
        return _updated(flat, arg, shape, perm, values[1])
    if op.kind == "index":
        return assembled(arg, shape, dtype, perm, values)
    if op.kind == "map" or op.kind == "contract":
        return _run_map(op, arg, shape, dtype, perm, values)
    if op.kind == "reduce":
        return packed_copy(_reduced(op, arg, values[0]), shape, dtype, perm, values)
    if op.kind == "source":
        if not values:
            return empty_in_order(shape, dtype, perm)
        return _packed(np.full(shape, values[0], dtype), shape, dtype, perm)
    if op.kind == "host":
        return packed_copy(np.asarray(arg.function(*values)), shape, dtype, perm, values)
    raise NotImplementedError(f"[{op.name}] interpret: no meaning for kind {op.kind!r}")


def assembled(
    arg: Moves, shape: Shape, dtype: np.dtype[Any], perm: Perm, values: Sequence[Array]
) -> Array:
    """The elements that a map of indices picks from its sources."""
    result = empty_in_order(arg.space or shape, dtype, perm)
    for piece in arg.pieces:
        value = values[piece.source]
        assemble(result, seen([((0,) * value.ndim, value)], value.shape, piece), np.copyto)
    return result.reshape(shape) if arg.space else result


def empty_in_order(shape: Shape, dtype: np.dtype[Any], perm: Perm) -> Array:
    """An uninitialised packed array in memory order `perm`."""
    if perm is None:
        return np.empty(shape, dtype)
    inverse = np.argsort(perm)
    return np.empty(tuple(shape[axis] for axis in perm), dtype).transpose(inverse)


def _packed(value: Array, shape: Shape, dtype: np.dtype[Any], perm: Perm) -> Array:
    result = empty_in_order(shape, dtype, perm)
    result[...] = value
    return result


def packed_copy(
    value: Array, shape: Shape, dtype: np.dtype[Any], perm: Perm, values: Sequence[Array]
) -> Array:
    """`value` itself if it is fresh and packed in the right order, else a copy that is."""
    ordered = value if perm is None else value.transpose(perm)
    # memory of a pool has a base that is no array
    pooled = value.base is not None and not isinstance(value.base, np.ndarray)
    fresh = (value.flags.owndata or pooled) and not any(value is source for source in values)
    if fresh and value.dtype == dtype and value.shape == shape and ordered.flags.c_contiguous:
        return value
    return _packed(value, shape, dtype, perm)


def _run_map(
    op: Op, loop: Any, shape: Shape, dtype: np.dtype[Any], perm: Perm, values: Sequence[Array]
) -> Array:
    result = empty_in_order(shape, dtype, perm)
    cast = [value.astype(want, copy=False) for value, want in zip(values, loop.ins, strict=True)]
    if op.ufunc is not None:
        # inputs in a loop's own dtypes choose that loop
        op.ufunc(*cast, out=result, casting="unsafe")
    elif op.name == "cast":
        _copy_cast(result, cast[0])
    else:
        np.copyto(result, _reference(op)(*cast), casting="unsafe")
    return result


def _copy_cast(target: Array, value: Array) -> None:
    if value.dtype.kind == "c" and target.dtype.kind in "iuf":
        value = value.real  # NumPy's ComplexWarning belongs to the call that recorded the cast
    np.copyto(target, value, casting="unsafe")


def _reference(op: Op) -> Callable[..., Any]:
    if op.reference is None:
        raise NotImplementedError(f"[{op.name}] interpret: the row has no NumPy reference")
    return op.reference


def _reduced(op: Op, arg: Reduction, value: Array) -> Array:
    if op.ufunc is not None:
        return np.asarray(
            op.ufunc.reduce(value, axis=arg.axes, dtype=arg.accumulator, keepdims=arg.keepdims)
        )
    value = value.astype(arg.accumulator, copy=False)
    axis = arg.axes[0] if len(arg.axes) == 1 else None
    return np.asarray(_reference(op)(value, axis=axis, keepdims=arg.keepdims))


def _packed_order(value: Array) -> Perm:
    if value.flags.c_contiguous:
        return None
    return tuple(int(axis) for axis in np.argsort([-stride for stride in value.strides]))


def _flat_memory(value: Array, perm: Perm) -> Array:
    return value.ravel() if perm is None else value.transpose(perm).ravel()


def _window(flat: Array, layout: Layout) -> Array:
    size = flat.itemsize
    strides = tuple(stride * size for stride in layout.strides)
    return as_strided(flat[layout.offset :], layout.shape, strides)


def _updated(flat: Array, layout: Layout, shape: Shape, perm: Perm, value: Array) -> Array:
    memory = flat.copy()
    _window(memory, layout)[...] = value
    if perm is None:
        return memory.reshape(shape)
    return memory.reshape([shape[axis] for axis in perm]).transpose(np.argsort(perm))
