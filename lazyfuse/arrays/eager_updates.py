"""Updates of a part of a private block, in NumPy at once.

eager_policy.py decides which updates these are. Owns how they are done: by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.base import kept_real
from lazyfuse.arrays.eager_policy import middling_operand
from lazyfuse.arrays.ndarray import concrete_value, ndarray, options
from lazyfuse.arrays.nodes import PLAIN
from lazyfuse.codegen.graph.references import IN_SLOT, count
from lazyfuse.codegen.table.op import Op
from lazyfuse.runtime.scheduling.evaluate import held


def one_at_a_time(function: Callable[[Any, ndarray, Any], Any]) -> Callable[..., Any]:
    """`function(spec, self, other)`, which changes `self`, run by one thread at a time."""

    def change(spec: Any, self: ndarray, other: Any) -> Any:
        if self._eager is not None:
            return function(spec, self, other)
        with held():
            return function(spec, self, other)

    return change


def update_at_once(op: Op, function: Callable[[Any, Any], Any], self: ndarray, other: Any) -> bool:
    """Do `self op= other` in NumPy in the clear cases: a part of a private block whose values exist
    and have no readers, and operands whose values exist; whether it was done.

    `eager_policy.update` judges the other cases.
    """
    storage = self._storage
    if (
        storage is None
        or storage.always_eager
        or storage.exports is not None
        or not array.ERRSTATE_PLAIN
    ):
        return False
    view = self._view
    if storage.value is None or storage.node.value is not storage.value:
        return False
    # 2: the references of the node and of the holder of the flat memory
    if count(storage.value) > IN_SLOT + 2 or count(storage.node) > IN_SLOT:
        return False
    if storage.node.resident is not None:
        return False
    if view.dtype is not storage.node.dtype:
        return False
    found = (
        middling_operand(op, storage, view, other)
        if view.size >= options.eager_below
        else other
        if type(other) in PLAIN
        else concrete_value(other)
        if type(other) is ndarray
        else None
    )
    if found is None:
        return False
    real = kept_real(self, storage.reals)
    if real is None:
        return False
    function(real, found)
    return True
