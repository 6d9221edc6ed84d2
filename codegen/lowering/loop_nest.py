"""Loop nests: ordering, merging, tiling and cutting into chunks; arithmetic on sizes and strides.

Operands are the arrays of a kernel (inputs, then outputs) and, last, the position that argmin and
argmax report, if any. Owns no decision that depends on the kernel's operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass, replace

Ints = tuple[int, ...]
Array = np.ndarray[Any, np.dtype[Any]]

# A loop shorter than this does not become the innermost if one of LONG iterations can.
SHORT = 16
LONG = 64
# Elements between two iterations of a strip loop: what it revisits must still be in the L1 cache.
STRIP_ELEMENTS = 2048
# Tile of a transposition (slower loop, faster loop): the lines of one tile fit the L1 cache.
TRANSPOSED_TILE = (32, 64)
# Cuts of the innermost loop leave at least this many iterations, in multiples of CUT_STEP.
SHORTEST_CUT = 512
CUT_STEP = 64


@dataclass(frozen=True)
class Loop:
    """One loop: its size, whether its axis is reduced, and each operand's step in elements."""

    size: int
    reduced: bool
    strides: Ints


@dataclass(frozen=True)
class NestPart:
    """A box of a nest: sizes of its loops, and where each operand starts.

    Parts of different `zone` cover different segments of the reduced loops.
    """

    sizes: Ints
    offsets: Ints
    zone: int = 0


@dataclass(frozen=True)
class Nest:
    """Loops, outermost first, and the boxes that together make up the domain."""

    loops: tuple[Loop, ...]
    parts: tuple[NestPart, ...]


def merge(loops: list[Loop]) -> list[Loop]:
    """Join neighbours that every operand walks with one stride."""
    merged: list[Loop] = []
    for loop in loops:
        if merged and merged[-1].reduced == loop.reduced:
            last = merged[-1]
            steps = zip(last.strides, loop.strides, strict=True)
            if all(outer == inner * loop.size for outer, inner in steps):
                merged[-1] = replace(loop, size=last.size * loop.size)
                continue
        merged.append(loop)
    return merged


def flip(loops: list[Loop], operand: int) -> tuple[list[Loop], Ints]:
    """Reverse loops so that one operand walks forwards; and each operand's new first element."""
    flipped: list[Loop] = []
    offsets = [0] * len(loops[0].strides)
    for loop in loops:
        if loop.strides[operand] < 0:
            for k, stride in enumerate(loop.strides):
                offsets[k] += stride * (loop.size - 1)
            loop = replace(loop, strides=tuple(-stride for stride in loop.strides))
        flipped.append(loop)
    return flipped, tuple(offsets)


def whole(loops: list[Loop], offsets: Ints) -> Nest:
    """A nest of one part."""
    return Nest(tuple(loops), (NestPart(tuple(loop.size for loop in loops), offsets),))


def with_parts(
    loops: list[Loop], order: Sequence[int], others: Sequence[tuple[Ints, Ints]], operand: int
) -> Nest:
    """A nest of several boxes, for which one operand walks forwards.

    `order`: the axis of each loop. `others`: sizes by axis, and each operand's first element.
    """
    first = tuple(loop.size for loop in loops), (0,) * len(loops[0].strides)
    boxes_ = [first, *[(tuple(sizes[axis] for axis in order), far) for sizes, far in others]]
    parts = []
    for sizes, far in boxes_:
        offsets = list(far)
        for size, loop in zip(sizes, loops, strict=False):
            if loop.strides[operand] < 0:
                for k, stride in enumerate(loop.strides):
                    offsets[k] += stride * (size - 1)
        parts.append(NestPart(sizes or (1,), tuple(offsets)))
    forward, _ = flip(loops, operand)
    merged = [forward[0]]
    for loop in forward[1:]:
        alike = all(part.sizes[len(merged)] == loop.size for part in parts)
        joined = merge([merged[-1], loop]) if alike else []
        if len(joined) == 1:
            merged[-1] = joined[0]
            parts = [_fold(part, len(merged) - 1) for part in parts]
        else:
            merged.append(loop)
    return Nest(tuple(merged), tuple(parts))


def _fold(part: NestPart, at: int) -> NestPart:
    """A part in which loop `at` and the next one are one loop."""
    sizes = part.sizes
    return replace(part, sizes=(*sizes[:at], sizes[at] * sizes[at + 1], *sizes[at + 2 :]))


def divisor_strip(size: int) -> int:
    """The largest worthwhile strip that divides a loop, or 0."""
    return next((n for n in range(STRIP_ELEMENTS // 2, LONG - 1, -1) if size % n == 0), 0)


def sink(nest: Nest, at: int, strip: int = 0) -> Nest:
    """Make loop `at` the innermost, in strips that leave the loops it passes in the cache."""
    if not strip:
        between = math.prod([loop.size for loop in nest.loops[at + 1 :]])
        strip = max(LONG, STRIP_ELEMENTS // between)
    if nest.loops[at].size <= 2 * strip:
        return _move_last(nest, at)
    return _move_last(_split(nest, at, strip, at), at + 1)


def tile(nest: Nest, at: int, sizes: tuple[int, int] = TRANSPOSED_TILE) -> Nest:
    """Block loop `at` and the innermost loop, which some operands walk in the opposite order."""
    last = len(nest.loops) - 1
    nest = _split(nest, last, sizes[1], at)
    nest = _split(nest, at + 1, sizes[0], at)
    return _move(nest, at + 2, len(nest.loops) - 2)


def _move_last(nest: Nest, at: int) -> Nest:
    return _move(nest, at, len(nest.loops) - 1)


def _move(nest: Nest, source: int, target: int) -> Nest:
    order = list(range(len(nest.loops)))
    order.insert(target, order.pop(source))
    parts = tuple(replace(p, sizes=tuple(p.sizes[k] for k in order)) for p in nest.parts)
    return Nest(tuple(nest.loops[k] for k in order), parts)


def _split(nest: Nest, at: int, block: int, strip_at: int) -> Nest:
    """Cut a loop into strips of `block`; the loop over strips goes to position `strip_at`."""
    loop = nest.loops[at]
    if loop.size <= block:
        block = loop.size
    outer = Loop(loop.size // block, loop.reduced, tuple(stride * block for stride in loop.strides))
    loops = list(nest.loops)
    loops[at] = replace(loop, size=block)
    loops.insert(strip_at, outer)
    parts: list[NestPart] = []
    for part in nest.parts:
        strips, rest = divmod(part.sizes[at], block)
        for count, size, first in ((strips, block, 0), (1, rest, strips * block)):
            if count and size:
                sizes = list(part.sizes)
                sizes[at] = size
                sizes.insert(strip_at, count)
                moved = zip(part.offsets, loop.strides, strict=True)
                zone = 2 * part.zone + (loop.reduced and first > 0)
                parts.append(NestPart(tuple(sizes), tuple(o + first * s for o, s in moved), zone))
    return Nest(tuple(loops), tuple(parts))


def pieces(sizes: Ints, may_cut: tuple[bool, ...], wanted: int, shortest: int = 1) -> list[int]:
    """The number of pieces to cut each loop into, outermost first, for at least `wanted` in all.

    The last loop is cut into pieces of at least `shortest` iterations.
    """
    counts = [1] * len(sizes)
    for at, size in enumerate(sizes):
        if wanted <= 1:
            break
        room = size if at < len(sizes) - 1 else size // shortest
        if may_cut[at] and room > 1:
            counts[at] = room if room < 2 * wanted else wanted
            wanted = -(-wanted // counts[at])
    return counts


def boxes(
    part: NestPart, loops: tuple[Loop, ...], counts: list[int]
) -> tuple[Array, Array, dict[int, Array]]:
    """Cut a part `counts` times: sizes (boxes, loops), operand offsets (boxes, operands), places.

    For each loop that is cut, its places hold the index of each box's piece.
    """
    total = math.prod(counts)
    sizes = np.empty((total, len(counts)), dtype=np.int64)
    sizes[...] = part.sizes
    offsets = np.empty((total, len(part.offsets)), dtype=np.int64)
    offsets[...] = part.offsets
    places: dict[int, Array] = {}
    inner = 1
    for at in reversed(range(len(counts))):
        count = counts[at]
        if count == 1:
            continue
        bounds = _bounds(part.sizes[at], count, at == len(counts) - 1)
        places[at] = place = np.arange(total) // inner % count
        low = bounds[place]
        sizes[:, at] = bounds[place + 1] - low
        offsets += np.multiply.outer(low, loops[at].strides)
        inner *= count
    return sizes, offsets, places


def _bounds(size: int, count: int, is_last: bool) -> Array:
    """The starts of `count` pieces of a loop, and its end."""
    bounds = np.arange(count + 1, dtype=np.int64) * size // count
    if is_last and size >= 2 * CUT_STEP * count:
        bounds[1:-1] -= bounds[1:-1] % CUT_STEP
    return bounds
