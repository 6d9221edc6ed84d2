"""Level 2 for GPUs: how reductions share work-groups. Their text is in grid_rows.py.

Every reduction is results by elements: `lanes` work-items share a result, and the items of a group
share `group / lanes` results. Long reductions are cut into segments whose partial results a
second pass combines. Sums of floats keep NumPy's pairwise tree: eight lanes are its eight
accumulators, and a group sums whole subtrees. Ordered reductions without a tree keep their order:
lanes compute the elements side by side, and the first lane combines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from lazyfuse.codegen.lowering.combine_partials import Combination, combine_boxes, combine_stretches
from lazyfuse.codegen.lowering.kernel import Reduce, is_ordered
from lazyfuse.codegen.lowering.loop_nest import Ints, Loop, merge, whole
from lazyfuse.codegen.lowering.lower import Job, Lowered
from lazyfuse.codegen.lowering.variant import program_arrays
from lazyfuse.codegen.opencl.grid_lowered import GridLowered, is_wide, plain_form
from lazyfuse.codegen.opencl.grid_rows import print_reduction
from lazyfuse.codegen.opencl.grid_sizes import (
    SIZES,
    depth_of,
    even_bounds,
    lanes_of,
    room_of,
    stretch_table,
    tree_bounds,
    volume,
)
from lazyfuse.codegen.opencl.grid_text import LANGUAGE, GridVariant, tree_lanes
from lazyfuse.codegen.opencl.second_pass import second_pass
from lazyfuse.devices.dataclass import replace

Array = np.ndarray[Any, np.dtype[Any]]


class GridReductions(Job):
    """The decisions about reductions of one call of `lower_grid`."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        return program_arrays(self.kernel)

    def lower_tree(self, slow: Ints, run: Ints, block: int, ordered: Reduce) -> Lowered:
        """Pairwise sums over runs."""
        kernel = self.kernel
        outer = merge(self.axis_loops(slow, kernel.reduced)) if slow else []
        inner = merge(self.axis_loops(run, kernel.reduced))
        total = volume(inner)
        complex_values = ordered.accumulator[0] == "c"
        itemsizes = sum(int(r.accumulator[1:]) for r in kernel.reductions if is_ordered(r))
        if block:  # NumPy's buffer: one segment each
            bounds = np.append(np.arange(0, total, block, dtype=np.int64), total)
            blocks = list(range(len(bounds) - 1))
        else:
            bounds = tree_bounds(volume(outer), total, complex_values, itemsizes)
            blocks = [0] * (len(bounds) - 1)
        is_partial = len(blocks) > 1 or any(loop.reduced for loop in outer)
        shape = tuple(loop.size for loop in outer if is_partial or not loop.reduced)
        loops = self.with_targets(outer + inner, len(outer), is_partial, all_outer=True)
        depth = room_of(depth_of(int(np.diff(bounds).max()), complex_values), itemsizes)
        form = self.form(loops, len(outer), min(SIZES.group, tree_lanes(complex_values) << depth))
        form = replace(form, methods=self.methods("tree"), depth=depth, complex_tree=complex_values)
        combination = None
        if is_partial:
            shape = (len(blocks), *shape)
            stretches = np.diff(bounds).tolist(), blocks
            combination = combine_stretches(kernel, outer, stretches, self.partial_slots())
        return self.finished(loops, form, bounds, shape, combination)

    def lower_boxes(self, order: Sequence[int]) -> Lowered:
        """Reductions that run one after the other, or in any order."""
        kernel = self.kernel
        free = not any(is_ordered(each) for each in kernel.reductions)
        kept_axes = [axis for axis in order if not kernel.reduced[axis]]
        reduced_axes = [axis for axis in order if kernel.reduced[axis]]
        kept = merge(self.axis_loops(kept_axes, kernel.reduced)) if kept_axes else []
        inner = merge(self.axis_loops(reduced_axes, kernel.reduced))
        results, length = volume(kept), volume(inner)
        columns = bool(kept_axes) and not kernel.reduced[order[-1]]
        lanes = lanes_of(results, length, columns)
        bounds = np.array([0, length], dtype=np.int64)
        if free:
            bounds = even_bounds(results, length, lanes)
        is_partial = len(bounds) > 2
        shape = tuple(loop.size for loop in kept)
        loops = self.with_targets(kept + inner, len(kept), is_partial)
        form = self.form(loops, len(kept), lanes)
        form = replace(form, interleaved=columns and lanes > 1, methods=self.methods("chain"))
        combination = None
        if is_partial:
            shape = (len(bounds) - 1, *shape)
            combination = combine_boxes(kernel, kept, self.partial_slots())
        return self.finished(loops, form, bounds, shape, combination)

    def methods(self, ordered: str) -> tuple[str, ...]:
        return tuple(ordered if is_ordered(each) else "free" for each in self.kernel.reductions)

    def form(self, loops: list[Loop], outer: int, lanes: int) -> GridVariant:
        nest = whole(loops, (0,) * len(loops[0].strides))
        wide = is_wide(nest, self.elements)
        classes = self.classes(loops[-1])
        return GridVariant(
            "reduce", outer, len(loops) - outer, classes, SIZES.group, wide, lanes=lanes
        )

    def finished(
        self,
        loops: list[Loop],
        form: GridVariant,
        bounds: Array,
        shape: Ints,
        combination: Combination | None,
    ) -> Lowered:
        is_partial = combination is not None
        temporaries, slots = self.temporaries(shape, is_partial)
        arrays = len(self.dtypes)
        partials = range(self.first_target, arrays) if is_partial else range(0)
        table = partial(stretch_table, loops, form, bounds, arrays, partials, self.values > 0)
        blocks = -(-volume(loops[: form.outer]) // (form.group // form.lanes))
        finisher = None
        if combination is not None:
            finisher = cache(partial(second_pass, self.kernel, combination, len(bounds) - 1))
        return GridLowered(
            self.kernel,
            plain_form(form),
            temporaries,
            self.elements,
            slots,
            {LANGUAGE: table},
            combination,
            grid=form,
            tasks=blocks * (len(bounds) - 1),
            printer=print_reduction,
            finisher=finisher,
        )
