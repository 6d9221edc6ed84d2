"""What expressions of a loop stand for in its text: numbers, elements, rows, several axes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lazyfuse.loops.kinds import ArrayKind

BITS = {"i1": 8, "u1": 8, "i2": 16, "u2": 16, "i4": 32, "u4": 32}
"""How large integers of these dtypes are."""


class Number(NamedTuple):
    """A number in the text."""

    text: str
    kind: str
    bits: int = 63
    """An integer is smaller than 2 to this power."""
    tag: str = ""
    """Of a kind that is a union: whether the number is NumPy's."""


class Part(NamedTuple):
    """A view of one axis of an array: where it begins, how many elements, how far apart."""

    pointer: str
    first: str
    length: str
    step: str
    code: str
    view: View | None = None
    """What a name that holds it would be."""
    keys: tuple[str, ...] = ()
    """The indices that make it; along its own axis, the first element."""

    def at(self, q: str) -> str:
        """The offset of element q."""
        step = q if self.step == "int64(1)" else f"{q} * {self.step}"
        return step if self.first == "int64(0)" else f"{self.first} + {step}"


class View(NamedTuple):
    """The kind of a name that the loop gives a part of an array along one axis."""

    base: str
    axis: int


class Array(NamedTuple):
    """An array, or a view of one axis, that a name holds."""

    name: str
    kind: ArrayKind
    axes: tuple[int, ...]
    first: str
    sizes: tuple[str, ...]
    keys: tuple[str, ...]
    """Of a view: the indices that made it."""


class Place(NamedTuple):
    """Where an element of an array, or an item of a list, is."""

    owner: ast.expr
    pointer: str
    """The array's pointer, or the list's address."""
    at: str
    code: str
    """The element's dtype, or the item's kind."""


class Row(NamedTuple):
    """An expression of parts, element by element."""

    kind: str
    """Its dtype."""
    length: str
    element: Callable[[str], str]
    part: Part | None = None

    def is_new(self) -> bool:
        """Whether it is an array of its own, in Python."""
        return self.part is None or not self.part.pointer.endswith("_p")


class GridPart(NamedTuple):
    """A view of several axes: where it begins, and how far apart elements are along each."""

    pointer: str
    first: str
    steps: tuple[str, ...]


class Grid(NamedTuple):
    """An expression of arrays of several axes, element by element."""

    kind: str
    sizes: tuple[str, ...]
    length: str
    """How many elements it has."""
    element: Callable[[Sequence[str]], str]
    part: GridPart | None = None
    held: Part | None = None
    """Where its elements lie side by side, if they are in working memory."""


class Handle(NamedTuple):
    """An array itself, as a name holds it."""

    kind: ArrayKind
    words: tuple[str, ...]


Flat = Number | Row
Value = Flat | Grid
Item = Value | Handle | tuple[Any, ...]


class Known(ast.expr):
    """An expression whose value is known."""

    def __init__(self, number: Number) -> None:
        self.number = number


def sizes_of(value: Row | Grid) -> tuple[str, ...]:
    """The lengths of an array's axes."""
    return value.sizes if isinstance(value, Grid) else (value.length,)


def side_by_side(sizes: Sequence[str]) -> list[str]:
    """How far apart elements are along each axis, of an array that lies as in C."""
    return [" * ".join(sizes[k + 1 :]) or "int64(1)" for k in range(len(sizes))]
