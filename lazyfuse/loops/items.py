"""What a loop goes over, by index: ranges, arrays, `enumerate`, `zip` and `reversed` of these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import geometry, ndarray

NAMES = ("enumerate", "zip", "reversed")
MARK = "items{}__"
"""The names of what such calls are given, in the text of a compiled loop."""


class Items:
    """The call of one of these functions, whose turns can be cut into parts."""

    __slots__ = ("count", "function", "given", "start")

    def __init__(self, function: Any, given: tuple[Any, ...], start: int) -> None:
        self.function, self.given, self.start = function, given, start
        self.count = min(map(length, given))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> Iterable[Any]:
        first, last = part.start, part.stop
        if self.function is reversed:
            first, last = self.count - last, self.count - first
        cut = [each[first:last] for each in self.given]
        return self.function(*cut, self.start + first) if self.start >= 0 else self.function(*cut)  # type: ignore[no-any-return]


def length(items: Any) -> int:
    """How many turns a loop over it has; -1 if it cannot be cut."""
    kind = type(items)
    if kind is range or kind is Items:
        return len(items)
    real = geometry(items) if kind is ndarray else items
    return len(real) if kind in (ndarray, np.ndarray) and real.ndim else -1


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
        known = len(given) == 1 and type(given[0]) is not Items
    else:
        known = function is zip and given != ()
    if known and all(length(each) >= 0 for each in sources):
        return Items(function, sources, start)
    plain = [each[0 : len(each)] if type(each) is Items else each for each in given]
    return function(*plain, **named)


def form(items: Any, leaves: list[Any]) -> str:
    """The text of the call, with marks for arrays, ranges and numbers: they go to a list."""
    if type(items) is not Items:
        leaves.append(items)
        return MARK.format(len(leaves) - 1)
    given = [form(each, leaves) for each in items.given]
    if items.start > 0:
        leaves.append(items.start)
        given.append(MARK.format(len(leaves) - 1))
    return f"{items.function.__name__}({', '.join(given)})"
