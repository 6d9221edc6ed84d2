"""Which updates of a block NumPy does at once, though the block is big enough to be recorded.

Owns the rule for blocks of middling size: where all values are there and nobody wants the old
ones, one NumPy operation takes less than recording it, and needs no second block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays import fused_updates
from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.ndarray import CANONICAL, MIDDLING, geometry, is_small, ndarray, options, ready
from lazyfuse.arrays.storage import Storage
from lazyfuse.arrays.weak_scalars import PLAIN
from lazyfuse.codegen.graph.references import IN_SLOT, count
from lazyfuse.codegen.graph.shapes import broadcast, size_of
from lazyfuse.codegen.table.op import Op
from lazyfuse.runtime.layout.meta_arrays import Array
from lazyfuse.runtime.scheduling.evaluate import held


def is_for_update(op: Op, self: ndarray, other: Any, left: Array, right: Array) -> bool:
    """Whether a row and a column of one middling block are taken for an update of that block.

    Recorded, they would want its present values, and the update had to make another block.
    """
    storage = self._storage
    if storage is None or type(other) is not ndarray or other._storage is not storage:
        return False
    if not (op.is_exact(left.dtype) and op.is_exact(right.dtype)):
        return False
    flat = is_middling(storage)
    return flat is not None and size_of(broadcast(left.shape, right.shape)) <= flat.size


def is_middling(storage: Storage) -> Array | None:
    """The values of a block, if one NumPy operation on them takes less than recording it."""
    flat = storage.memory()
    return flat if flat is not None and flat.size <= MIDDLING * options.eager_below else None


def updates_at_once(op: Op, self: ndarray, operands: Sequence[Any]) -> bool:
    """Whether NumPy should update a middling block: all values are there, nobody wants old ones."""
    storage = self._storage
    if storage is None or is_middling(storage) is None or storage.captured():
        return False
    if not op.is_exact(self._view.dtype):  # bits must not depend on what is there already
        return False
    for x in operands:
        if type(x) is not ndarray:
            return False
        if x is not self and x._small is None:
            node, other = x._node, x._storage
            if (node.value if node is not None else other and other.memory()) is None:
                return False
        if not op.is_exact(geometry(x).dtype):
            return False
    return True


def was_written(op: Op, out: ndarray, operands: Sequence[Any]) -> bool:
    """Do `op(*operands, out=out)` at once, if one operand is `out` and the other one waits for what
    a row and a column of a middling block give.
    """
    storage = out._storage
    if storage is None or len(operands) != 2 or is_middling(storage) is None:
        return False
    first, second = operands
    if first is out:
        return fused_updates.was_fused(op, out, second, False)
    return second is out and fused_updates.was_fused(op, out, first, True)


def one_at_a_time(function: Callable[[Any, ndarray, Any], Any]) -> Callable[..., Any]:
    """`function(spec, self, other)`, which changes `self`, held by one thread at a time."""

    def change(spec: Any, self: ndarray, other: Any) -> Any:
        if self._small is not None:
            return function(spec, self, other)
        with held():
            return function(spec, self, other)

    return change


def was_updated(op: Op, function: Callable[[Any, Any], Any], self: ndarray, other: Any) -> bool:
    """Do `self op= other` in NumPy, if that is sure to be right at once: a part of a private block
    whose values are there and wanted by nobody else, and operands that are there.

    What is not so plain is for the functions above to judge.
    """
    storage = self._storage
    if storage is None or storage.pinned or storage.roots is not None or not array.ERRSTATE_PLAIN:
        return False
    view = self._view
    if storage.value is None or storage.node.value is not storage.value:
        return False
    # two more: the node, the holder of the flat memory
    if count(storage.value) > IN_SLOT + 2 or count(storage.node) > IN_SLOT:
        return False
    if storage.node.resident is not None:
        return False
    if view.dtype is not storage.node.dtype:
        return False
    if view.size < options.eager_below:
        found = other if type(other) in PLAIN else ready(other) if type(other) is ndarray else None
    else:
        found = _for_middling(op, storage, view, other)
    if found is None:
        large = view.size >= options.eager_below and is_middling(storage) is not None
        return large and fused_updates.was_fused(op, self, other, False)
    reals = self._reals
    real = reals.get(self._ticket) if reals is storage.reals else None
    if real is None:
        return False
    function(real, found)
    return True


def _for_middling(op: Op, storage: Storage, view: Array, other: Any) -> Array | None:
    """The values of an operand, for an exact operation on a part of a middling block."""
    if type(other) is not ndarray or is_middling(storage) is None or not op.is_exact(view.dtype):
        return None
    node = other._node
    found: Array | None
    if node is None:
        found = ready(other)
    else:
        found = None if node.resident is not None else node.value
    return found if found is not None and op.is_exact(found.dtype) else None


def has_bits_of_its_own(op: Op, operands: Sequence[Any]) -> bool:
    """Whether an inexact operation on many single bytes is to be recorded: its size decides."""
    if not op.ulps or "f" in op.exact:
        return False
    large = max(options.eager_below, 1)
    return any(
        type(x) is np.ndarray and x.itemsize == 1 and x.size >= large and x.dtype in CANONICAL
        for x in operands
    )


def beside_bytes(op: Op, small: Array, other: Any) -> Any:
    """The other operand of an exact operation on many single bytes, if NumPy does it at once."""
    if small.itemsize != 1 or op.ulps or not is_small(small):
        return None
    if type(other) is not ndarray:
        return other if type(other) in PLAIN else None
    right = other._small
    if right is None or right.itemsize != 1 or right.shape != small.shape:
        return None
    return right
