"""Which operations on arrays NumPy does at once, and which are recorded.

Owns the questions, one function each. The answer is the rule by which NumPy does the work at once
(runtime/events/decisions.py), or None: it is recorded. The caller does the work.
runtime/scheduling/eager_rules.py judges sizes alone. The eager paths (eager_*.py, and the same in
C) compare sizes themselves, and ask here where that is not enough.

Blocks of middling size: where all values exist and recorded work does not read the old ones, one
NumPy operation takes less time than recording it, and needs no second block. Memory that other code
may change: recorded work reads a copy of it, which takes as long as one operation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays.exported_memory import eager_limit, host_value, may_be_visible, runs_exactly
from lazyfuse.arrays.ndarray import (
    CANONICAL,
    OURS,
    concrete_value,
    gather,
    geometry,
    has_readers,
    is_part_of_number,
    materialise,
    ndarray,
    options,
)
from lazyfuse.arrays.nodes import PLAIN, asking_frame
from lazyfuse.arrays.storage import Storage, is_evaluated, leaf
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.shapes import broadcast, broadcast_all, size_of
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Op
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.events.decisions import (
    ERROR_STATE,
    EXPORTED,
    EXPORTED_TARGET,
    FAILS,
    MIDDLING_BLOCK,
    PART_OF_NUMBER,
    SMALL,
    SMALL_WRITE,
    STRANGE_MEMORY,
    UNRECORDED_DTYPE,
    VALUES_THERE,
    Rule,
)
from lazyfuse.runtime.layout.meta_arrays import Array
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.eager_rules import MIDDLING, small_array

# How many small parts in a row are written to a pending array before it is evaluated.
WRITE_LIMIT = 16
# How many small parts are read of a pending block before it is evaluated, for NumPy to work on.
VISIT_LIMIT = 16
COUNTS, PLACES = 1 << 8, 1 << 48  # of `Storage.visits`: more than all counts, and places


def evaluated(x: ndarray) -> Rule | None:
    """An array: all operations on it are NumPy's; None: recorded, or judged one by one."""
    if materialise(x) is None:
        storage = x._storage
        return EXPORTED if storage is not None and storage.shared() else None
    if rule := small_array(x._eager):
        return rule
    return STRANGE_MEMORY if x._eager.dtype in CANONICAL else UNRECORDED_DTYPE  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------- operations


def operation(op: Op, *operands: Any) -> Rule | None:
    """An operator: at once for the error state, or to avoid a copy."""
    if not errstate.is_default() and errstate.must_run_at_once():
        return ERROR_STATE
    if not spares_copy(op, operands):
        return None
    numpy_calls.count(op.name, sys._getframe(1))
    return EXPORTED


def operation_on_values(left: Any, right: Any) -> Rule | None:
    """An operator on NumPy's arrays and numbers: at once unless the result is large."""
    if type(left) is not np.ndarray or type(right) is not np.ndarray:
        return SMALL
    first, second = left.shape, right.shape
    if first == second:
        if not left.size or (small_array(left) and small_array(right)):
            return SMALL
    else:
        try:
            size = size_of(broadcast(first, second))
        except ValueError:
            return FAILS  # NumPy raises the error
        if size < options.eager_below:
            return SMALL
    return None if left.dtype in CANONICAL and right.dtype in CANONICAL else UNRECORDED_DTYPE


def elementwise(operands: Sequence[Any]) -> Rule | None:
    """A function of several operands: at once unless one is pending, or one or the result large."""
    ours = False
    shapes = []
    for x in operands:
        if isinstance(x, ndarray):
            value = concrete_value(x)
            if value is None:
                return None
            ours = True
            shapes.append(value.shape)
        elif type(x) is np.ndarray:
            shapes.append(x.shape)
    if not ours or len(shapes) < 2 or all(shape == shapes[0] for shape in shapes):
        return SMALL
    try:
        return None if size_of(broadcast_all(shapes)) >= options.eager_below > 0 else SMALL
    except ValueError:
        return FAILS


def has_bits_of_its_own(op: Op, operands: Sequence[Any]) -> bool:
    """Whether an inexact operation on many single bytes is recorded although its operands are
    eager: the bits of a result depend on its size alone.
    """
    if not op.ulps or "f" in op.exact:
        return False
    large = max(options.eager_below, 1)
    return any(
        type(x) is np.ndarray and x.itemsize == 1 and x.size >= large and x.dtype in CANONICAL
        for x in operands
    )


def middling_operands(operands: Sequence[ndarray], size: int) -> Rule | None:
    """Arrays that are read once, for a join or a number: at once if they exist on the CPU and are
    not large. To record and to launch takes as long as NumPy's loop.
    """
    if size > MIDDLING * options.eager_below or not devices.is_cpu():
        return None
    return MIDDLING_BLOCK if all(is_there(x) for x in operands) else None


def small_product(
    operands: Sequence[ndarray], shapes: Sequence[tuple[int, ...]], shape: tuple[int, ...]
) -> Rule | None:
    """A product with a small result: at once if the operands exist, for operations on the result
    would be recorded if it was. On the CPU also if they are of at most middling size: those that
    are pending are computed first, as a plan would compute them, too.
    """
    if size_of(shape) >= options.eager_below:
        return None
    if all(is_there(x) for x in operands):
        return SMALL
    if not devices.is_cpu() or any(map(is_in_chunks, operands)):
        return None
    largest = max([size_of(each) for each in shapes])
    return MIDDLING_BLOCK if largest <= MIDDLING * options.eager_below else None


def is_in_chunks(value: Any) -> bool:
    """Whether a value is an array in chunks: it may be larger than memory."""
    if type(value) is not ndarray or evaluate.in_chunks is None:
        return False
    node = value._node if value._storage is None else value._storage.node
    return node is not None and node.value is None and evaluate.in_chunks(node)


def is_there(x: ndarray) -> bool:
    """Whether the values of an array exist in the host's memory."""
    if concrete_value(x) is not None:
        return True
    storage, node = x._storage, x._node
    if storage is not None:
        return storage.memory() is not None
    return node is not None and node.value is not None


def creation(model: Any) -> Rule | None:
    """A new array full of one number; `model` has its geometry."""
    if type(model) is not np.ndarray or model.ndim == 0 or not model.size:
        return SMALL
    if model.dtype not in CANONICAL:
        return UNRECORDED_DTYPE
    return SMALL if model.size < options.eager_below else None


# ------------------------------------------------------------------------------- exported memory


def spares_copy(op: Op, operands: tuple[Any, ...] | list[Any]) -> Rule | None:
    """An exact elementwise operation that, done at once, avoids the copy of a large operand: if all
    values exist, and the result is of middling size.
    """
    if not may_be_visible(operands):
        return None
    if options.device not in ("", "auto", "cpu") or not options.exported_at_once:
        return None
    copied = False
    shapes: list[tuple[int, ...]] = []
    for x in operands:
        if type(x) in PLAIN:
            continue
        value, seen = host_value(x)
        if value is None or not runs_exactly(op, value.dtype, not shapes):
            return None
        copied |= seen and value.size >= options.eager_below
        shapes.append(value.shape)
    if not copied:
        return None
    try:
        size = size_of(broadcast_all(shapes))
    except ValueError:
        return None  # the caller raises it
    return EXPORTED if size <= eager_limit(op) * options.eager_below else None


def write_to(outs: tuple[Any, ...]) -> Rule | None:
    """A call that writes to `outs`: at once where one of them is exported."""
    for x in outs:
        storage = x._storage if type(x) is ndarray else None
        if storage is not None and storage.exports is not None and storage.shared():
            return EXPORTED_TARGET
    return None


# ---------------------------------------------------------------------------------------- updates


def _target(self: ndarray) -> Rule | None:
    """An array that is written: at once whatever is written to it."""
    storage = self._storage
    if storage is None:
        return None
    if is_part_of_number(self):
        return PART_OF_NUMBER
    return EXPORTED_TARGET if storage.shared() else None


def update(op: Op, self: ndarray, other: Any) -> Rule | None:
    """An in-place operation on an array that is not eager."""
    if rule := _target(self) or operation(op, self, other):
        return rule
    if concrete_value(self) is None:
        return middling_update(op, self, (other,))
    if has_readers(self):
        return None
    return None if type(other) in OURS and concrete_value(other) is None else VALUES_THERE


def middling_update(op: Op, self: ndarray, operands: Sequence[Any]) -> Rule | None:
    """An update of a middling block: at once if all values exist, the old ones without readers."""
    storage = self._storage
    if storage is None or middling(storage) is None or storage.has_readers():
        return None
    if not op.is_exact(self._view.dtype):  # bits must not depend on what is evaluated already
        return None
    for x in operands:
        if type(x) is not ndarray:
            return None
        if x is not self and x._eager is None:
            node, other = x._node, x._storage
            if (node.value if node is not None else other and other.memory()) is None:
                return None
        if not op.is_exact(geometry(x).dtype):
            return None
    return MIDDLING_BLOCK


def middling(storage: Storage) -> Array | None:
    """The values of a block, if one NumPy operation on them takes less time than recording it."""
    flat = storage.memory()
    return flat if flat is not None and flat.size <= MIDDLING * options.eager_below else None


def for_update(op: Op, self: ndarray, other: Any, left: Array, right: Array) -> Rule | None:
    """A row and a column of one middling block, which probably go into an update of that block: at
    once. A recorded operation would read its present values, and the update need another block.
    """
    storage = self._storage
    if storage is None or type(other) is not ndarray or other._storage is not storage:
        return None
    if not (op.is_exact(left.dtype) and op.is_exact(right.dtype)):
        return None
    flat = middling(storage)
    fits = flat is not None and size_of(broadcast(left.shape, right.shape)) <= flat.size
    return MIDDLING_BLOCK if fits else None


# ------------------------------------------------------------------------------------ assignments


def assignment(self: ndarray, region: Array, value: Any) -> Rule | None:
    """A write to a part of an array that is not eager: at once if the part is small, and recorded
    work does not read the old values. A pending array is evaluated where such writes are many.
    """
    if rule := _target(self):
        return rule
    if region.size >= options.eager_below:
        return None
    if type(value) in OURS and concrete_value(value) is None:
        return None
    storage = self._storage
    node = storage.node if storage is not None else self._node
    assert node is not None
    if node.value is None:
        if node.op is ops.FULL and node.resident is None:
            del node  # `has_readers` would count the local name
            _fill_now(self)
        elif not _is_write_loop(node):
            return None
        else:
            del node
            gather(self)
    else:
        del node
    return SMALL_WRITE if materialise(self) is not None or not has_readers(self) else None


def masked_items(self: ndarray, covered: tuple[int, ...]) -> Rule | None:
    """A write to the items of an array that a mask of this shape picks: at once if the mask is
    small, the values exist, and recorded work does not read them.
    """
    if size_of(covered) >= options.eager_below or has_readers(self):
        return None
    node = self._storage.node if self._storage is not None else self._node
    return SMALL_WRITE if node is not None and node.value is not None else None


def _fill_now(self: ndarray) -> None:
    """Give a constant array its memory, before it is written in small parts."""
    storage = self._storage
    node = storage.node if storage is not None else self._node
    assert node is not None
    number = node.src[0].value
    if number is None:
        gather(self)
        return
    shape = node.shape if node.perm is None else tuple([node.shape[axis] for axis in node.perm])
    plain = not number.tobytes().strip(b"\0")
    value = np.zeros(shape, node.dtype) if plain else np.full(shape, number, node.dtype)
    if node.perm is not None:
        value = value.transpose(np.argsort(node.perm))
    filled = leaf(value, node.perm)
    if storage is not None:
        storage.node = filled
    else:
        self._node = filled


def is_often_visited(storage: Storage, size: int) -> bool:
    """Whether a program that reads a part of that size of a pending block is in a loop: it has read
    many, or comes to the instruction of the user's that read the first one, of the same values.

    `storage.visits` holds the number of visits, above it what stands for instruction and values.
    """
    if size >= options.eager_below:
        return False
    frame = asking_frame()
    place = 0
    if frame is not None:
        place = 31 * (id(frame.f_code) >> 4) + 17 * (id(storage.node) >> 4) + frame.f_lasti
        place = place % PLACES * COUNTS
    visits = storage.visits
    if place and visits and visits - visits % COUNTS == place:
        return True
    storage.visits = visits + 1 if visits else place + 1
    return storage.visits % COUNTS > VISIT_LIMIT


def _is_write_loop(node: Node) -> bool:
    """Whether the last writes to a pending array were many and small."""
    for _ in range(WRITE_LIMIT):
        if node.op is not ops.UPDATE or size_of(node.arg.shape) >= options.eager_below:
            return False
        if is_evaluated(node):
            return True  # a rule for loops evaluated it between two such writes
        node = node.src[0]
    return True
