"""How many references exist to an object.

Decisions about memory ask this: whether a run may overwrite values or take a buffer, whether
recorded work must store a result. References of attributes, containers and assigned names count on
every interpreter. The references that a call's arguments and parameters borrow differ: Python 3.14
does not count them, older versions do.

So callers follow one rule: subtract the references of lazyfuse's attributes and containers, never
those of names, and keep no name for the object meanwhile. Then the count has every other reference,
and a reference too many only makes the object look held. Importing this module measures `of`
itself; if the figures do not add up, every object looks held: results stay right, but get slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import Any

MANY = 1 << 40
"""The count of every object where references cannot be counted."""
IN_SLOT = 1
"""The `count` of a value that one slot holds."""
in_method = 0
"""The count of `self` in `ndarray.resize` where one name of the caller holds it."""

_call = 0  # references that exist only while `_of` counts
_mapped = 0  # the same of `_of_each`


def _of(*things: Any) -> int:
    return getrefcount(*things) - _call


def _of_each(things: Iterable[Any]) -> list[int]:
    return [count - _mapped for count in map(getrefcount, things)]


class _Holder:
    __slots__ = ("slot",)

    def __init__(self) -> None:
        self.slot: Any = object()

    def in_method(self, /, *things: Any, count: Callable[..., int]) -> int:
        """The count of `self` in a method that takes any arguments."""
        if any(each is self for each in things):  # a closure's name is another reference
            return 0
        return count(self)


def check(of: Any, of_each: Any) -> str:
    """What does not add up; empty if all figures do."""
    one, other = _Holder(), _Holder()
    if of(one.slot) != 1:
        return "a slot"
    listed = [one.slot, one.slot, other.slot]
    if of(one.slot) != 3 or of(listed[2]) != 2 or of_each(listed) != [3, 3, 2]:
        return "a list"
    pair = (one.slot, other.slot)
    del listed
    if of(one.slot) != 2 or of_each(pair) != [2, 2]:
        return "a tuple"
    name = other.slot
    if of(other.slot) < 3 or of(name) < 3 or of(pair[1]) < 3:
        return "a name"
    del name, pair
    if of(one.slot) != 1 or of(other.slot) != 1:
        return "what was let go of"
    other.slot = one.slot
    if of(one.slot) != 2:
        return "two slots"
    return ""


def _in_slot() -> int:
    """The `getrefcount` of a value that one slot holds; an error if it varies."""
    holder = _Holder()
    found = {getrefcount(holder.slot) for _ in range(1000)}  # interpreters specialise repeated code
    other = [holder.slot]
    more = {getrefcount(holder.slot) for _ in range(1000)}
    del other
    if len(found) != 1 or more != {min(found) + 1}:
        raise ValueError("values of slots")
    return found.pop()


def _measured() -> str:
    """Measure what this interpreter counts for calls themselves; why it cannot be used, if so."""
    global _call, _mapped, IN_SLOT, in_method
    try:
        holder = _Holder()
        _call = _of(holder.slot) - 1
        _mapped = _of_each([holder.slot])[0] - 2
        IN_SLOT = _in_slot()
        in_method = holder.in_method(count=_of)
        wrong = check(_of, _of_each)
    except Exception as error:  # an interpreter without counts
        wrong = str(error) or type(error).__name__
    return f"references cannot be counted here: {wrong}" if wrong else ""


def _unknown(*things: Any) -> int:
    return MANY


def _unknown_each(things: Iterable[Any]) -> list[int]:
    return [MANY for _ in things]


trouble = _measured()
"""Why references cannot be counted; empty: they can."""
of: Callable[..., int] = _unknown if trouble else _of
"""`of(x)`: the references to `x`; `MANY` where they cannot be counted."""
of_each: Callable[[Iterable[Any]], list[int]] = _unknown_each if trouble else _of_each
"""`of_each(things)`: the same for each element, with the references of `things` itself."""
count: Callable[[Any], int] = _unknown if trouble else getrefcount
"""`count(x.name) > IN_SLOT`: whether more than a slot holds it. Faster than `of`, but for values of
slots only: the count differs for a name."""
