"""Parts of a run's blocks, and copies between them.

Owns `BlockPart`, from which a replay (replay.py) makes its arrays, and `Copy`. Knows addresses and
NumPy arrays.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.shapes import crosses_itself
from lazyfuse.codegen.plan.lifetimes import safe_source
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.layout.meta_arrays import Array, address

RANK = 8
"""The most axes that the C module supports."""

DISJOINT = 1 << 40
"""Flag for the C module, added to the item size: the two parts of one block are disjoint."""

_WORK = 1000  # limit for `numpy.shares_memory`, whose exact answer may take very long

_BASE = 16
_everything: Any = (ctypes.c_char * (1 << 62)).from_address(_BASE)


@dataclass(frozen=True)
class BlockPart:
    """An array as a part of one of the run's blocks."""

    root: int
    offset: int  # bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    def at(self, addresses: Sequence[int]) -> Array:
        """The array, for use while the caller keeps its block alive."""
        start = addresses[self.root] + self.offset - _BASE
        return np.ndarray(self.shape, self.dtype, _everything, start, self.strides)

    def held(self, roots: Sequence[Array], addresses: Sequence[int]) -> Array:
        """The array, keeping its block alive: a function that gets the array may keep it."""
        root = roots[self.root]
        start = addresses[self.root] + self.offset - address(root)
        return np.ndarray(self.shape, self.dtype, root, start, self.strides)

    def of(self, root: Array) -> Array:
        """The array as a view of its block, which it keeps alive."""
        same = not self.offset and root.shape == self.shape and root.strides == self.strides
        if same and root.dtype == self.dtype:
            return root
        return np.ndarray(self.shape, self.dtype, root, self.offset, self.strides)


@dataclass(frozen=True)
class Copy:
    """A copy of the elements of one part to another."""

    target: BlockPart
    source: BlockPart
    how: bytes  # for the C module; empty: for NumPy

    def play(self, addresses: Sequence[int]) -> None:
        """Copy the elements with NumPy. If the parts overlap, it copies the source first."""
        to = self.target.at(addresses)
        np.copyto(to, safe_source(to, self.source.at(addresses)))


def copy_of(target: BlockPart, source: BlockPart) -> Copy:
    """The copy; for the C module if it needs no conversion and the order of writes is free."""
    shape, dtype = target.shape, target.dtype
    same = source.shape == shape and source.dtype == dtype and dtype.kind in "biufc"
    plain = same and dtype.isnative and len(shape) <= RANK and 0 not in shape
    if not plain or crosses_itself(shape, target.strides):
        return Copy(target, source, b"")
    item = dtype.itemsize | (DISJOINT if _are_disjoint(target, source) else 0)
    numbers = (item, len(shape), *shape, *target.strides, *source.strides)
    return Copy(target, source, struct.pack(f"{len(numbers)}q", *numbers))


def _are_disjoint(target: BlockPart, source: BlockPart) -> bool:
    """Whether two parts of one block are known to have no element in common."""
    if target.root != source.root:
        return False  # the distance between two blocks is unknown
    addresses = {target.root: 1 << 40}
    meets: Any = np.shares_memory  # its annotations allow only two values of `max_work`
    parts = [part.at(addresses) for part in (target, source)]  # type: ignore[arg-type]
    try:
        return not meets(*parts, max_work=_WORK)
    except np.exceptions.TooHardError:
        return False
