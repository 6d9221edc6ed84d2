"""Recording moves: results whose elements are elements of their operands.

Owns how maps of indices (codegen/graph/moves.py) are made: rolls, paddings, tiles, joins.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays import methods
from lazyfuse.arrays.ndarray import caller, cast_node, from_node
from lazyfuse.arrays.operators import operand_node
from lazyfuse.arrays.recording import as_node
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.moves import Moves, Piece, Space, layout_of, mapped, shown_of
from lazyfuse.codegen.graph.node import Node, Shape
from lazyfuse.codegen.table import ops
from lazyfuse.devices.caches import cached
from lazyfuse.runtime.layout.meta_arrays import Perm
from lazyfuse.runtime.scheduling import evaluate

MOST_PIECES = 64
"""Pieces of one map at most: what has more is no map, but a list of places."""

Segment = tuple[int, int, int, int]
"""Of one axis: where it begins in the result, its length, the source's index there, the step."""


def recorded(
    sources: Sequence[Any],
    pieces: Iterable[Piece],
    shape: Shape,
    dtype: Any,
    perm: Perm = None,
    space: Space = None,
) -> Any:
    """The array whose elements the pieces pick from these operands."""
    dtype = CANONICAL[dtype]
    given = [cast_node(as_node(each), dtype) for each in sources]
    nodes = tuple(dict.fromkeys(given))  # an array that is joined with itself is one source
    if len(nodes) < len(given):
        pieces = [piece._replace(source=nodes.index(given[piece.source])) for piece in pieces]
    arg = mapped(tuple(pieces), tuple([node.shape for node in nodes]), space)
    if evaluate.chunked is not None:
        written = from_node(_written(nodes, arg, space or shape, dtype, perm))
        return methods.reshape(written, shape) if space else written
    return from_node(Node(ops.INDEX, nodes, arg, shape, dtype, perm, caller()))


def _written(
    nodes: Sequence[Node], arg: Moves, shape: Shape, dtype: np.dtype[Any], perm: Perm
) -> Node:
    """The same as writes of views, which have a meaning in chunks."""
    where = caller()
    zero = operand_node(0, dtype)
    made = Node(ops.FULL, (zero,), None, shape, dtype, perm, where)
    for piece in arg.pieces:
        source = nodes[piece.source]
        if source.shape:
            shown = shown_of(piece, source.shape, source.perm)
            view = Node(ops.VIEW, (source,), shown, piece.shape, dtype, None, where)
        else:
            view = Node(ops.FULL, (source,), None, piece.shape, dtype, None, where)
        layout = layout_of(piece, shape, perm)
        made = Node(ops.UPDATE, (made, view), layout, shape, dtype, perm, where)
    return made


def along_axes(segments: Sequence[Sequence[Segment]], source: int = 0) -> list[Piece]:
    """The pieces of a result each of whose axes is made of segments of the source's axis."""
    found = []
    for chosen in itertools.product(*segments):
        starts, lengths, firsts, steps = zip(*chosen, strict=True) if chosen else ((),) * 4
        found.append(Piece(starts, lengths, source, firsts, tuple(enumerate(steps))))
    return found


@cached(4096)
def segments_of(positions: tuple[int, ...]) -> tuple[Segment, ...]:
    """The steady runs of a list of positions; a negative position is of no source."""
    found: list[Segment] = []
    at, count = 0, len(positions)
    while at < count:
        end, step = at + 1, 0
        if positions[at] < 0:
            while end < count and positions[end] < 0:
                end += 1
        elif end < count and positions[end] >= 0:
            step = positions[end] - positions[at]
            while end < count and 0 <= positions[end] == positions[end - 1] + step:
                end += 1
            if end == at + 2 and end < count and abs(step) != 1:
                end, step = at + 1, 0  # the second begins a longer run
        found.append((at, end - at, positions[at], step))
        at = end
    return tuple(found)


@cached(1024)
def padded(length: int, widths: tuple[int, int], mode: str) -> tuple[Segment, ...]:
    """The segments of one padded axis."""
    before, after = widths
    low = segments_of(tuple([_reached(at, length, mode) for at in range(-before, 0)]))
    ends = [_reached(at, length, mode) for at in range(length, length + after)]
    high = [(at + before + length, *rest) for at, *rest in segments_of(tuple(ends))]
    return (*low, (before, length, 0, 1), *high)  # type: ignore[arg-type]


def _reached(at: int, length: int, mode: str) -> int:
    """The position that `numpy.pad` shows at a place outside the axis; -1: none."""
    if mode == "constant":
        return -1
    if mode == "wrap":
        return at % length
    if mode == "edge" or length == 1:
        return min(max(at, 0), length - 1)
    if mode == "symmetric":
        at %= 2 * length
        return min(at, 2 * length - 1 - at)
    period = 2 * (length - 1)
    at %= period
    return min(at, period - at)


def without(length: int, places: Sequence[int]) -> list[Segment]:
    """The segments of an axis some places of which, in rising order, are left out."""
    found = []
    begin = 0
    for count, place in enumerate((*places, length)):
        if place > begin:
            found.append((begin - count, place - begin, begin, 1))
        begin = place + 1
    return found


def between(length: int, places: Sequence[int]) -> list[Segment]:
    """The segments of an axis that gets new elements at these places of the result, rising."""
    found: list[Segment] = []
    begin = 0
    for count, place in enumerate((*places, length + len(places))):
        if place > begin:
            found.append((begin, place - begin, begin - count, 1))
        if count < len(places):
            found.append((place, 1, -1, 0))
        begin = place + 1
    return found


def repeated(length: int, times: int) -> list[Segment]:
    """The segments of an axis that is shown several times."""
    return [(turn * length, length, 0, 1) for turn in range(times)]


def stretched(shape: Shape, times: int, axis: int) -> tuple[Piece, Shape]:
    """The piece of `numpy.repeat`, and the space in which it lies: one more axis, of the turns."""
    space = (*shape[: axis + 1], times, *shape[axis + 1 :])
    steps = [(at - (at > axis), 1) for at in range(len(space))]
    steps[axis + 1] = (-1, 0)
    return Piece((0,) * len(space), space, 0, (0,) * len(shape), tuple(steps)), space


def along_axis(segments: Sequence[Segment], shape: Shape, axis: int) -> list[Piece]:
    """The pieces of a result that shows the other axes of its source as they are."""
    return along_axes([segments if at == axis else [(0, n, 0, 1)] for at, n in enumerate(shape)])


def filled(pieces: Iterable[Piece], rank: int) -> list[Piece]:
    """The same pieces, where what is of no source is the number that is source 1."""
    nothing = ((-1, 0),) * rank
    return [
        piece._replace(source=1, first=(), steps=nothing) if min(piece.first) < 0 else piece
        for piece in pieces
    ]


def joined(shapes: Sequence[Shape], axis: int) -> list[Piece]:
    """The pieces of arrays that are joined along an axis."""
    found = []
    begin = 0
    for number, shape in enumerate(shapes):
        start = tuple([begin if at == axis else 0 for at in range(len(shape))])
        steps = tuple([(at, 1) for at in range(len(shape))])
        found.append(Piece(start, shape, number, (0,) * len(shape), steps))
        begin += shape[axis]
    return found


def stacked(shape: Shape, count: int, axis: int) -> list[Piece]:
    """The pieces of arrays of one shape that are joined along a new axis."""
    found = []
    size = (*shape[:axis], 1, *shape[axis:])
    for number in range(count):
        start = tuple([number if at == axis else 0 for at in range(len(size))])
        own = iter(range(len(shape)))
        steps = tuple([(-1, 0) if at == axis else (next(own), 1) for at in range(len(size))])
        found.append(Piece(start, size, number, (0,) * len(shape), steps))
    return found


def turned(shape: Shape, shift: Any, axis: Any) -> list[Piece]:
    """The pieces of `numpy.roll` along axes."""
    axes = tuple(axis) if type(axis) in (tuple, list) else (axis,)
    shifts = tuple(shift) if type(shift) in (tuple, list) else (shift,)
    if len(shifts) != len(axes):
        count = max(len(shifts), len(axes))
        shifts, axes = (each * (count // len(each)) for each in (shifts, axes))
    total = [0] * len(shape)
    for way, at in zip(shifts, axes, strict=True):
        total[at] += way
    return along_axes([_turned(*pair) for pair in zip(shape, total, strict=True)])


def _turned(length: int, way: int) -> list[Segment]:
    way %= length
    whole = [(0, way, length - way, 1), (way, length - way, 0, 1)]
    return [each for each in whole if each[1]]


def turned_flat(shape: Shape, shift: int) -> list[Piece]:
    """The pieces of `numpy.roll` in C order: what leaves a row at one side enters the next row."""
    found: list[tuple[Shape, Shape, Shape, int]] = [((), (), (), 0)]
    for length in reversed(shape):
        shift, way = divmod(shift, length)
        longer = []
        for start, size, first, borrowed in found:
            on = way + borrowed
            for low, count, source, borrows in ((0, on, length - on, 1), (on, length - on, 0, 0)):
                if count:
                    longer.append(((low, *start), (count, *size), (source, *first), borrows))
        found = longer
    steps = tuple([(axis, 1) for axis in range(len(shape))])
    return [Piece(start, size, 0, first, steps) for start, size, first, _ in found]
