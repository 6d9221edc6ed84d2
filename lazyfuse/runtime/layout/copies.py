"""Parts of a run's blocks, and copies from one to another without an array in between.

Owns `BlockPart`, by which a replay finds arrays again (replay.py), and `Copy`. Knows addresses and
numpy arrays.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.shapes import crosses_itself
from lazyfuse.codegen.plan.lifetimes import safe_source
from lazyfuse.runtime.layout.meta_arrays import Array, address

native: Any = None
"""The module in C whose `copy` is used (native/launch.c); None: NumPy copies."""


def use(module: Any) -> None:
    """Copy by this C module from now on; None: by the text here."""
    global native
    native = module


RANK = 8
"""Axes that the C module knows at most."""

DISJOINT = 1 << 40
"""Says to the C module, beside the item, that two parts of one block have no element in common."""

_WORK = 1000  # for the question whether they have: it may be hard

_BASE = 16
_everything: Any = (ctypes.c_char * (1 << 62)).from_address(_BASE)


@dataclass(frozen=True, slots=True)
class BlockPart:
    """An array as a part of one of the run's blocks."""

    root: int
    offset: int  # bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    def at(self, addresses: Sequence[int]) -> Array:
        """The array, for use while its block is held."""
        start = addresses[self.root] + self.offset - _BASE
        return np.ndarray(self.shape, self.dtype, _everything, start, self.strides)

    def held(self, roots: Sequence[Array], addresses: Sequence[int]) -> Array:
        """The array, keeping its block: a function may keep what it is given."""
        root = roots[self.root]
        start = addresses[self.root] + self.offset - address(root)
        return np.ndarray(self.shape, self.dtype, root, start, self.strides)

    def of(self, root: Array) -> Array:
        """The array, keeping its block."""
        same = not self.offset and root.shape == self.shape and root.strides == self.strides
        if same and root.dtype == self.dtype:
            return root
        return np.ndarray(self.shape, self.dtype, root, self.offset, self.strides)


@dataclass(frozen=True, slots=True)
class Copy:
    """Elements that go from one part to another."""

    target: BlockPart
    source: BlockPart
    how: bytes  # for the C module; empty: for NumPy

    def play(self, addresses: Sequence[int]) -> None:
        """Copy them. Where the two meet, NumPy makes a copy first."""
        target, source = self.target, self.source
        if self.how and native is not None:
            start = addresses[target.root] + target.offset
            if native.copy(start, addresses[source.root] + source.offset, self.how):
                return
        to = target.at(addresses)
        np.copyto(to, safe_source(to, source.at(addresses)))


def copy_of(target: BlockPart, source: BlockPart) -> Copy:
    """A copy, as numbers where it needs neither a conversion nor an order of writing."""
    shape, dtype = target.shape, target.dtype
    same = source.shape == shape and source.dtype == dtype and dtype.kind in "biufc"
    plain = same and dtype.isnative and len(shape) <= RANK and 0 not in shape
    if not plain or crosses_itself(shape, target.strides):
        return Copy(target, source, b"")
    item = dtype.itemsize | (DISJOINT if _are_disjoint(target, source) else 0)
    numbers = (item, len(shape), *shape, *target.strides, *source.strides)
    return Copy(target, source, struct.pack(f"{len(numbers)}q", *numbers))


def _are_disjoint(target: BlockPart, source: BlockPart) -> bool:
    """Whether two parts of one block have no element in common."""
    if target.root != source.root:
        return False  # where one block lies to another is not known
    addresses = {target.root: 1 << 40}
    meets: Any = np.shares_memory  # its annotations know two values of `max_work`
    parts = [part.at(addresses) for part in (target, source)]  # type: ignore[arg-type]
    try:
        return not meets(*parts, max_work=_WORK)
    except np.exceptions.TooHardError:
        return False
