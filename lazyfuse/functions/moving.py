"""Recording moves: results whose elements are elements of their operands.

Owns how maps of indices (codegen/graph/moves.py) are made: rolls, paddings, tiles, joins. Each is
made once for its shapes and arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays import methods
from lazyfuse.arrays.ndarray import caller, cast_node, from_node
from lazyfuse.arrays.operators import operand_node
from lazyfuse.arrays.recording import as_node
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.moves import Moves, Piece, layout_of, mapped, shown_of
from lazyfuse.codegen.graph.node import Node, Shape
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.devices.caches import cached
from lazyfuse.runtime.layout.meta_arrays import Perm
from lazyfuse.runtime.scheduling import evaluate

MOST_PIECES = 64
"""Pieces of one map at most: what has more is no map, but a list of places."""

Segment = tuple[int, int, int, int]
"""Of one axis: where it begins in the result, its length, the source's index there, the step."""
Segments = Sequence[Segment]


def recorded(sources: Sequence[Any], arg: Moves, dtype: Any, perm: Perm = None) -> Any:
    """The array whose elements a map picks from these operands."""
    dtype = CANONICAL[dtype]
    nodes = tuple([cast_node(as_node(each), dtype) for each in sources])
    node = Node(ops.INDEX, nodes, arg, arg.shape, dtype, perm, caller())
    if evaluate.in_chunks is None or not evaluate.in_chunks(node):
        return from_node(node)
    written = from_node(_written(nodes, arg, dtype, perm))
    return methods.reshape(written, arg.shape) if arg.space else written


def _written(nodes: Sequence[Node], arg: Moves, dtype: np.dtype[Any], perm: Perm) -> Node:
    """The same as writes of views, which have a meaning in chunks."""
    where = caller()
    shape = arg.space or arg.shape
    zero = operand_node(0, dtype)
    made = Node(ops.FULL, (zero,), None, shape, dtype, perm, where)
    for number, piece in enumerate(arg.pieces):
        source = nodes[piece.source]
        if source.shape:
            shown = shown_of(piece, source.shape, source.perm)
            view = Node(ops.VIEW, (source,), shown, piece.shape, dtype, None, where)
        else:
            view = Node(ops.FULL, (source,), None, piece.shape, dtype, None, where)
        layout = layout_of(arg, number, perm)
        made = Node(ops.UPDATE, (made, view), layout, shape, dtype, perm, where)
    return made


# ------------------------------------------------------------------------------------- segments


def _along_axes(source: Shape, segments: Sequence[Segments]) -> Moves | None:
    """The map of a result each of whose axes is made of segments of the source's axis; what is of
    no index shows the number that is source 1. None if there are too many pieces.
    """
    if size_of(tuple(map(len, segments))) > MOST_PIECES:
        return None
    nothing = ((-1, 0),) * len(segments)
    found = []
    for chosen in itertools.product(*segments):
        start, size, first, steps = zip(*chosen, strict=True)
        if min(first) < 0:
            found.append(Piece(start, size, 1, (), nothing))
        else:
            found.append(Piece(start, size, 0, first, tuple(enumerate(steps))))
    shape = tuple([sum([length for _, length, _, _ in each]) for each in segments])
    return mapped(shape, found, (source, ())) if found else None


def _along_axis(source: Shape, axis: int, segments: Segments) -> Moves | None:
    """The same for one axis, where the others are as they are."""
    return _along_axes(
        source, [segments if at == axis else [(0, n, 0, 1)] for at, n in enumerate(source)]
    )


def _segments_of(positions: Sequence[int]) -> list[Segment]:
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
    return found


@cached(1024)
def padded(shape: Shape, widths: tuple[tuple[int, int], ...], mode: str) -> Moves | None:
    """The map of `numpy.pad`."""
    return _along_axes(
        shape, [_padded(n, *each, mode) for n, each in zip(shape, widths, strict=True)]
    )


def _padded(length: int, before: int, after: int, mode: str) -> list[Segment]:
    low = _segments_of([_reached(at, length, mode) for at in range(-before, 0)])
    high = _segments_of([_reached(at, length, mode) for at in range(length, length + after)])
    moved = [(at + before + length, *rest) for at, *rest in high]
    return [*low, (before, length, 0, 1), *moved]  # type: ignore[list-item]


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


@cached(1024)
def parted(shape: Shape, axis: int, places: tuple[int, ...], inserts: bool) -> Moves | None:
    """The map of an array where some places of an axis, in rising order, are left out; or, if it
    `inserts`, where these places of the result show a number.
    """
    found: list[Segment] = []
    begin = 0
    end = shape[axis] + (len(places) if inserts else 0)
    for count, place in enumerate((*places, end)):
        low, first = (begin, begin - count) if inserts else (begin - count, begin)
        if place > begin:
            found.append((low, place - begin, first, 1))
        if inserts and place < end:
            found.append((place, 1, -1, 0))
        begin = place + 1
    return _along_axis(shape, axis, found)


@cached(1024)
def again(shape: Shape, wanted: Shape) -> Moves | None:
    """The map of an array whose axes are shown again until they have these lengths."""
    segments = []
    for n, length in zip(shape, wanted, strict=True):
        if length > MOST_PIECES * n:
            return None
        segments.append([(low, min(n, length - low), 0, 1) for low in range(0, length, n)])
    return _along_axes(shape, segments)


@cached(1024)
def stretched(shape: Shape, times: int, axis: int) -> Moves:
    """The map of `numpy.repeat`: its pieces lie in a space with one more axis, of the turns."""
    space = (*shape[: axis + 1], times, *shape[axis + 1 :])
    steps = [(at - (at > axis), 1) for at in range(len(space))]
    steps[axis + 1] = (-1, 0)
    piece = Piece((0,) * len(space), space, 0, (0,) * len(shape), tuple(steps))
    longer = (*shape[:axis], shape[axis] * times, *shape[axis + 1 :])
    return mapped(longer, (piece,), (shape,), space)


# ---------------------------------------------------------------------------------- rolls, joins


@cached(4096)
def turned(shape: Shape, shift: Any, axis: Any) -> Moves | None:
    """The map of `numpy.roll`."""
    if axis is None:
        return _turned_flat(shape, shift) if 1 << len(shape) <= MOST_PIECES else None
    axes = axis if type(axis) is tuple else (axis,)
    shifts = shift if type(shift) is tuple else (shift,)
    if len(shifts) != len(axes):
        count = max(len(shifts), len(axes))
        shifts, axes = (each * (count // len(each)) for each in (shifts, axes))
    total = [0] * len(shape)
    for way, at in zip(shifts, axes, strict=True):
        total[at] += way
    segments = []
    for length, way in zip(shape, total, strict=True):
        way %= length
        whole = [(0, way, length - way, 1), (way, length - way, 0, 1)]
        segments.append([each for each in whole if each[1]])
    return _along_axes(shape, segments)


def _turned_flat(shape: Shape, shift: int) -> Moves:
    """In C order: what leaves a row at one side enters the next row."""
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
    pieces = [Piece(start, size, 0, first, steps) for start, size, first, _ in found]
    return mapped(shape, pieces, (shape,))


@cached(1024)
def joined(shapes: tuple[Shape, ...], axis: int, new: bool = False) -> Moves:
    """The map of arrays that are joined along an axis, or one after the other along a new one."""
    found = []
    begin = 0
    for number, shape in enumerate(shapes):
        size, steps = shape, [(at, 1) for at in range(len(shape))]
        if new:
            size = (*shape[:axis], 1, *shape[axis:])
            steps.insert(axis, (-1, 0))
        start = tuple([begin if at == axis else 0 for at in range(len(size))])
        found.append(Piece(start, size, number, (0,) * len(shape), tuple(steps)))
        begin += size[axis]
    return mapped((*size[:axis], begin, *size[axis + 1 :]), found, shapes)


@cached(1024)
def sides(shape: Shape, axis: int) -> tuple[Moves, Moves, Moves]:
    """The neighbours after and before each element of an axis, at its ends the elements
    themselves; and of two numbers the first at the ends, the second between them.
    """
    n = shape[axis]
    after = _along_axis(shape, axis, [(0, n - 1, 1, 1), (n - 1, 1, n - 1, 0)])
    before = _along_axis(shape, axis, [(0, 1, 0, 0), (1, n - 1, 0, 1)])
    assert after is not None
    assert before is not None
    nothing = ((-1, 0),) * len(shape)
    pieces = []
    for low, length, number in ((0, 1, 0), (1, n - 2, 1), (n - 1, 1, 0)):
        start = tuple([low if at == axis else 0 for at in range(len(shape))])
        size = tuple([length if at == axis else 1 for at in range(len(shape))])
        pieces.append(Piece(start, size, number, (), nothing))
    whole = tuple([n if at == axis else 1 for at in range(len(shape))])
    return after, before, mapped(whole, pieces, ((), ()))
