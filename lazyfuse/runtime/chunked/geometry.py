"""Chunk grids and boxes, and those of the base of a view.

A box is a part of an array: the first index and the end on each axis. Boxes of many chunks at once
are two integer arrays of shape (chunks, rank), so that what a graph demands of its sources is
computed for all chunks together. Owns no state; knows layouts, not nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.codegen.graph.moves import AxisMap
from lazyfuse.codegen.graph.node import Layout, Shape
from lazyfuse.codegen.graph.shapes import contiguous_strides, size_of
from lazyfuse.devices.caches import cached

Chunks = tuple[tuple[int, ...], ...]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Perm = tuple[int, ...] | None


class Boxes(NamedTuple):
    """One box for each task: first indices and ends, of shape (tasks, rank)."""

    low: Ints
    high: Ints

    @property
    def shapes(self) -> Ints:
        """The shapes of the boxes."""
        return self.high - self.low

    def same(self, other: Boxes) -> bool:
        """Whether all boxes are equal."""
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def volume(self) -> int:
        """The elements of all boxes."""
        return int(self.shapes.prod(axis=1).sum())


class Grid:
    """How an array is cut into chunks: along each axis, the sizes one after the other."""

    __slots__ = ("bounds", "chunks", "counts", "shape")

    def __init__(self, chunks: Chunks) -> None:
        self.chunks = chunks
        self.shape: Shape = tuple([sum(sizes) for sizes in chunks])
        self.counts: Shape = tuple([len(sizes) for sizes in chunks])
        self.bounds = [np.cumsum((0, *sizes), dtype=np.int64) for sizes in chunks]

    def __len__(self) -> int:
        return size_of(self.counts)

    def boxes(self) -> Boxes:
        """The box of each chunk, in C order of the chunks."""
        if not self.counts:
            return Boxes(np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64))
        places = np.indices(self.counts).reshape(len(self.counts), -1)
        low = [bound[place] for bound, place in zip(self.bounds, places, strict=True)]
        high = [bound[place + 1] for bound, place in zip(self.bounds, places, strict=True)]
        return Boxes(np.stack(low, 1), np.stack(high, 1))

    def indices(self) -> itertools.product[tuple[int, ...]]:
        """The index of each chunk, in C order."""
        return itertools.product(*map(range, self.counts))

    def touched(self, low: Sequence[int], high: Sequence[int]) -> list[range]:
        """Along each axis, the chunks that a box meets."""
        found = []
        for bound, first, end in zip(self.bounds, low, high, strict=True):
            begin = int(np.searchsorted(bound, first, "right")) - 1
            found.append(range(begin, int(np.searchsorted(bound, end, "left"))))
        return found

    def whole(self, axes: Sequence[int]) -> Grid:
        """The grid with some axes in one chunk each."""
        return Grid(
            tuple(
                [(sum(sizes),) if axis in axes else sizes for axis, sizes in enumerate(self.chunks)]
            )
        )


class Run(NamedTuple):
    """Axes `ours` of a base that a reshape turns into axes `theirs`.

    `lead`, `head`: the first long axis of each side, `row`, `width` the elements behind one index
    there, `start` the element of the base at which the view begins.
    """

    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    lead: int
    head: int
    row: int
    width: int
    start: int


@cached(4096)
def reshape_runs(layout: Layout, shape: Shape, perm: Perm) -> tuple[Run, ...] | None:
    """A view of elements that lie one after the other in C order, in another shape; else None."""
    new, size = layout.shape, size_of(layout.shape)
    if perm is not None or not size:
        return None
    packed = contiguous_strides(new)
    if any(n > 1 and a != b for n, a, b in zip(new, layout.strides, packed, strict=True)):
        return None
    lead = next((axis for axis, length in enumerate(shape) if length > 1), len(shape))
    row = size_of(shape[lead + 1 :])
    if lead == len(shape):
        return ()
    if layout.offset % row or size % row:
        groups = [(list(range(len(shape))), list(range(len(new))))]
    else:
        groups = reshape_groups((*(1,) * lead, size // row, *shape[lead + 1 :]), new)
    found = []
    for ours, theirs in groups:
        first = next((axis for axis in ours if shape[axis] > 1), None)
        head = next((axis for axis in theirs if new[axis] > 1), -1)
        if first is not None:
            inner = size_of(tuple([shape[axis] for axis in ours if axis > first]))
            width = (
                size_of(tuple([new[axis] for axis in theirs if axis > head])) if head >= 0 else 1
            )
            start = layout.offset // (size_of(shape[ours[-1] + 1 :])) if first == lead else 0
            found.append(Run(tuple(ours), tuple(theirs), first, head, inner, width, start))
    return tuple(found)


def reshape_groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Runs of axes that a reshape turns into each other: as few axes as possible in each."""
    groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        ours, theirs = [i] if i < len(old) else [], [j] if j < len(new) else []
        first, second = (
            size_of(tuple([old[a] for a in ours])),
            size_of(tuple([new[a] for a in theirs])),
        )
        i, j = i + len(ours), j + len(theirs)
        while first != second:
            if first < second:
                ours.append(i)
                first, i = first * old[i], i + 1
            else:
                theirs.append(j)
                second, j = second * new[j], j + 1
        groups.append((ours, theirs))
    return groups


def reshaped_grid(grid: Grid, runs: Sequence[Run], new: Shape) -> Grid:
    """Chunks of a reshaped array that need few chunks of the old one.

    In each run of axes only the first long one is cut; where the cut of the old array falls between
    rows of the new one, the new chunk ends before it.
    """
    chunks: dict[int, tuple[int, ...]] = {axis: (size,) for axis, size in enumerate(new)}
    for run in runs:
        if run.head >= 0:
            ends = {0, new[run.head]}
            for bound in grid.bounds[run.lead].tolist():
                end = (bound * run.row - run.start) // run.width
                ends.add(min(max(end, 0), new[run.head]))
            chunks[run.head] = tuple([b - a for a, b in itertools.pairwise(sorted(ends))])
    return Grid(tuple([chunks[axis] for axis in range(len(new))]))


def through_maps(maps: Sequence[AxisMap], boxes: Boxes) -> Boxes:
    """The boxes of the base that boxes of a view read."""
    tasks = len(boxes.low)
    low = np.empty((tasks, len(maps)), np.int64)
    high = np.empty_like(low)
    for axis, (start, steps) in enumerate(maps):
        first = np.full(tasks, start, np.int64)
        last = first.copy()
        for window_axis, step in steps:
            begin, end = boxes.low[:, window_axis], boxes.high[:, window_axis] - 1
            first += step * (begin if step > 0 else end)
            last += step * (end if step > 0 else begin)
        low[:, axis], high[:, axis] = first, last + 1
    return Boxes(low, high)


def broadcast_box(boxes: Boxes, shape: Shape) -> Boxes:
    """The boxes of an operand of this shape, broadcast against a result with such boxes."""
    skipped = boxes.low.shape[1] - len(shape)
    low, high = boxes.low[:, skipped:].copy(), boxes.high[:, skipped:].copy()
    for axis, size in enumerate(shape):
        if size == 1:
            low[:, axis], high[:, axis] = 0, 1
    return Boxes(low, high)
