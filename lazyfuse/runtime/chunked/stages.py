"""A recorded graph as stages: what is computed in one task for each chunk.

A stage ends where a result needs several chunks (a reduction across them, a product, a reshape), or
where the program wants a value. Everything between two ends is fused: it is computed where it is
needed, never stored. Owns `Plan`, which finds the ends, their grids and their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from lazyfuse.codegen.graph.moves import AxisMap, axis_maps
from lazyfuse.codegen.graph.node import Node, Reduction, topological
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.chunked.demand import Unchunkable, axis_of, is_whole, view_maps, window_maps
from lazyfuse.runtime.chunked.geometry import (
    Chunks,
    Grid,
    reshape_runs,
    reshaped_grid,
)
from lazyfuse.runtime.chunked.recipe import Partial
from lazyfuse.runtime.placement.residency import is_pending

LITERAL = 1 << 20  # bytes of host arrays that travel to workers whole
COSTLY = 40.0  # additions for each element above which a shared value is stored if there is room


@dataclass(eq=False)
class End:
    """A value that a stage computes. `grid`: the chunks of what its tasks go through.

    For a reduction (`partial`) that is its operand, else the value itself.
    """

    node: Node
    grid: Grid
    partial: Partial | None
    level: int = 0

    @property
    def is_open(self) -> bool:
        """Whether tasks that compute it may go on with it."""
        return (
            self.partial is None
            and self.node.op.kind != "contract"
            and not (self.node.op.kind == "view" and not is_sliced(self.node))
        )


class Plan:
    """The stages of the graph below `roots`.

    `grid_of` gives the chunks of an evaluated node, None if it is on the host. `default` cuts an
    array that nothing else cuts. `forced`: the chunks of some nodes, by id.
    """

    def __init__(
        self,
        roots: Sequence[Node],
        grid_of: Callable[[Node], Grid | None],
        default: Callable[[tuple[int, ...], np.dtype[Any]], Grid],
        fits: Callable[[int], bool],
        forced: Mapping[int, Grid] = MappingProxyType({}),
    ) -> None:
        self.forced = forced
        self.order = topological(roots)
        self.roots = {id(node) for node in roots}
        self.grid_of = grid_of
        self.default = default
        self.grids: dict[int, Grid | None] = {}
        self.weights: dict[int, int] = {}  # elements behind the grid of a node
        self.ends: dict[int, End] = {}
        self.costs: dict[int, float] = {}
        stored: set[int] = set()
        self._find(stored)
        for _ in range(4):  # storing one value changes what others share
            shared = self._shared(fits)
            if not shared - stored:
                break
            stored |= shared
            self._find(stored)

    def stages(self) -> list[list[End]]:
        """The ends in the order in which they are computed; those of one stage share tasks."""
        groups: dict[Any, list[End]] = {}
        for node in self.order:
            end = self.ends.get(id(node))
            if end is not None:
                alone = id(node) if node.op.kind == "contract" else 0
                groups.setdefault((end.level, end.grid.chunks, alone), []).append(end)
        return [groups[key] for key in sorted(groups, key=lambda key: key[0])]

    # ------------------------------------------------------------------------ ends and grids

    def _find(self, stored: set[int]) -> None:
        self.ends.clear()
        # by chunks the level of ends that a stage with the same chunks may take part in; by None
        # the level that has to be complete
        levels: dict[int, dict[Chunks | None, int]] = {}
        products = {
            id(source)
            for node in self.order
            if is_pending(node) and node.op.kind == "contract"
            for source in node.src
        }
        for node in self.order:
            key = id(node)
            if not is_pending(node):
                self.grids[key] = grid = self.grid_of(node)
                self.weights[key] = 0 if grid is None else size_of(node.shape)
                levels[key] = {None: 0}
                self.costs[key] = 0.0
                continue
            self._place(node)
            own = 8.0 if node.op.kind == "host" else node.op.cost
            below = [0.0 if id(each) in self.ends else self.costs[id(each)] for each in node.src]
            self.costs[key] = own + sum(below)
            reached: dict[Chunks | None, int] = {}
            for each in node.src:
                for chunks, level in levels[id(each)].items():
                    reached[chunks] = max(level, reached.get(chunks, 0))
            end = self._end(node, key in self.roots or key in products or key in stored)
            if end is not None:
                self.ends[key] = end
                own_chunks = end.grid.chunks
                end.level = max([n + (at != own_chunks) for at, n in reached.items()], default=1)
                end.level = max(end.level, 1)
                reached = {own_chunks if end.is_open else None: end.level}
            levels[key] = reached

    def _place(self, node: Node) -> None:
        """The grid of a pending node, from those of its sources."""
        key = id(node)
        sources = [each for each in node.src if self.grids.get(id(each)) is not None]
        self.weights[key] = max([self.weights[id(each)] for each in sources], default=0)
        self.grids[key] = self._grid(node) if sources and size_of(node.shape) else None
        if key in self.forced:
            self.grids[key] = self.forced[key]

    def _grid(self, node: Node) -> Grid | None:
        kind = node.op.kind
        if kind == "map" or kind == "source":
            return self._mapped(node)
        if kind == "update":
            return self._updated(node)
        if kind == "contract":
            return self._product(node)
        grid = self.grids[id(node.src[0])]
        if grid is None:
            return None
        if kind == "view":
            maps = axis_maps(node.arg, node.src[0].shape, node.src[0].perm)
            if maps is not None:
                return _viewed(grid, maps, node.shape)
            runs = reshape_runs(node.arg, node.src[0].shape, node.src[0].perm)
            return None if runs is None else reshaped_grid(grid, runs, node.shape)
        if kind == "reduce":
            return _reduced(grid, node.arg)
        return grid.whole((axis_of(node),))

    def _mapped(self, node: Node) -> Grid | None:
        """Along each axis the chunks of the operand with most elements behind it."""
        chunks: list[tuple[int, ...]] = [(size,) for size in node.shape]
        ranked = sorted(node.src, key=lambda each: self.weights[id(each)])
        for each in ranked:
            grid = self.grids[id(each)]
            skipped = len(node.shape) - len(each.shape)
            if grid is not None:
                for axis, sizes in enumerate(grid.chunks, skipped):
                    if sum(sizes) == node.shape[axis] and (len(sizes) > 1 or sum(sizes) > 1):
                        chunks[axis] = sizes
        return Grid(tuple(chunks))

    def _updated(self, node: Node) -> Grid | None:
        old, value = (self.grids[id(each)] for each in node.src)
        if old is not None:
            return old
        if value is None:
            return None
        # an array that is put together of parts is cut where the parts are cut
        cuts = [{0, size} for size in node.shape]
        for axis, (start, steps) in enumerate(window_maps(node)):
            for place, step in steps:
                at = place - (len(node.arg.shape) - len(value.shape))
                bounds = value.bounds[at] if at >= 0 else np.array([0, node.arg.shape[place]])
                cuts[axis] |= (
                    {int(start + step * b) for b in bounds.tolist()} if step > 0 else set()
                )
        return Grid(
            tuple([_between(each, size) for each, size in zip(cuts, node.shape, strict=True)])
        )

    def _product(self, node: Node) -> Grid | None:
        first, second = node.src
        chunks: list[tuple[int, ...]] = [(size,) for size in node.shape]
        rows, columns = len(first.shape) > 1, len(second.shape) > 1
        for each, axis, place in (
            (first, -2, len(node.shape) - (2 if columns else 1)) if rows else (first, None, 0),
            (second, -1, len(node.shape) - 1) if columns else (second, None, 0),
        ):
            grid = self.grids[id(each)]
            if grid is not None and axis is not None:
                chunks[place] = grid.chunks[axis]
        for each in (second, first):
            grid = self.grids[id(each)]
            batch = each.shape[:-2]
            if grid is not None:
                for axis, size in enumerate(batch):
                    place = len(node.shape) - rows - columns - len(batch) + axis
                    if size == node.shape[place]:
                        chunks[place] = grid.chunks[axis]
        return Grid(tuple(chunks))

    def _end(self, node: Node, wanted: bool) -> End | None:
        """The end of a stage at this node, if one is there."""
        kind = node.op.kind
        grid = self.grids[id(node)]
        if kind == "reduce":
            below = self.grids[id(node.src[0])]
            if below is not None and any(below.counts[axis] > 1 for axis in node.arg.axes):
                if node.op.reorderable:
                    return End(node, below, Partial(node.op, node.arg, node.src[0].shape))
                wanted = True
        if grid is None:
            if not wanted and kind != "contract":  # a product is no part of a task of others
                return None
            grid = self.default(node.shape, node.dtype)
        if kind == "contract":
            return End(node, grid, None)
        if kind == "view" and not is_sliced(node):
            if not is_whole(node):
                view_maps(node)  # raises
            wanted = True
        if kind == "host" and self.grids[id(node.src[0])] is not None:
            below = self.grids[id(node.src[0])]
            wanted = wanted or (below is not None and below.counts[axis_of(node)] > 1)
        return End(node, grid, None) if wanted else None

    # --------------------------------------------------------------- values of several stages

    def _shared(self, fits: Callable[[int], bool]) -> set[int]:
        """Costly values that several stages would compute, if there is room to store them."""
        number = {id(end.node): at for at, stage in enumerate(self.stages()) for end in stage}
        readers: dict[int, set[int]] = {}
        for node in reversed(self.order):
            if not is_pending(node):
                continue
            mine = {number[id(node)]} if id(node) in number else readers.get(id(node), set())
            for each in node.src:
                readers.setdefault(id(each), set()).update(mine)
        found: set[int] = set()
        for node in reversed(self.order):
            key = id(node)
            if key in self.ends or not is_pending(node) or len(readers.get(key, ())) < 2:
                continue
            size = size_of(node.shape) * node.dtype.itemsize
            above = any(
                readers.get(id(other)) == readers[key]
                for other in self.order
                if key in {id(each) for each in other.src} and id(other) not in self.ends
            )
            if (
                not above
                and self.costs[key] >= COSTLY
                and self.grids[key] is not None
                and fits(size)
            ):
                found.add(key)
        return found


def is_sliced(node: Node) -> bool:
    """Whether a view is made of slices and transposes."""
    return axis_maps(node.arg, node.src[0].shape, node.src[0].perm) is not None


_ALONG_AXES = {
    np.sort, np.argsort, np.partition, np.argpartition, np.cumsum, np.cumprod,
    np.fft.fft, np.fft.ifft,
}  # fmt: skip
"""NumPy's functions that work along one axis, and give as many elements as they get."""


def along_an_axis(node: Node) -> bool:
    """Whether a host call is one of a chunk, whole along an axis."""
    function: Any = node.arg.function
    named = getattr(function, "keywords", {})
    if getattr(function, "func", None) not in _ALONG_AXES or function.args:
        return False
    rank = len(node.src[0].shape)
    axis = named.get("axis", -1)
    return node.src[0].shape == node.shape and rank > 0 and (axis is not None or rank == 1)


def _between(cuts: set[int], size: int) -> tuple[int, ...]:
    ends = sorted(cut for cut in cuts if 0 <= cut <= size)
    return tuple([b - a for a, b in itertools.pairwise(ends)]) or (0,)


def _viewed(grid: Grid, maps: Sequence[AxisMap], shape: tuple[int, ...]) -> Grid:
    """The chunks of a view: cut where its base is cut."""
    cuts: list[set[int]] = [{0, size} for size in shape]
    for axis, (start, steps) in enumerate(maps):
        if len(steps) != 1:
            continue
        place, step = steps[0]
        for bound in grid.bounds[axis].tolist():
            at = -((start - bound) // step) if step > 0 else (start - bound) // -step + 1
            cuts[place].add(min(max(at, 0), shape[place]))
    chunks: Chunks = tuple([_between(each, size) for each, size in zip(cuts, shape, strict=True)])
    return Grid(chunks)


def _reduced(grid: Grid, arg: Reduction) -> Grid:
    kept = []
    for axis, sizes in enumerate(grid.chunks):
        if axis not in arg.axes:
            kept.append(sizes)
        elif arg.keepdims:
            kept.append((1,))
    return Grid(tuple(kept))


def kernel_name(nodes: Sequence[Node]) -> str:
    """A name for the tasks of a stage, from its operations: what Dask's dashboard shows."""
    names: list[str] = []
    for node in nodes:
        name = node.arg.name if node.op is ops.HOST else node.op.name.replace(".reduce", "")
        quiet = node.op.kind in ("view", "source") or name in ("cast", "copy")
        if is_pending(node) and not quiet and name not in names:
            names.append(name)
    return "-".join(names[:4]) + ("-more" if len(names) > 4 else "") if names else "chunks"


__all__ = ["LITERAL", "End", "Plan", "Unchunkable", "is_pending", "kernel_name"]
