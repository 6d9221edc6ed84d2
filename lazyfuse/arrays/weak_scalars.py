"""Python's numbers beside arrays, as NumPy takes them: as arrays without axes, or as nodes.

Owns the types of plain numbers and the two caches.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lazyfuse.arrays.nodes import scalar_node
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import Node

WEAK: Final = frozenset((int, float, complex))
STRONG: Final[dict[Any, Any]] = {
    np.dtype(char).type: CANONICAL[np.dtype(char)] for char in "?bBhHiIlLqQefdgFDG"
}
PLAIN: Final[Any] = WEAK | {bool} | set(STRONG)
STRONG[bool] = np.dtype(bool)


NUMBERS_LIMIT: Final = 1024


class Numbers:
    """Python's numbers as NumPy takes them beside arrays of one dtype: as arrays without axes.

    NumPy makes such an array each time, for more than the operation itself takes. Kept are only
    those that are the same number in the dtype, so that no condition arises and nothing overflows.
    """

    __slots__ = ("dtype", "float_dtype", "floats", "highest", "ints", "largest", "lowest")

    def __init__(self, dtype: Any) -> None:
        self.dtype: Any = dtype
        self.floats: dict[Any, Any] = {}
        self.ints: dict[Any, Any] = {}
        kind = dtype.kind
        self.float_dtype: Any = np.dtype(np.float64) if kind in "iu" else dtype
        self.lowest: Any = 0
        self.highest: Any = 0
        self.largest: float = 0.0
        if kind in "iu":
            self.lowest, self.highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        else:
            about = np.finfo(dtype)
            self.highest = 2 ** (about.nmant + 1)
            self.lowest = -self.highest
        # a float beyond these may overflow or lose bits on its way into a narrower one
        narrow = self.float_dtype.char in "fF"
        self.largest = float(np.finfo(np.float32).max) if narrow else float("inf")

    def make(self, value: Any, kind: Any) -> Any:
        """The array for a number met for the first time; the number itself if none is kept."""
        if kind is float:
            if not value:
                return value  # zeros with either sign are equal keys
            if self.largest < float("inf") and not (1e-30 < abs(value) < self.largest):
                return value
            known, dtype = self.floats, self.float_dtype
        else:
            if not self.lowest <= value <= self.highest:
                return value
            known, dtype = self.ints, self.dtype
        if len(known) >= NUMBERS_LIMIT:
            known.clear()
        made = np.array(value, dtype)
        made.flags.writeable = False
        known[value] = made
        return made


NUMBERS: Final[dict[Any, Numbers]] = {
    np.dtype(char): Numbers(np.dtype(char)) for char in "bBhHiIlLfdFD"
}


def number(small: Any, value: Any, kind: Any) -> Any:
    """A float or int (`kind`) as NumPy would take it beside the array `small`."""
    dtype = small.dtype
    numbers = NUMBERS.get(dtype)
    if numbers is None or numbers.dtype is not dtype:
        return value
    found = (numbers.floats if kind is float else numbers.ints).get(value)
    return found if found is not None else numbers.make(value, kind)


CONSTANT_LIMIT: Final = 1024
CONSTANTS: Final[dict[Any, Node]] = {}
"""Nodes of numbers met before, by number and dtype."""


def constant(value: Any, dtype: Any) -> Node:
    """A node for a Python number, shared by equal ones (a sign of zero makes numbers unequal)."""
    if not value or type(value) is complex:
        return scalar_node(value, dtype)
    node = CONSTANTS.get((value, dtype))
    if node is None:
        if len(CONSTANTS) >= CONSTANT_LIMIT:
            CONSTANTS.clear()
        node = CONSTANTS[value, dtype] = scalar_node(value, dtype)
    return node
