"""How reductions are divided among work-items and groups: arithmetic on sizes alone.

The division never depends on the device, so results are the same on all devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.lowering.chunks import Table
from lazyfuse.codegen.lowering.loop_nest import Loop
from lazyfuse.codegen.lowering.summation import left_half
from lazyfuse.codegen.opencl.grid_text import GridVariant, leaf_size
from lazyfuse.devices.dataclass import dataclass

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Sizes:
    """Settings that may suit a device; the rest follows from the sizes of arrays.

    `group`: work-items of a group, a power of two of at least 16. `groups`: how many a launch
    should have before a long reduction stays in one piece; fewer mean fewer partial results.
    `items`: work-items that columns should give work to before several share a column.
    `tree_depth`: the least and most leaves of a segment of a pairwise sum, as powers of two. The
    least is one for each eight lanes; the most is limited by local memory, of which all sums of a
    kernel get `local_bytes`. `stretch`: the least elements per lane in a piece of a reduction that
    may be cut anywhere; if it is very large there is no second pass.
    """

    group: int = 256
    groups: int = 1024
    items: int = 1 << 16
    tree_depth: tuple[int, int] = (5, 10)
    local_bytes: int = 16384
    stretch: int = 16


SIZES = Sizes()

# The least elements that each lane of a result combines.
SHORTEST_LANE = 4
# Neighbouring results that one access reads: a line of memory.
NEIGHBOURS = 16
# Columns of a chunk after the loop sizes: beginning, length, parts, levels.
EXTRA = 4


def volume(loops: Sequence[Loop]) -> int:
    """The number of iterations of nested loops."""
    return math.prod([loop.size for loop in loops])


def lanes_of(results: int, length: int, columns: bool) -> int:
    """How many work-items share a result; `columns`: neighbouring results are adjacent."""
    most = min(SIZES.group, _power(length // SHORTEST_LANE))
    if not columns:
        return most
    neighbours = min(NEIGHBOURS, 2 * _power(results - 1) if results > 1 else 1)
    return min(most, SIZES.group // neighbours, _power(-(-SIZES.items // results)))


def _power(limit: int) -> int:
    """The largest power of two that is not above a limit, at least 1."""
    return int(1 << max(limit, 1).bit_length() - 1)


def even_bounds(results: int, length: int, lanes: int) -> Array:
    """Segments of a reduction that may be cut anywhere: enough to give the groups work."""
    blocks = -(-results * lanes // SIZES.group)
    count = max(1, min(SIZES.groups // blocks, length // (lanes * SIZES.stretch)))
    return np.arange(count + 1, dtype=np.int64) * length // count


def tree_bounds(rows: int, total: int, complex_values: bool, itemsizes: int) -> Array:
    """Segments of a pairwise sum: all nodes of one depth, so that a regular tree joins them.

    `itemsizes`: bytes of one element of every sum of the kernel together.
    """
    leaf, least, most = leaf_size(complex_values), SIZES.tree_depth[0], _most_depth(itemsizes)
    nodes = [total]
    while max(nodes) > leaf << least:
        # NumPy halves every node that is cut here, since it is far longer than a leaf
        if max(nodes) <= leaf << most and rows * len(nodes) >= SIZES.groups:
            break
        halves = ((left_half(n, complex_values), n) for n in nodes)
        nodes = [part for left, n in halves for part in (left, n - left)]
    return np.cumsum([0, *nodes], dtype=np.int64)


def _most_depth(itemsizes: int) -> int:
    """The most levels of a tree whose leaves' sums fit into local memory."""
    least, most = SIZES.tree_depth
    while most > least and itemsizes << most > SIZES.local_bytes:
        most -= 1
    return most


def room_of(depth: int, itemsizes: int) -> int:
    """The number of levels that a text has room for: one text serves all long segments."""
    return depth if depth < SIZES.tree_depth[0] else max(depth, _most_depth(itemsizes))


def depth_of(longest: int, complex_values: bool) -> int:
    """Levels of a tree above its leaves, where nodes of that depth are at most two leaves."""
    depth = 0
    while leaf_size(complex_values) << depth < longest:
        depth += 1
    return depth


def _parts(length: int, depth: int, complex_values: bool) -> int:
    """Whether some node at the depth of the leaves is still two leaves: right nodes are longest."""
    leaf = leaf_size(complex_values)
    for _ in range(depth):
        if length > leaf:
            length -= left_half(length, complex_values)
    return 2 if length > leaf else 1


def stretch_table(
    loops: Sequence[Loop],
    form: GridVariant,
    bounds: Array,
    arrays: int,
    partials: range,
    has_index: bool,
) -> Table:
    """One chunk per segment.

    `partials`: the arrays with separate segments; elements of one segment lie together. With
    `has_index`, the operand after the arrays is the position that argmin and argmax report.
    """
    count = len(bounds) - 1
    lengths = np.diff(bounds)
    levels = depth_of(int(lengths.max()), form.complex_tree)
    parts = {int(n): _parts(int(n), levels, form.complex_tree) for n in np.unique(lengths)}
    columns = [np.full(count, loop.size) for loop in loops]
    columns += [bounds[:-1], lengths, np.array([parts[int(n)] for n in lengths])]
    columns += [np.full(count, levels)]
    if has_index:
        columns += [np.full(count, loop.strides[arrays]) for loop in loops[form.outer :]]
    sizes = np.stack(columns, axis=1).astype(np.int64)
    offsets = np.zeros((count, arrays), dtype=np.int64)
    step = volume(loops[: form.outer])
    for k in partials:
        offsets[:, k] = np.arange(count) * step
    padding = (0,) * (sizes.shape[1] - len(loops))
    strides = tuple(tuple(loop.strides[k] for loop in loops) + padding for k in range(arrays))
    return Table(np.ascontiguousarray(sizes), offsets, strides)
