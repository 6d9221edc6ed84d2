"""Which updates of a block NumPy does at once, though the block is big enough to be recorded.

Owns the rule for blocks of middling size: where all values are there and nobody wants the old
ones, one NumPy operation takes less than recording it, and needs no second block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.array import CANONICAL, MIDDLING, geometry, ndarray, options
from lazyfuse.codegen.op import Op
from lazyfuse.codegen.shapes import broadcast, size_of
from lazyfuse.storage import Storage
from lazyfuse.views import Array


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


def has_bits_of_its_own(op: Op, operands: Sequence[Any]) -> bool:
    """Whether an inexact operation on many single bytes is to be recorded: its size decides."""
    if not op.ulps or "f" in op.exact:
        return False
    large = max(options.eager_below, 1)
    return any(
        type(x) is np.ndarray and x.itemsize == 1 and x.size >= large and x.dtype in CANONICAL
        for x in operands
    )
