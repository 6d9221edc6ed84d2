"""Index maps: which element of which source each element of a result is.

Owns `Piece` and `Moves`, the argument of `index` nodes. A map is a choice of boxes of the result;
within a box it is affine: an index of a source's axis is a start, plus a step times one index of
the result. So a kernel reads its operands through a map without a line of text for it: each box is
a part of its loop nest (codegen/lowering/loop_nest.py). Knows no memory; `seen` works on arrays of
NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.codegen.graph.node import Layout, Node
from lazyfuse.codegen.graph.shapes import contiguous_strides
from lazyfuse.devices.caches import cached

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
Part = tuple[Shape, Array]
"""Where a box begins, and its elements."""


class Piece(NamedTuple):
    """A box of the result that shows elements of one source."""

    start: Shape
    shape: Shape
    source: int
    first: Shape  # per axis of the source: the index that the first element of the box is
    steps: tuple[tuple[int, int], ...]  # per axis of the result: axis of the source or -1, step


class Moves:
    """Pieces that cover a result and do not overlap. One object per map: compare by identity.

    `wholes`: for each piece, whether it is all of its source, as it is. `structure` is what a plan
    depends on: no size, index or step is in it.
    """

    __slots__ = ("__weakref__", "pieces", "structure", "wholes")

    def __init__(self, pieces: tuple[Piece, ...], wholes: tuple[bool, ...]) -> None:
        self.pieces = pieces
        self.wholes = wholes
        self.structure = tuple(
            [
                (piece.source, whole, *[axis for axis, _ in piece.steps])
                for piece, whole in zip(pieces, wholes, strict=True)
            ]
        )

    def __repr__(self) -> str:
        return f"<{len(self.pieces)} pieces>"


@cached(4096)
def moves(pieces: tuple[Piece, ...], wholes: tuple[bool, ...]) -> Moves:
    """The map of these pieces, the same object for equal ones."""
    return Moves(pieces, wholes)


@cached(4096)
def mapped(pieces: tuple[Piece, ...], sources: tuple[Shape, ...]) -> Moves:
    """The map of these pieces of sources with these shapes; empty pieces are left out."""
    kept = tuple([piece for piece in pieces if 0 not in piece.shape])
    wholes = []
    for piece in kept:
        shape = sources[piece.source]
        as_it_is = piece.steps == tuple([(axis, 1) for axis in range(len(shape))])
        wholes.append(as_it_is and piece.shape == shape)
    return moves(kept, tuple(wholes))


@cached(4096)
def of_view(layout: Layout, shape: Shape, perm: tuple[int, ...] | None) -> Piece | None:
    """A view of packed memory as a piece; None where an axis of it goes along several axes."""
    if 0 in layout.shape or 0 in shape:
        return None
    strides = contiguous_strides(shape, perm)
    first = [0] * len(shape)
    rest = layout.offset
    for axis in perm or range(len(shape)):
        if shape[axis] > 1:
            first[axis], rest = divmod(rest, strides[axis])
    free = sorted((axis for axis, n in enumerate(shape) if n > 1), key=lambda axis: -strides[axis])
    steps = []
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        if length == 1 or stride == 0:
            steps.append((-1, 0))
            continue
        axis = next((a for a in free if stride % strides[a] == 0), None)
        if axis is None:
            return None
        step = stride // strides[axis]
        if not 0 <= first[axis] + step * (length - 1) < shape[axis]:
            return None
        free.remove(axis)
        steps.append((axis, step))
    inside = all(low < n for low, n in zip(first, shape, strict=True))
    if rest or not inside:
        return None
    return Piece((0,) * len(layout.shape), layout.shape, 0, tuple(first), tuple(steps))


def of_node(node: Node) -> Moves:
    """The map of a node that is one, or of a view that a piece describes."""
    if type(node.arg) is Moves:
        return node.arg
    base = node.src[0]
    piece = of_view(node.arg, base.shape, base.perm)
    assert piece is not None, "a plan reads a view through a map where there is one"
    return mapped((piece,), (base.shape,))


def shown_of(piece: Piece, shape: Shape, perm: tuple[int, ...] | None) -> Layout:
    """What a piece shows of a source, in the source's packed memory."""
    strides = contiguous_strides(shape, perm)
    offset = sum([low * stride for low, stride in zip(piece.first, strides, strict=True)])
    steps = [step * strides[axis] if axis >= 0 else 0 for axis, step in piece.steps]
    return Layout(offset, piece.shape, tuple(steps))


def layout_of(piece: Piece, shape: Shape, perm: tuple[int, ...] | None) -> Layout:
    """Where a piece lies in the packed memory of the result."""
    strides = contiguous_strides(shape, perm)
    offset = sum([low * stride for low, stride in zip(piece.start, strides, strict=True)])
    return Layout(offset, piece.shape, strides)


def box(start: Shape, shape: Shape) -> tuple[slice, ...]:
    """The key of a box of an array."""
    return tuple([slice(low, low + length) for low, length in zip(start, shape, strict=True)])


def seen(parts: Iterable[Part], shape: Shape, piece: Piece) -> list[Part]:
    """What a piece shows of a source of this shape that lies in `parts`."""
    missing = len(piece.first) - len(shape)
    first = list(piece.first[missing:])
    steps = [(axis - missing, step) for axis, step in piece.steps]
    for axis, length in enumerate(shape):
        if length == 1:  # repeated
            first[axis] = 0
    found: list[Part] = []
    for start, array in parts:
        part = _overlap(start, array, first, steps, shape, piece.shape)
        if part is not None:
            low, view = part
            found.append((tuple([a + b for a, b in zip(piece.start, low, strict=True)]), view))
    return found


def _overlap(
    start: Shape,
    array: Array,
    first: Sequence[int],
    steps: Sequence[tuple[int, int]],
    whole_shape: Shape,
    shape: Shape,
) -> Part | None:
    """The box of the piece that lies in one part of the source: where it begins, its elements."""
    low, key, axes, repeated = [0] * len(shape), [], [], list(shape)
    of_axis = {
        axis: at for at, (axis, _) in enumerate(steps) if axis >= 0 and whole_shape[axis] != 1
    }
    for axis, begin in enumerate(first):
        begin -= start[axis]
        length = array.shape[axis]
        at = of_axis.get(axis)
        if at is None:
            if not 0 <= begin < length:
                return None
            key.append(begin)
            continue
        step, count = steps[at][1], shape[at]
        if step == 0:
            lows, highs = (0, count) if 0 <= begin < length else (0, 0)
        elif step > 0:
            lows, highs = max(0, -(begin // step)), min(count, -(-(length - begin) // step))
        else:
            lows, highs = max(0, -((length - 1 - begin) // -step)), min(count, begin // -step + 1)
        if highs <= lows:
            return None
        low[at], repeated[at] = lows, highs - lows
        begin += lows * step
        end: int | None = begin + step * (highs - lows)
        if step == 0:
            key.append(slice(begin, begin + 1))
        else:
            key.append(slice(begin, end if end is not None and end >= 0 else None, step))
        axes.append(at)
    view = array[(*key, ...)]
    order = sorted(range(len(axes)), key=axes.__getitem__)
    view = view.transpose(order)
    there = set(axes)
    view = view[tuple([slice(None) if at in there else None for at in range(len(shape))])]
    if view.shape != tuple(repeated):
        view = np.broadcast_to(view, tuple(repeated))
    return tuple(low), view
