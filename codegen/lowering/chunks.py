"""Chunk tables: the sizes and offsets that a launch passes to a program, one row per chunk.

Owns the loop-size columns beyond the loops themselves (of language "numba": the length and start
of a ragged run, the position of argmin and argmax) and the extra arrays that replace them in
language "numpy", whose chunks are NumPy views and so can only be boxes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lazyfuse.codegen.lowering.loop_nest import (
    SHORTEST_CUT,
    Ints,
    Loop,
    Nest,
    NestPart,
    boxes,
    pieces,
)
from lazyfuse.codegen.lowering.variant import KernelVariant
from lazyfuse.devices.dataclass import dataclass

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Table:
    """The part of a `Launch` that does not change between runs."""

    sizes: Array
    offsets: Array
    strides: tuple[Ints, ...]
    extra: tuple[Array, ...] = ()  # arrays in addition to the caller's
    zones: int = 1  # partial results per result


def box_table(
    nest: Nest,
    form: KernelVariant,
    target: int,
    arrays: int,
    language: str = "numba",
    step: int = 0,
    first_target: int = 0,
) -> Table:
    """Chunks that are boxes of about `target` elements.

    With `step`, reduced loops are cut too. Their pieces (zones) write partial results, spaced
    `step` elements from each other in the arrays from `first_target` on.
    """
    sizes: list[Array] = []
    offsets: list[Array] = []
    cuts: dict[int, list[int]] = {}  # zone of a part -> how its reduced loops are cut
    bases: dict[int, int] = {}
    zones = 0
    reduced = tuple(loop.reduced for loop in nest.loops)
    for part in nest.parts:
        counts = _kept_pieces(part, reduced, form, target)
        if part.zone not in cuts:
            cuts[part.zone] = _reduced_pieces(part, reduced, counts, target) if step else []
            bases[part.zone] = zones
            zones += math.prod(cuts[part.zone])
        if step:
            counts = [max(a, b) for a, b in zip(counts, cuts[part.zone], strict=True)]
        size, offset, places = boxes(part, nest.loops, counts)
        if step:
            zone = np.full(len(size), bases[part.zone])
            zone += _ravel(places, cuts[part.zone])
            offset[:, first_target:arrays] += step * zone[:, None]
        sizes.append(size)
        offsets.append(offset)
    return _with_positions(_joined(sizes), _joined(offsets), nest.loops, arrays, language, zones)


def _kept_pieces(
    part: NestPart, reduced: tuple[bool, ...], form: KernelVariant, target: int
) -> list[int]:
    wanted = -(-math.prod(part.sizes) // target)
    shortest = 1 if form.core == "row" else SHORTEST_CUT
    return pieces(part.sizes, tuple(not flag for flag in reduced), wanted, shortest)


def _reduced_pieces(
    part: NestPart, reduced: tuple[bool, ...], counts: list[int], target: int
) -> list[int]:
    wanted = -(-math.prod(part.sizes) // (target * math.prod(counts)))
    return pieces(part.sizes, reduced, wanted, SHORTEST_CUT)


def _ravel(places: dict[int, Array], cuts: list[int]) -> Array | int:
    """The index of each box among the pieces of reduced loops."""
    number: Array | int = 0
    for at, count in enumerate(cuts):
        if count > 1:
            number = number * count + places[at]
    return number


def _with_positions(
    sizes: Array,
    offsets: Array,
    loops: tuple[Loop, ...],
    arrays: int,
    language: str,
    zones: int = 1,
    front: int = 0,
) -> Table:
    """Pass on the strides of the position (the operand after the arrays), if any, and finish.

    `front`: leading loops that the sizes have and `loops` lack.
    """
    strides = [(0,) * front + tuple(loop.strides[k] for loop in loops) for k in range(arrays)]
    if len(loops[0].strides) == arrays:
        return _table(sizes, offsets, strides, (), zones)
    steps = [loop.strides[arrays] for loop in loops]
    if language == "numba":
        columns = np.broadcast_to(np.array(steps, dtype=np.int64), (len(sizes), len(steps)))
        sizes = np.concatenate([sizes, offsets[:, arrays:], columns], axis=1)
        return _table(sizes, offsets[:, :arrays], strides, (), zones)
    extra, columns = _position_arrays(sizes[:, front:], offsets[:, arrays], steps)
    rank = len(steps) + front
    strides += [tuple(int(place == at) for place in range(rank)) for at in range(front, rank)]
    offsets = np.concatenate([offsets[:, :arrays], columns], axis=1)
    return _table(sizes, offsets, strides, extra, zones)


def _position_arrays(
    sizes: Array, bases: Array, steps: list[int]
) -> tuple[tuple[Array, ...], Array]:
    """One array per loop: the contribution of each iteration to the position.

    The array of the first loop holds one segment per chunk, because each begins at another base.
    """
    extra: list[Array] = []
    columns = np.zeros((len(sizes), len(steps)), dtype=np.int64)
    for at, step in enumerate(steps):
        if at:
            extra.append(np.arange(sizes[:, at].max(), dtype=np.int64) * step)
            continue
        ends = np.cumsum(sizes[:, 0])
        columns[:, 0] = ends - sizes[:, 0]
        within = np.arange(ends[-1], dtype=np.int64) - np.repeat(columns[:, 0], sizes[:, 0])
        extra.append(within * step + np.repeat(bases, sizes[:, 0]))
    return tuple(extra), columns


def _table(
    sizes: Array, offsets: Array, strides: list[Ints], extra: tuple[Array, ...], zones: int
) -> Table:
    rank = sizes.shape[1]
    padded = tuple(each + (0,) * (rank - len(each)) for each in strides)
    return Table(np.ascontiguousarray(sizes), np.ascontiguousarray(offsets), padded, extra, zones)


def stretch_table(
    nest: Nest,
    form: KernelVariant,
    language: str,
    target: int,
    bounds: Array,
    partial: bool,
    arrays: int,
    first_target: int,
) -> Table:
    """Chunks of pairwise sums: boxes of the outer loops by segments of the run.

    Segment `k` goes from `bounds[k]` to `bounds[k + 1]`. Partial results of a segment lie together.
    """
    outer, run = nest.loops[: -form.run], nest.loops[-form.run :]
    step = math.prod([loop.size for loop in outer]) if partial else 0
    if form.ragged and language == "numpy":
        return _whole_runs(nest, form, target, bounds, step, arrays, first_target)
    lows, lengths = bounds[:-1], np.diff(bounds)
    sizes, offsets = [], []
    for length in sorted(set(lengths.tolist())):
        numbers = np.nonzero(lengths == length)[0]
        size, offset = _outer_boxes(nest, form, int(length), target)
        size = np.tile(size, (len(numbers), 1))
        low = np.repeat(lows[numbers], len(offset))[:, None]
        first = np.repeat(numbers, len(offset))[:, None] * step
        offset = np.tile(offset, (len(numbers), 1))
        offset[:, first_target:arrays] += first
        if form.ragged:
            size = np.concatenate([size, _ragged_columns(run, low, int(length))], axis=1)
        else:
            offset += low * np.array(run[0].strides, dtype=np.int64)
            size = np.concatenate([size, np.full((len(size), 1), length)], axis=1)
        sizes.append(size)
        offsets.append(offset)
    return _with_positions(_joined(sizes), _joined(offsets), nest.loops, arrays, language)


def _joined(tables: list[Array]) -> Array:
    return tables[0] if len(tables) == 1 else np.concatenate(tables)


def _outer_boxes(nest: Nest, form: KernelVariant, length: int, target: int) -> tuple[Array, Array]:
    outer, part = nest.loops[: -form.run], nest.parts[0]
    if not outer:
        return np.zeros((1, 0), dtype=np.int64), np.array([part.offsets], dtype=np.int64)
    shape = tuple(loop.size for loop in outer)
    wanted = -(-math.prod(shape) * length // target)
    counts = pieces(shape, (True,) * len(shape), wanted)
    size, offset, _ = boxes(NestPart(shape, part.offsets), outer, counts)
    return size, offset


def _ragged_columns(run: tuple[Loop, ...], low: Array, length: int) -> Array:
    """Sizes of the run's loops, length of the segment, and the loop counters where it starts."""
    shape = tuple(loop.size for loop in run)
    start = np.stack(np.unravel_index(low[:, 0], shape), axis=1)
    fixed = np.broadcast_to(np.array([*shape, length], dtype=np.int64), (len(low), len(run) + 1))
    return np.concatenate([fixed, start], axis=1)


def _whole_runs(
    nest: Nest,
    form: KernelVariant,
    target: int,
    bounds: Array,
    step: int,
    arrays: int,
    first_target: int,
) -> Table:
    """Chunks of whole runs inside a loop over the segments.

    The bounds of the segments are an extra array along that loop.
    """
    size, offset = _outer_boxes(nest, form, int(bounds[-1]), target)
    run = np.array([loop.size for loop in nest.loops[-form.run :]], dtype=np.int64)
    count = len(size)
    sizes = np.concatenate(
        [np.full((count, 1), len(bounds) - 1), size, np.broadcast_to(run, (count, len(run)))],
        axis=1,
    )
    table = _with_positions(sizes, offset, nest.loops, arrays, "numpy", front=1)
    strides = list(table.strides)
    for at in range(first_target, arrays):
        strides[at] = (step, *strides[at][1:])
    strides.append((1,) + (0,) * len(nest.loops))
    column = np.zeros((count, 1), dtype=np.int64)
    offsets = np.concatenate([table.offsets, column], axis=1)
    return Table(table.sizes, offsets, tuple(strides), (*table.extra, bounds))
