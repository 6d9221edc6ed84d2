"""What a loop goes over, by index: ranges, arrays, `enumerate`, `zip` and `reversed` of these."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import ndarray

NAMES = ("enumerate", "zip", "reversed")
MARK = "items{}__"
"""The names of what such calls are given, in the text of a compiled loop."""


class Listed:
    """A list that a loop goes over, by its iterator: what the loop changes in it counts."""

    __slots__ = ("at", "items", "iterator")

    def __init__(self, items: Any) -> None:
        self.items, self.iterator, self.at = items, iter(items), 0

    def __len__(self) -> int:
        return self.at + self.iterator.__length_hint__()  # type: ignore[no-any-return]

    def __getitem__(self, part: slice) -> Iterable[Any]:
        if self.at != part.start:
            self.iterator.__setstate__(part.start)
        self.at = part.stop
        return itertools.islice(self.iterator, part.stop - part.start)


class Items:
    """The call of one of these functions, whose turns can be cut into parts."""

    __slots__ = ("function", "given", "start")

    def __init__(self, function: Any, given: tuple[Any, ...], start: int) -> None:
        self.function, self.start = function, start
        self.given = tuple([Listed(x) if type(x) in _CHANGING else x for x in given])

    def __len__(self) -> int:
        return min(map(len, self.given))

    def __getitem__(self, part: slice) -> Iterable[Any]:
        first, last = part.start, part.stop
        if self.function is reversed:
            first, last = len(self) - last, len(self) - first
        cut = [each[first:last] for each in self.given]
        return self.function(*cut, self.start + first) if self.start >= 0 else self.function(*cut)  # type: ignore[no-any-return]


_CHANGING = (list, bytearray)
_CUT = {range, Items, Listed, ndarray, np.ndarray, tuple, bytes, str, *_CHANGING}


def cut(items: Any) -> Any:
    """What gives parts of these items, from the first to the last."""
    return Listed(items) if type(items) in _CHANGING else items


def length(items: Any) -> int:
    """How many turns a loop over it has; -1 if it cannot be cut."""
    if type(items) not in _CUT:
        return -1
    try:
        return len(items)
    except TypeError:  # an array without axes
        return -1


def items_of(function: Any, *given: Any, **named: Any) -> Any:
    """`function(*given, **named)`, cut into parts where that can be done."""
    start = -1
    sources = given
    if function is enumerate and named.keys() <= {"start"} and len(given) + len(named) in (1, 2):
        start = [*given[1:], *named.values(), 0][0]
        sources = given[:1]
        known = type(start) is int and start >= 0
    elif named:
        known = False
    elif function is reversed:
        known = len(given) == 1 and type(given[0]) not in (Items, *_CHANGING)
    else:
        known = function is zip and given != ()
    if known and all(length(each) >= 0 for each in sources):
        return Items(function, sources, start)
    plain = [each[0 : len(each)] if type(each) is Items else each for each in given]
    return function(*plain, **named)


def form(items: Any, leaves: list[Any]) -> str:
    """The text of the call, with marks for arrays, ranges and numbers: they go to a list."""
    if type(items) is not Items:
        leaves.append(items.items if type(items) is Listed else items)
        return MARK.format(len(leaves) - 1)
    given = [form(each, leaves) for each in items.given]
    if items.start > 0:
        leaves.append(items.start)
        given.append(MARK.format(len(leaves) - 1))
    return f"{items.function.__name__}({', '.join(given)})"
