"""Operands that a kernel reads through maps of indices, and the boxes of its domain.

Owns `Moved`, what an operand is whose elements lie in several places, and how a kernel's domain is
cut so that in each box every operand is an ordinary array. Knows numpy arrays and index maps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph import interpret
from lazyfuse.codegen.graph.moves import (
    Moves,
    Part,
    Shape,
    Space,
    assemble,
    factors,
    of_node,
    seen,
)
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.layout.meta_arrays import address

Array = np.ndarray[Any, np.dtype[Any]]
Ints = tuple[int, ...]

MOST_BOXES = 64
"""Boxes of a domain; where there would be more, a kernel reads a copy. 27 are those of a border in
three dimensions; one costs a row of arguments and the start of a loop."""


class Moved:
    """An operand in parts that lie in different places; `space`: in which shape, if not its own."""

    __slots__ = ("dtype", "parts", "shape", "sources", "space")

    def __init__(self, shape: Shape, dtype: np.dtype[Any], space: Space = None) -> None:
        self.shape = shape
        self.dtype = dtype
        self.space = space
        self.parts: list[Part] = []
        self.sources: list[int] = []  # per part: parts with one number lie in one array

    def add(self, sources: Sequence[Array | Moved], arg: Moves) -> Moved:
        """The parts that a map shows of its sources."""
        for piece in arg.pieces:
            source = sources[piece.source]
            inner: Sequence[tuple[int, Part]]
            if isinstance(source, Moved):
                inner = list(zip(source.sources, source.parts, strict=True))
            else:
                inner = [(address(source), ((0,) * source.ndim, source))]
            for number, part in inner:
                found = seen([part], source.shape, piece)
                self.parts += found
                self.sources += [number] * len(found)
        return self

    def over(self, arrays: Iterator[Array]) -> Moved:
        """The same with other arrays for its parts."""
        changed = Moved(self.shape, self.dtype, self.space)
        for (start, array), number in zip(self.parts, self.sources, strict=True):
            other = next(arrays)
            changed.parts.append((start, other))
            changed.sources.append(number if other is array else address(other))
        return changed

    def arrays(self) -> list[Array]:
        return [array for _, array in self.parts]

    @property
    def divides(self) -> bool:
        """Whether a kernel that reads it has its domain divided."""
        return len(self.parts) > 1 or self.space is not None

    def factors(self) -> list[Shape]:
        """The parts that each axis has in its space."""
        return [(n,) for n in self.shape] if self.space is None else factors(self.shape, self.space)


def loaded(operands: Sequence[Array | Moved]) -> list[Array]:
    """The arrays that a kernel loads."""
    found: list[Array] = []
    for each in operands:
        found += each.arrays() if isinstance(each, Moved) else (each,)
    return found


def reloaded(operands: Sequence[Array | Moved], arrays: Sequence[Array]) -> list[Array | Moved]:
    """The operands with these arrays in place of those of `loaded`: some may be copies."""
    rest = iter(arrays)
    return [each.over(rest) if isinstance(each, Moved) else next(rest) for each in operands]


Others = tuple[tuple[Shape, Ints], ...]


@dataclass(frozen=True)
class Box:
    """A box of a kernel's domain with its operands, and other boxes that lie relative to it.

    `others`: sizes of a box, and the distance of each array's first element from that of `arrays`.
    """

    shape: Shape
    arrays: list[Array]
    others: Others = ()


def divided(
    shape: Shape, inputs: Sequence[Array | Moved], outputs: Sequence[Array], apart: bool
) -> list[Box]:
    """The boxes of a domain in which every operand is an array; none where they are too many.

    `apart`: each by itself, as devices run them whose offsets count from the start of a block.
    """
    if any(isinstance(each, Moved) and each.space is not None for each in inputs):
        finer = _finer(shape, inputs, outputs)
        if finer is None:
            return []
        shape, inputs, outputs = finer
    cuts = [{0, length} for length in shape]
    for each in inputs:
        if isinstance(each, Moved):
            missing = len(shape) - len(each.shape)
            for start, array in each.parts:
                for axis, (low, length) in enumerate(zip(start, array.shape, strict=True), missing):
                    if each.shape[axis - missing] != 1:
                        cuts[axis] |= {low, low + length}
    edges = [list(itertools.pairwise(sorted(cut))) for cut in cuts]
    if size_of(tuple(map(len, edges))) > MOST_BOXES:
        return []
    found: list[tuple[Box, Ints]] = []
    for bounds in itertools.product(*edges):
        start = tuple([low for low, _ in bounds])
        size = tuple([high - low for low, high in bounds])
        arrays, numbers = [], []
        for each in inputs:
            array, number = _within(each, start, size)
            arrays.append(array)
            numbers.append(number)
        arrays += [_part(array, start, size) for array in outputs]
        found.append((Box(size, arrays), tuple(numbers)))
    return [each for each, _ in found] if apart else _joined(found)


def _finer(
    shape: Shape, inputs: Sequence[Array | Moved], outputs: Sequence[Array]
) -> tuple[Shape, list[Array | Moved], list[Array]] | None:
    """A domain and its operands with its axes divided as the spaces of operands are; None if those
    differ, or if parts of other operands end inside of an axis.
    """
    axes: list[Shape] = [(n,) for n in shape]
    for each in inputs:
        if isinstance(each, Moved):
            for at, own in enumerate(each.factors(), len(shape) - len(each.shape)):
                if len(own) > 1:
                    if axes[at] not in (own, (shape[at],)):
                        return None
                    axes[at] = own
    changed: list[Array | Moved] = []
    for each in inputs:
        own_axes = axes[len(axes) - len(each.shape) :]
        if isinstance(each, Moved):
            finer = _finer_parts(each, own_axes)
            if finer is None:
                return None
            changed.append(finer)
        else:
            changed.append(each.reshape(_split(each.shape, own_axes)))
    return sum(axes, ()), changed, [each.reshape(_split(each.shape, axes)) for each in outputs]


def _split(shape: Shape, axes: Sequence[Shape]) -> Shape:
    found: Shape = ()
    for n, own in zip(shape, axes, strict=True):
        found += own if n == size_of(own) else (1,) * len(own)
    return found


def _finer_parts(moved: Moved, axes: Sequence[Shape]) -> Moved | None:
    """The same operand where its axes are divided; None if a part ends inside of one of them."""
    changed = Moved(_split(moved.shape, axes), moved.dtype)
    changed.sources = moved.sources
    for start, array in moved.parts:
        low: Shape = ()
        size: Shape = ()
        at = 0
        for own, wanted in zip(moved.factors(), axes, strict=True):
            end = at + len(own)
            if len(own) == len(wanted):
                low += start[at:end]
                size += array.shape[at:end]
            elif array.shape[at] == own[0]:
                low += (0,) * len(wanted)
                size += _split(own, [wanted])
            else:
                return None
            at = end
        changed.parts.append((low, array.reshape(size)))
    return changed


def _within(each: Array | Moved, start: Shape, size: Shape) -> tuple[Array, int]:
    """The elements of an operand in a box of the domain, and a number for the array they lie in."""
    if not isinstance(each, Moved):
        return _part(each, start, size), 0
    missing = len(start) - len(each.shape)
    for (low, array), number in zip(each.parts, each.sources, strict=True):
        key = []
        for axis, (begin, length) in enumerate(zip(low, array.shape, strict=True)):
            if each.shape[axis] == 1:
                key.append(slice(None))
                continue
            first = start[axis + missing] - begin
            if not 0 <= first < length:
                break
            key.append(slice(first, first + size[axis + missing]))
        else:
            return array[tuple(key)], number
    raise AssertionError("the pieces of a map cover its result")


def _part(array: Array, start: Shape, size: Shape) -> Array:
    missing = len(start) - array.ndim
    key = []
    for axis, length in enumerate(array.shape, missing):
        low = start[axis]
        key.append(slice(None) if length == 1 else slice(low, low + size[axis]))
    return array[tuple(key)]


def _joined(boxes: list[tuple[Box, Ints]]) -> list[Box]:
    """Boxes whose arrays lie alike, as parts of one loop nest."""
    boxes.sort(key=lambda each: -size_of(each[0].shape))
    groups: list[tuple[Box, Ints, list[Any], list[tuple[Shape, Ints]]]] = []
    for box_, numbers in boxes:
        steps = _steps(box_)
        for first, its_numbers, its_steps, others in groups:
            if numbers != its_numbers or not _agree(steps, its_steps):
                continue
            distances = [
                address(array) - address(other)
                for array, other in zip(box_.arrays, first.arrays, strict=True)
            ]
            sizes = [array.itemsize for array in first.arrays]
            if any(way % size for way, size in zip(distances, sizes, strict=True)):
                continue
            far = tuple([way // size for way, size in zip(distances, sizes, strict=True)])
            others.append((box_.shape, far))
            break
        else:
            groups.append((box_, numbers, steps, []))
    return [
        Box(first.shape, first.arrays, tuple(others)) if others else first
        for first, _, _, others in groups
    ]


def _steps(box_: Box) -> list[Any]:
    """Per axis: the strides of all arrays, None if the box is one element long there."""
    rank = len(box_.shape)
    found: list[Any] = []
    for axis in range(rank):
        if box_.shape[axis] == 1:
            found.append(None)
            continue
        strides = []
        for array in box_.arrays:
            own = axis - rank + array.ndim
            strides.append(0 if own < 0 or array.shape[own] == 1 else array.strides[own])
        found.append(tuple(strides))
    return found


def _agree(steps: list[Any], first: list[Any]) -> bool:
    """Whether a box may run in the loops of a larger one, which has every axis that it has."""
    return all(own is None or own == other for own, other in zip(steps, first, strict=True))


def shown(run: Any, index: int) -> Moved:
    """What a map of indices shows of its sources in a run."""
    value = run.plan.graph.values[index]
    arg = of_node(run.nodes[value.origin])
    sources = [run.operand(source) for source in value.src]
    sources = [
        run.gathered(each) if isinstance(each, Moved) and each.space is not None else each
        for each in sources
    ]
    return Moved(run.shape(index), value.dtype, arg.space).add(sources, arg)


def assembled(run: Any, index: int) -> Array:
    """The same as an array of its own in host memory."""
    value = run.plan.graph.values[index]
    sources = [run.host(source) for source in value.src]
    arg = of_node(run.nodes[value.origin])
    return interpret.assembled(arg, run.shape(index), value.dtype, value.perm, sources)


def as_array(operand: Array | Moved) -> Array:
    """An operand of a run in host memory as one array."""
    if not isinstance(operand, Moved):
        return operand
    found = np.empty(operand.space or operand.shape, operand.dtype)
    return assemble(found, operand.parts, np.copyto).reshape(operand.shape)
