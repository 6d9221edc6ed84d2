"""Which operations NumPy does at once since an operand would otherwise have to be copied.

Owns the rule for memory that somebody outside may change at any time: recorded work has to read
a copy of it, made where it is recorded. One exact operation takes no longer than that copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from lazyfuse import array, errstate, hardware
from lazyfuse.array import CANONICAL, OURS, ndarray, options
from lazyfuse.beside import PLAIN
from lazyfuse.codegen.op import Op
from lazyfuse.codegen.shapes import broadcast_all, size_of

LARGEST = 32
"""Times `eager_below`: elements of a result up to which that pays, with room for two threads."""

_KEEPING = frozenset(("add", "subtract", "multiply", "divide"))
"""Operators that keep these dtypes, beside a number or an array of the same one."""
_FLOATS = (np.dtype("f4"), np.dtype("f8"))


def _uncounted(name: str, frame: FrameType | None) -> None:
    """Before fallback.py is there."""


count: Callable[[str, FrameType | None], None] = _uncounted  # fallback.py puts the real one here


def runs_now(op: Op, *operands: Any) -> bool:
    """Whether an operator is NumPy's at once: for the error state, or to spare a copy."""
    if not array.ERRSTATE_PLAIN and errstate.must_run_at_once():
        return True
    if not spares_copy(op, operands):
        return False
    count(op.name, sys._getframe(1))
    return True


def spares_copy(op: Op, operands: tuple[Any, ...] | list[Any]) -> bool:
    """Whether an exact elementwise operation, done at once, spares copying an operand of some
    size; all values are there, and the result is of middling size.
    """
    for x in operands:  # most have no such operand
        if type(x) is np.ndarray:
            break
        if type(x) is ndarray and (storage := x._storage) is not None and storage.roots is not None:
            break
    else:
        return False
    if options.device not in ("", "auto", "cpu"):
        return False
    copied = False
    shapes: list[tuple[int, ...]] = []
    for x in operands:
        kind = type(x)
        if kind in PLAIN:
            continue
        seen = kind is np.ndarray
        value = x if seen else None
        if kind in OURS:
            node, storage = x._node, x._storage
            if node is not None:
                value = None if node.resident is not None else node.value
            elif storage is None:
                value = x._small
            elif storage.node.value is not None and storage.node.resident is None:
                value = x._view  # for its geometry alone
                seen = storage.shared()
        if value is None or not _is_exact(op, value.dtype, not shapes):
            return False
        copied |= seen and value.size >= options.eager_below
        shapes.append(value.shape)
    if not copied:
        return False
    try:
        return size_of(broadcast_all(shapes)) <= LARGEST * options.eager_below
    except ValueError:
        return False  # the caller raises it


def pooled(spec: Any, self: Any, other: Any, swapped: bool) -> Any:
    """An operator (see `operators.Spec`) in NumPy; large results of the commonest kinds lie in
    memory that was used before: new pages cost more than the arithmetic.
    """
    first, second = (other, self) if swapped else (self, other)
    op: Op = spec.op
    model, other = (first, second) if type(first) is np.ndarray else (second, first)
    if op.name in _KEEPING and type(model) is np.ndarray and model.size >= options.eager_below > 1:
        alike = type(other) in (float, int) or (
            type(other) is np.ndarray
            and other.dtype == model.dtype
            and other.shape == model.shape
            and other.flags.c_contiguous
        )
        if alike and model.dtype in _FLOATS and model.flags.c_contiguous and op.ufunc is not None:
            return op.ufunc(first, second, hardware.cpu().empty(model.shape, model.dtype))
    return spec.function(first, second)


def _is_exact(op: Op, dtype: np.dtype[Any], first: bool) -> bool:
    """Whether an operation gives the same bits wherever it runs, with an operand of that dtype."""
    if dtype not in CANONICAL:
        return False
    if op.name == "where" and not first:
        return True  # only chosen
    return op.is_exact(dtype) or (dtype.kind in "biu" and "f" in op.exact)
