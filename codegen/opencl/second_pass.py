"""The second pass of reductions, on the device: partial results to results, in a fixed order.

Owns `second_pass`, which does what `Combination.run` (combine_partials.py) does with NumPy, as a
separate kernel whose inputs are the partial results. The segments of a pairwise sum are all
nodes of one depth of NumPy's tree (grid_sizes.py), so neighbours are joined level by level.
Sequential additions keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.lowering.combine_partials import Combination
from lazyfuse.codegen.lowering.kernel import Kernel, Reduce, is_argument, is_ordered
from lazyfuse.codegen.lowering.loop_nest import Loop, whole
from lazyfuse.codegen.lowering.variant import program_arrays
from lazyfuse.codegen.opencl.grid_lowered import Second, is_wide, memoised
from lazyfuse.codegen.opencl.grid_rows import ReductionPrinter
from lazyfuse.codegen.opencl.grid_sizes import SIZES, lanes_of, stretch_table, volume
from lazyfuse.codegen.opencl.grid_text import GridVariant
from lazyfuse.devices.base import Launch, Source

Array = np.ndarray[Any, np.dtype[Any]]


def second_pass(kernel: Kernel, combination: Combination, stretches: int) -> Second:
    """The program that combines partial results, and how to launch it on the caller's arrays."""
    joining = _joining(kernel, len(combination.sizes))
    loops, outer = _loops(combination, stretches)
    form = _form(joining, combination, stretches, loops, outer)
    arrays = program_arrays(joining)
    length = volume(loops[outer:])
    bounds = np.array([0, length], dtype=np.int64)
    table = stretch_table(loops, form, bounds, len(arrays), range(0), False)
    teams = form.group // form.lanes
    tasks = -(-volume(loops[:outer]) // teams)
    slots = _slots(combination)
    elements = volume(loops)

    def launch(given: Sequence[Array]) -> Launch:
        chosen = tuple([given[slot] for slot in slots])
        return Launch(chosen, table.strides, (), table.sizes, table.offsets, elements, tasks)

    return memoised(joining, form, _print), launch


def _joining(kernel: Kernel, rank: int) -> Kernel:
    """The kernel over partial results: a value for each reduction, then the positions."""
    reductions = kernel.reductions
    values = tuple(each.accumulator for each in reductions)
    positions = tuple(each.dtype for each in reductions if is_argument(each))
    joins = tuple(
        Reduce(each.op, r, each.accumulator, each.dtype) for r, each in enumerate(reductions)
    )
    return Kernel(1 + rank, values + positions, (), (), (), joins, (True,) + (False,) * rank)


def _slots(combination: Combination) -> tuple[int, ...]:
    """The caller's arrays in the order of the program: what it reads, then what it writes.

    No result holds the values of argmin and argmax: these stay with the first partial results.
    """
    results = combination.results
    arguments = [each for each in results if is_argument(each.reduction)]
    values = [each.value if is_argument(each.reduction) else each.partial for each in results]
    positions = [each.partial for each in arguments]
    outputs = [each.output for each in results]
    return tuple(values + positions + outputs + [each.value for each in arguments])


def _loops(combination: Combination, stretches: int) -> tuple[list[Loop], int]:
    """Loops over results, then over partial results in order; and the number of the former."""
    results = combination.results
    arguments = sum(is_argument(each.reduction) for each in results)
    inputs = len(results) + arguments
    kept: list[Loop] = []
    slow: list[Loop] = []
    step = 1
    place = sum(not flag for flag in combination.reduced)
    for at in reversed(range(len(combination.sizes))):
        is_slow = combination.reduced[at]
        place -= not is_slow
        targets = [0 if is_slow else each.strides[place] for each in results]
        found = [0 if is_slow else step] * arguments
        strides = (*[step] * inputs, *targets, *found)
        loop = Loop(combination.sizes[at], is_slow, strides)
        (slow if is_slow else kept).insert(0, loop)
        step *= loop.size
    last = Loop(stretches, True, (step,) * inputs + (0,) * (len(results) + arguments))
    return [*kept, *slow, last], len(kept)


def _form(
    joining: Kernel, combination: Combination, stretches: int, loops: list[Loop], outer: int
) -> GridVariant:
    is_tree = stretches > 1 and bool(combination.blocks) and not combination.blocks[-1]
    ordered = "joined" if is_tree else "chain"
    methods = tuple(ordered if is_ordered(each) else "free" for each in joining.reductions)
    results, length = volume(loops[:outer]), volume(loops[outer:])
    columns = results > 1 and not is_tree
    lanes = min(SIZES.group, stretches) if is_tree else lanes_of(results, length, columns)
    nest = whole(loops, (0,) * len(loops[0].strides))
    arrays = len(program_arrays(joining))
    classes = "s" * arrays
    return GridVariant(
        "reduce",
        outer,
        len(loops) - outer,
        classes,
        SIZES.group,
        is_wide(nest, results * length),
        lanes=lanes,
        interleaved=columns and lanes > 1,
        methods=methods,
        depth=stretches.bit_length() - 1 if is_tree else 0,
    )


def _print(kernel: Kernel, form: GridVariant) -> Source:
    printer = _Printer(kernel, form)
    printer.entry()
    return printer.source(printer.rank)


class _Printer(ReductionPrinter):
    """The printer of reductions, except that positions are read instead of counted."""

    def counts_positions(self) -> bool:
        return False

    def where(self, r: int) -> str:
        before = sum(is_argument(each) for each in self.kernel.reductions[:r])
        return f"h{len(self.kernel.reductions) + before}"
