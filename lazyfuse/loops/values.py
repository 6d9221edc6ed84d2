"""What expressions of a loop stand for in its text: numbers, elements, arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lazyfuse.loops.kinds import ArrayKind

BITS = {"i1": 8, "u1": 8, "i2": 16, "u2": 16, "i4": 32, "u4": 32}
"""How large integers of these dtypes are."""
ZERO, ONE = "int64(0)", "int64(1)"


class Number(NamedTuple):
    """A number in the text."""

    text: str
    kind: str
    bits: int = 63
    """An integer is smaller than 2 to this power."""
    tag: str = ""
    """Of a kind that is a union: whether the number is NumPy's."""


class Part(NamedTuple):
    """A view of an array: where it begins, how long its axes are, how far apart elements are."""

    pointer: str
    first: str
    sizes: tuple[str, ...]
    steps: tuple[str, ...]
    code: str
    view: View | None = None
    """What a name that holds it would be."""
    keys: tuple[str, ...] = ()
    """The indices that make it; along its own axes, the first element."""

    def at(self, places: Sequence[str]) -> str:
        """The offset of an element."""
        return total([self.first, *map(times, places, self.steps)])

    def is_ours(self) -> bool:
        """Whether it lies in working memory."""
        return not self.pointer.endswith("_p")

    def is_flat(self) -> bool:
        """Whether its elements lie side by side, as far as the text knows."""
        return self.steps == side_by_side(self.sizes)


class View(NamedTuple):
    """The kind of a name that the loop gives a part of an array along these axes."""

    base: str
    axes: tuple[int, ...]


class Array(NamedTuple):
    """An array, or a view, that a name holds."""

    name: str
    kind: ArrayKind
    axes: tuple[int, ...]
    first: str
    sizes: tuple[str, ...]
    keys: tuple[str, ...]
    """Of a view: the indices that make it; along its own axes, the first element."""


class Place(NamedTuple):
    """Where an element of an array, or an item of a list, is."""

    owner: ast.expr
    pointer: str
    """The array's pointer, or the list's address."""
    at: str
    code: str
    """The element's dtype, or the item's kind."""


class Elements(NamedTuple):
    """An array, or an expression of arrays, element by element."""

    kind: str
    """Its dtype."""
    sizes: tuple[str, ...]
    size: str
    """How many elements it has."""
    element: Callable[[Sequence[str]], str]
    """The element with these indices."""
    part: Part | None = None
    warns: bool = False
    """Whether its elements are computed by operations of which NumPy may warn."""

    def is_new(self) -> bool:
        """Whether it is an array of its own, in Python."""
        return self.part is None or self.part.is_ours()

    def is_row(self) -> bool:
        """Whether it has one axis."""
        return len(self.sizes) == 1


class Handle(NamedTuple):
    """An array itself, as a name holds it."""

    kind: ArrayKind
    words: tuple[str, ...]


Value = Number | Elements
Item = Value | Handle | tuple[Any, ...]


class Known(ast.expr):
    """An expression whose value is known."""

    def __init__(self, number: Number) -> None:
        self.number = number


def side_by_side(sizes: Sequence[str]) -> tuple[str, ...]:
    """How far apart elements are along each axis, of an array that lies as in C."""
    return tuple([" * ".join(sizes[k + 1 :]) or ONE for k in range(len(sizes))])


def times(place: str, step: str) -> str:
    """How far an index goes."""
    if ZERO in (place, step):
        return ""
    return place if step == ONE else f"{place} * ({step})"


def total(terms: Iterable[str]) -> str:
    """The sum of what is not zero."""
    return " + ".join(each for each in terms if each and each != ZERO) or ZERO
