"""The value of an array in chunks: keys of Dask tasks, or a place that blocks are read from.

Owns `Chunked`. Nothing here runs a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from lazyfuse.codegen.graph.node import Node
from lazyfuse.runtime.chunked.geometry import Boxes, Grid

Array = np.ndarray[Any, np.dtype[Any]]
Key = tuple[Any, ...]
Layers = dict[str, Mapping[Key, Any]]


class Source(Protocol):
    """Where blocks are read from, in any process: see lazyfuse/io/sources.py."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    description: str

    def read(self, box: tuple[slice, ...]) -> Array:
        """The part of the data in a box, packed in C order; it is never written."""


class Chunked:
    """An array in chunks. `layers` are Dask's: tasks by key, and `needs` the layers each reads.

    Its chunk `index` is the result of task `(name, *index)`, or its element `part`. With a `source`
    there are no tasks: any box can be read. `holds`: nodes whose host values the tasks read.
    """

    __slots__ = ("dtype", "grid", "holds", "layers", "name", "needs", "part", "source", "stored")

    def __init__(self, grid: Grid, dtype: np.dtype[Any], name: str) -> None:
        self.grid = grid
        self.dtype = dtype
        self.name = name
        self.part: int | None = None
        self.layers: Layers = {}
        self.needs: dict[str, set[str]] = {}
        self.source: Source | None = None
        self.holds: tuple[Node, ...] = ()
        self.stored = False  # whether the blocks are there, in this process or on workers

    def key(self, index: tuple[int, ...]) -> Key:
        """The key of the task that makes a chunk."""
        return (self.name, *index)

    def adopt(self, other: Chunked) -> None:
        """Let the tasks of this array read those of another."""
        self.layers.update(other.layers)
        self.needs.update(other.needs)
        needed = {other.name} if other.layers and other.name != self.name else set()
        self.needs[self.name] = self.needs.get(self.name, set()) | needed
        self.holds = (*self.holds, *[node for node in other.holds if node not in self.holds])


Piece = tuple[Key, int | None, tuple[slice, ...], tuple[slice, ...]]
"""Part of a box: a key, the element of its result, where it lies in that block and in the box."""


def pieces(value: Chunked, low: tuple[int, ...], high: tuple[int, ...]) -> list[Piece]:
    """The chunks that a box meets; in its single piece the slices may be all of the block."""
    grid = value.grid
    found: list[Piece] = [((value.name,), value.part, (), ())]
    for axis, places in enumerate(grid.touched(low, high)):
        bounds = grid.bounds[axis]
        along = []
        for place in places:
            begin, end = int(bounds[place]), int(bounds[place + 1])
            first, last = max(begin, low[axis]), min(end, high[axis])
            if last > first or begin == end:
                there = slice(first - begin, last - begin)
                along.append((place, there, slice(first - low[axis], last - low[axis])))
        found = [
            ((*key, place), part, (*there, one), (*here, other))
            for key, part, there, here in found
            for place, one, other in along
        ]
    return found


def slices_of(boxes: Boxes, task: int) -> tuple[slice, ...]:
    """One box as slices."""
    return tuple(map(slice, *box_of(boxes, task)))


def box_of(boxes: Boxes, task: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """One box as two tuples."""
    return tuple(boxes.low[task].tolist()), tuple(boxes.high[task].tolist())
