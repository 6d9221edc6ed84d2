"""Index maps: which element of which source each element of a result is.

Owns `Piece` and `Moves`, the argument of `index` nodes. A map is a choice of boxes of the result;
within a box it is affine: an index of a source's axis is a start, plus a step times one index of
the result. So a kernel reads its operands through a map without a line of text for it: each box is
a part of its loop nest (codegen/lowering/loop_nest.py). The boxes may lie in a space whose axes are
parts of the result's: so an index is divided (`repeat`). Knows no memory; `seen` works on arrays of
NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.codegen.graph.node import Layout, Node
from lazyfuse.codegen.graph.shapes import contiguous_strides, size_of
from lazyfuse.devices.caches import cached

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
Perm = tuple[int, ...] | None
Space = Shape | None
Part = tuple[Shape, Array]
"""Where a box begins, and its elements."""


class AxisMap(NamedTuple):
    """The index on one axis of the base: `start` plus each window index times its step."""

    start: int
    steps: tuple[tuple[int, int], ...]  # (axis of the window, step), no step is 0


class Piece(NamedTuple):
    """A box of the result that shows elements of one source."""

    start: Shape
    shape: Shape
    source: int
    first: Shape  # per axis of the source: the index that the first element of the box is
    steps: tuple[tuple[int, int], ...]  # per axis of the result: axis of the source or -1, step


class Moves:
    """Pieces that cover a result and do not overlap. One object per map: compare by identity.

    `wholes`: for each piece, whether it is all of its source, as it is or with new axes of length
    one. `space`: the shape in which the pieces lie, if an axis of the result's `shape` is several
    of its axes; the result has C order then. `structure` is what a plan depends on: no size, index
    or step is in it.
    """

    __slots__ = ("__weakref__", "pieces", "shape", "space", "structure", "wholes")

    def __init__(
        self, shape: Shape, pieces: tuple[Piece, ...], wholes: tuple[bool, ...], space: Space
    ) -> None:
        self.shape = shape
        self.pieces = pieces
        self.wholes = wholes
        self.space = space
        parts = [
            (piece.source, whole, *[axis for axis, _ in piece.steps])
            for piece, whole in zip(pieces, wholes, strict=True)
        ]
        self.structure = (space is not None, *parts)

    def __repr__(self) -> str:
        return f"<{len(self.pieces)} pieces>"

    @property
    def divides(self) -> bool:
        """Whether a kernel that reads through it has its domain divided."""
        return len(self.pieces) > 1 or self.space is not None


_moves = cached(4096)(Moves)
"""The map of these pieces, the same object for equal ones."""


def mapped(
    shape: Shape, pieces: Iterable[Piece], sources: Sequence[Shape], space: Space = None
) -> Moves:
    """The map of these pieces of sources with these shapes; empty pieces are left out."""
    kept = tuple([piece for piece in pieces if 0 not in piece.shape])
    wholes = []
    for piece in kept:
        source = sources[piece.source]
        pairs = zip(piece.steps, piece.shape, strict=True)
        own = [(*step, n) for step, n in pairs if n != 1 or step[0] >= 0]
        wholes.append(own == [(axis, 1, n) for axis, n in enumerate(source)])
    return _moves(shape, kept, tuple(wholes), space)


@cached(4096)
def of_view(layout: Layout, shape: Shape, perm: Perm) -> Piece | None:
    """A view of packed memory as a piece; None where axes of one and the other are not pairs."""
    maps = axis_maps(layout, shape, perm)
    steps = [(-1, 0)] * len(layout.shape)
    for axis, (_, along) in enumerate(maps or ()):
        for at, step in along:
            if len(along) > 1 or steps[at][0] >= 0:
                return None
            steps[at] = axis, step
    if maps is None or 0 in shape:
        return None
    first = tuple([start for start, _ in maps])
    return Piece((0,) * len(layout.shape), layout.shape, 0, first, tuple(steps))


@cached(4096)
def axis_maps(layout: Layout, shape: Shape, perm: Perm) -> tuple[AxisMap, ...] | None:
    """A view as index maps, one for each axis of its base; None if it is not such a view.

    A window that stays inside the base on every axis has one index there for each of its elements,
    and the flat memory has it once: so maps that give the right flat indices are the right ones.
    """
    if not size_of(layout.shape):
        return None
    strides = contiguous_strides(shape, perm)
    axes = perm or range(len(shape))
    starts = [0] * len(shape)
    left = layout.offset
    for axis in axes:
        starts[axis], left = divmod(left, strides[axis])
    maps: list[list[tuple[int, int]]] = [[] for _ in shape]
    low, high = list(starts), list(starts)
    for window_axis, (length, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        if length == 1 or not stride:
            continue
        found = _steps(stride, length, axes, strides, shape, starts)
        if found is None:
            return None
        for axis, step in found:
            maps[axis].append((window_axis, step))
            reach = step * (length - 1)
            low[axis] += min(reach, 0)
            high[axis] += max(reach, 0)
    if any(a < 0 or b >= n for a, b, n in zip(low, high, shape, strict=True)):
        return None
    return tuple([AxisMap(s, tuple(steps)) for s, steps in zip(starts, maps, strict=True)])


def _steps(
    stride: int,
    length: int,
    axes: Sequence[int],
    strides: Sequence[int],
    shape: Shape,
    starts: Sequence[int],
) -> list[tuple[int, int]] | None:
    """A step in memory as steps along axes that `length` of them stay inside."""
    if not stride:
        return []
    if not axes:
        return None
    axis, rest = axes[0], axes[1:]
    own = strides[axis]
    below = stride // own if own else 0
    for step in dict.fromkeys((below, below + 1, 0)):
        end = starts[axis] + step * (length - 1)
        if not 0 <= end < shape[axis]:
            continue
        found = _steps(stride - step * own, length, rest, strides, shape, starts)
        if found is not None:
            return [(axis, step), *found] if step else found
    return None


def of_node(node: Node) -> Moves:
    """The map of a node that is one, or of a view that a piece describes."""
    if type(node.arg) is Moves:
        return node.arg
    base = node.src[0]
    piece = of_view(node.arg, base.shape, base.perm)
    assert piece is not None, "a plan reads a view through a map where there is one"
    return mapped(piece.shape, (piece,), (base.shape,))


def shown_of(piece: Piece, shape: Shape, perm: Perm) -> Layout:
    """What a piece shows of a source, in the source's packed memory."""
    strides = contiguous_strides(shape, perm)
    offset = sum([low * stride for low, stride in zip(piece.first, strides, strict=True)])
    steps = [step * strides[axis] if axis >= 0 else 0 for axis, step in piece.steps]
    return Layout(offset, piece.shape, tuple(steps))


def layout_of(arg: Moves, number: int, perm: Perm) -> Layout:
    """Where a piece lies in the packed memory of the result."""
    piece = arg.pieces[number]
    strides = contiguous_strides(arg.space or arg.shape, perm)
    offset = sum([low * stride for low, stride in zip(piece.start, strides, strict=True)])
    return Layout(offset, piece.shape, strides)


def stored_of(arg: Moves, number: int, perm: Perm) -> Layout:
    """The same for a source that is shown as a whole, in its own axes."""
    offset, shape, strides = layout_of(arg, number, perm)
    own = [at for at, (axis, _) in enumerate(arg.pieces[number].steps) if axis >= 0]
    return Layout(offset, tuple([shape[at] for at in own]), tuple([strides[at] for at in own]))


def box(start: Shape, shape: Shape) -> Any:
    """The key of a box of an array; what it gives is a view even if there are no axes."""
    key = [slice(low, low + length) for low, length in zip(start, shape, strict=True)]
    return (*key, ...)


def assemble(target: Array, parts: Iterable[Part], copy: Callable[[Array, Array], None]) -> Array:
    """Fill an array with parts of it: `copy` takes a target and what goes there."""
    for start, part in parts:
        copy(target[box(start, part.shape)], part)
    return target


def factors(shape: Shape, space: Shape) -> list[Shape]:
    """For each axis of a result, the axes of the space that it consists of."""
    found: list[Shape] = []
    axes = iter(space)
    for length in shape:
        own = [next(axes)]
        while size_of(tuple(own)) < length:
            own.append(next(axes))
        found.append(tuple(own))
    return found


def seen(parts: Iterable[Part], shape: Shape, piece: Piece) -> list[Part]:
    """What a piece shows of a source of this shape that lies in `parts`: boxes of the result.

    The source may have fewer axes than the piece names, or axes of length one: it is broadcast.
    """
    missing = len(piece.first) - len(shape)
    first = [0 if n == 1 else piece.first[missing + axis] for axis, n in enumerate(shape)]
    along: dict[int, int] = {}  # axis of the source -> axis of the result
    for at, (axis, _) in enumerate(piece.steps):
        if axis >= missing and shape[axis - missing] != 1:
            along[axis - missing] = at
    found = [_box_of(part, first, along, piece) for part in parts]
    return [each for each in found if each is not None]


def _box_of(part: Part, first: Sequence[int], along: dict[int, int], piece: Piece) -> Part | None:
    """The box of a piece that lies in one part of the source; None if there is none."""
    start, array = part
    low, size = list(piece.start), list(piece.shape)
    key: list[int | slice] = []
    for axis, begin in enumerate(first):
        begin -= start[axis]
        at = along.get(axis)
        step, count = (0, 1) if at is None else (piece.steps[at][1], piece.shape[at])
        inside = _within(begin, step, count, array.shape[axis])
        if not inside:
            return None
        if at is None:
            key.append(begin)
            continue
        low[at] += inside.start
        size[at] = len(inside)
        begin += inside.start * step
        end = begin + len(inside) * step
        key.append(
            slice(begin, end if end >= 0 else None, step) if step else slice(begin, begin + 1)
        )
    view = array[(*key, ...)]  # a view even if no axis is left
    axes = [along[axis] for axis in sorted(along)]
    view = view.transpose(sorted(range(len(axes)), key=axes.__getitem__))
    new = tuple([slice(None) if at in axes else None for at in range(len(size))])
    shape = tuple(size)
    view = view[new]
    return tuple(low), view if view.shape == shape else np.broadcast_to(view, shape)


def _within(begin: int, step: int, count: int, length: int) -> range:
    """Which of `count` steps from `begin` lead to an index below `length`, and not below zero."""
    if step == 0:
        return range(count) if 0 <= begin < length else range(0)
    if step < 0:  # the same from the other end
        begin, step = length - 1 - begin, -step
    low, high = -(begin // step), (length - 1 - begin) // step
    return range(max(0, low), min(count, high + 1))
