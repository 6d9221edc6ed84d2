"""Combining the partial results of chunks into the results of reductions, with NumPy.

Sizes alone fix the order. Owns `Combination`. Sums follow NumPy's pairwise tree above the
segments that programs sum, and its order of blocks and rows (see summation.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lazyfuse.codegen.lowering.kernel import Kernel, Reduce, is_argument, is_ordered
from lazyfuse.codegen.lowering.loop_nest import Ints, Loop
from lazyfuse.codegen.lowering.summation import left_half
from lazyfuse.codegen.table import ops
from lazyfuse.devices.caches import cached
from lazyfuse.devices.dataclass import dataclass

Array = np.ndarray[Any, np.dtype[Any]]

# A loop, which needs no copy, adds up to this many rows.
FEW_ROWS = 64


@dataclass(frozen=True)
class Result:
    """One reduction: its row, the caller's arrays, and the output's strides over the kept loops."""

    reduction: Reduce
    output: int
    partial: int
    value: int  # where argmin and argmax have their values
    strides: Ints


@dataclass(frozen=True)
class Combination:
    """What `Lowered.finish` does, result by result.

    Partial results have shape (segments, *loops). `lengths` and `blocks` describe the segments of
    a pairwise sum; without them every partial result is that of a box, in any order.
    """

    results: tuple[Result, ...]
    sizes: Ints
    reduced: tuple[bool, ...]
    lengths: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()

    def run(self, each: Result, arrays: Sequence[Array]) -> None:
        """Write a result into the caller's output."""
        shape = tuple(n for n, flag in zip(self.sizes, self.reduced, strict=True) if not flag)
        output = arrays[each.output]
        if not shape and self.run_single(each, arrays[each.partial], output):
            return
        strides = tuple(stride * output.itemsize for stride in each.strides)
        target = as_strided(output, shape, strides)
        partial = arrays[each.partial]
        if is_argument(each.reduction):
            rows, values = self.rows(partial), self.rows(arrays[each.value])
            target[...] = _best(each.reduction, values, rows)
        elif is_ordered(each.reduction):
            complex_values = partial.dtype.kind == "c"
            target[...] = _one_by_one(self.rows(self.joined(partial, complex_values)))
        else:
            row = ops.TABLE[f"reduce:{each.reduction.op}"]
            target[...] = row.ufunc.reduce(self.rows(partial), axis=0, dtype=partial.dtype)

    def run_single(self, each: Result, partial: Array, output: Array) -> bool:
        """Write a single result without NumPy's views and scalars; False: unsuitable."""
        if is_argument(each.reduction):
            return False
        if not is_ordered(each.reduction):
            row = ops.TABLE[f"reduce:{each.reduction.op}"]
            output[...] = row.ufunc.reduce(partial, axis=None, dtype=partial.dtype)
            return True
        if partial.ndim != 1 or partial.dtype != _DOUBLE or not self.blocks:
            return False
        total, *others = _joined(partial.tolist(), _schedule(self.lengths, self.blocks))
        for value in others:  # of blocks, one after the other
            total += value
        if not math.isfinite(total):
            return False  # NumPy's additions then raise the exceptions
        output[...] = total
        return True

    def numbers(self) -> list[tuple[int, int, str, Ints]] | None:
        """The work of `run` where results and partial results lie in one order: output, partial
        results, operation, and how many sums each partial sum is joined with. None: they do not.
        """
        reductions = [each.reduction for each in self.results]
        if any(self.reduced) or any(map(is_argument, reductions)):
            return None
        dense = [math.prod(self.sizes[at + 1 :]) for at in range(len(self.sizes))]
        for each in self.results:
            steps = zip(self.sizes, each.strides, dense, strict=True)
            if any(size > 1 and stride != step for size, stride, step in steps):
                return None
        if any(each.accumulator[0] == "c" for each in reductions):
            return None  # NumPy halves a row of complex numbers elsewhere
        joins = _schedule(self.lengths, self.blocks)
        return [(each.output, each.partial, each.reduction.op, joins) for each in self.results]

    def rows(self, partial: Array) -> Array:
        """Partial results as (number per result, *results), in NumPy's order of accumulation."""
        slow = [1 + at for at, flag in enumerate(self.reduced) if flag]
        kept = [1 + at for at, flag in enumerate(self.reduced) if not flag]
        if not slow:
            return partial
        moved = partial.transpose(*slow, 0, *kept)
        return moved.reshape(-1, *moved.shape[len(slow) + 1 :])

    def joined(self, partial: Array, complex_values: bool) -> Array:
        """Segments of a block joined by NumPy's tree: (blocks, *loops)."""
        if not self.blocks or self.blocks[-1] + 1 == len(self.blocks):
            return partial
        return np.stack(_joined(partial, _schedule(self.lengths, self.blocks, complex_values)))


def combine_boxes(kernel: Kernel, loops: Sequence[Loop], slots: tuple[Ints, Ints]) -> Combination:
    """For partial results of boxes: shape (zones, *kept loops)."""
    kept = [loop for loop in loops if not loop.reduced]
    sizes = tuple(loop.size for loop in kept)
    return Combination(_results(kernel, kept, slots), sizes, (False,) * len(kept))


def combine_stretches(
    kernel: Kernel,
    outer: Sequence[Loop],
    stretches: tuple[list[int], list[int]],
    slots: tuple[Ints, Ints],
) -> Combination:
    """For partial results of segments: shape (segments, *outer loops)."""
    sizes = tuple(loop.size for loop in outer)
    reduced = tuple(loop.reduced for loop in outer)
    lengths, blocks = stretches
    kept = [loop for loop in outer if not loop.reduced]
    return Combination(_results(kernel, kept, slots), sizes, reduced, tuple(lengths), tuple(blocks))


def _results(kernel: Kernel, kept: Sequence[Loop], slots: tuple[Ints, Ints]) -> tuple[Result, ...]:
    outputs, partials = slots
    results = []
    value = partials[-1]
    for k, each in enumerate(kernel.reductions):
        value += is_argument(each)
        strides = tuple(loop.strides[outputs[k]] for loop in kept)
        results.append(Result(each, outputs[k], partials[k], value, strides))
    return tuple(results)


_DOUBLE = np.dtype(np.float64)


@cached(256)
def _schedule(lengths: Ints, blocks: Ints, complex_values: bool = False) -> Ints:
    """For each segment, how many subtrees it completes: how often the last two sums are added.

    The sums of the blocks remain.
    """
    found: list[int] = []
    at = 0
    for _, members in groupby(blocks):
        count = len(list(members))
        stretches = iter(lengths[at : at + count])
        _plan(sum(lengths[at : at + count]), stretches, found, complex_values)
        at += count
    return tuple(found)


def _plan(
    count: int, stretches: Iterator[int], found: list[int], complex_values: bool, ahead: int = 0
) -> None:
    """Walk the tree over `count` elements; `ahead`: those of its first segment, if taken."""
    first = ahead or next(stretches)
    if first == count:
        found.append(0)
        return
    left = left_half(count, complex_values)
    _plan(left, stretches, found, complex_values, first)
    _plan(count - left, stretches, found, complex_values)
    found[-1] += 1


def _joined(values: Iterable[Any], schedule: Ints) -> list[Any]:
    """The sums of blocks from those of their segments: numbers, or arrays of them."""
    stack: list[Any] = []
    for value, joins in zip(values, schedule, strict=True):
        stack.append(value)
        for _ in range(joins):
            last = stack.pop()
            stack[-1] = stack[-1] + last
    return stack


def _one_by_one(rows: Array) -> Array:
    """The sum over the first axis, one row after the other: no pairwise tree."""
    if len(rows) <= FEW_ROWS:
        total: Array = rows[0]
        for row in rows[1:]:
            total = total + row
        return total
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    if flat.shape[1] == 1:
        return np.add.accumulate(flat[:, 0])[-1:].reshape(rows.shape[1:])
    # NumPy adds whole rows where the first axis is the slow one
    return np.asarray(np.add.reduce(flat, axis=0)).reshape(rows.shape[1:])


def _best(reduction: Reduce, values: Array, positions: Array) -> Array:
    """The position of the best value over the first axis; a tie goes to the lowest position."""
    rank = np.argsort(positions, axis=0, kind="stable")
    ordered = np.take_along_axis(values, rank, axis=0)
    find = np.argmin if reduction.op == "argmin" else np.argmax
    row = np.expand_dims(find(ordered, axis=0), 0)
    found: Array = np.take_along_axis(np.take_along_axis(positions, rank, axis=0), row, axis=0)[0]
    return found
