"""Who holds an object: how many references exist to it.

Decisions about memory ask this: whether values may be written over, whether a buffer may be taken,
whether recorded work must store a result. Counted are references that exist on every interpreter:
those of attributes, containers and names that were assigned to. What an interpreter lends to a
call, to its arguments and to parameters, differs: Python 3.14 does not count it, older ones do.

So there is one rule for callers: subtract what attributes and containers of ours hold, never what a
name does, and let no name hold the object meanwhile. Then whatever else holds it is counted, and a
reference too many only makes it look held. `of` itself is measured when this module is imported;
where that does not add up, every object looks held by many: results stay right, and get slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import Any

MANY = 1 << 40
"""So many references an object has where they cannot be counted."""
IN_SLOT = 1
"""What `count` finds for a value that one slot holds."""
in_method = 0
"""What `ndarray.resize` finds for a `self` that one name of its caller's holds."""

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
        """What a method finds that takes any arguments and asks who holds `self`."""
        if any(each is self for each in things):  # a name that a closure uses is another reference
            return 0
        return count(self)


def check(of: Any, of_each: Any) -> str:
    """What does not add up; empty if everything does."""
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
    """What `getrefcount` finds for a value that one slot holds: always the same, or an error."""
    holder = _Holder()
    found = {getrefcount(holder.slot) for _ in range(1000)}  # interpreters learn by repetition
    other = [holder.slot]
    more = {getrefcount(holder.slot) for _ in range(1000)}
    del other
    if len(found) != 1 or more != {min(found) + 1}:
        raise ValueError("values of slots")
    return found.pop()


def _measured() -> str:
    """Find out what this interpreter counts for calls themselves; why that is of no use, if so."""
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
"""`of(x)`: the references to `x`. Where they cannot be counted: `MANY`."""
of_each: Callable[[Iterable[Any]], list[int]] = _unknown_each if trouble else _of_each
"""`of_each(things)`: the same for each of them, with those that `things` itself holds."""
count: Callable[[Any], int] = _unknown if trouble else getrefcount
"""`count(x.name) > IN_SLOT`: whether more than a slot holds it. Quicker than `of`, and for values
of slots alone: what it finds for a name differs."""
