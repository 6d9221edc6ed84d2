"""Where our values leave for code that knows nothing but NumPy: as NumPy's own.

Owns the conversion (`outside`), what happens to an argument on its way into another library
(`argument`), and the decorator for functions of the user's whose answers go there (`answering`).
Which libraries have such entrances is told in library_adapters.py.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import OURS, export, gather, ndarray
from lazyfuse.devices.caches import CONSTANT, cached
from lazyfuse.interop.entrance_code import USERS, Suspects
from lazyfuse.registry import THEIRS, builtin

_PAIRED: set[type] = {FunctionType, builtin, type, type(ndarray)}  # what may be in THEIRS
_FEW = 8  # a longer list is searched for values of ours by the set of its types

# ---------------------------------------------------------------------------------- conversion


def outside(value: Any) -> Any:
    """`value` with NumPy's arrays, numbers and functions in the place of ours, however nested."""
    return _inner(value, {}, 0)


def _single(value: Any) -> Any:
    kind = type(value)
    if kind is ndarray:
        return export(value)
    if kind in OURS:
        return gather(value)[()]
    if kind in _PAIRED:
        return THEIRS.get(value, value)
    return value


def _inner(value: Any, seen: _Seen, depth: int) -> Any:
    """Part of a container. Those that were met before, even around this one, are known."""
    try:
        convert = _CONTAINERS.get(type(value))
    except Exception:  # its metaclass forbids to look it up, so it is no class of ours
        return value
    if convert is None:
        return _single(value)
    if id(value) not in seen:
        if depth > _DEEPEST:
            return value
        seen[id(value)] = value
        seen[id(value)] = convert(value, seen, depth + 1)
    return seen[id(value)]


def register_type(kind: type) -> None:
    """Say that objects of type `kind` may stand for NumPy's in the registry."""
    _PAIRED.add(kind)


def _items(value: Any, seen: _Seen, depth: int) -> Any:
    if len(value) > _FEW and not _may_hold_ours(value):
        return value
    there = tuple(value)  # a finaliser or another thread may change a list meanwhile
    items = [_inner(item, seen, depth) for item in there]
    if all(map(operator.is_, items, there)):
        return value
    return items if type(value) is list else tuple(items)


def _dict(value: dict[Any, Any], seen: _Seen, depth: int) -> dict[Any, Any]:
    there = dict(value)
    made = {key: _inner(item, seen, depth) for key, item in there.items()}
    return value if all(map(operator.is_, made.values(), there.values())) else made


def _slice(value: slice, seen: _Seen, depth: int) -> slice:
    parts = (value.start, value.stop, value.step)
    there = [_inner(part, seen, depth) for part in parts]
    return value if all(map(operator.is_, there, parts)) else slice(*there)


_Seen = dict[int, Any]
_CONTAINERS: dict[type, Callable[[Any, _Seen, int], Any]] = {
    list: _items,
    tuple: _items,
    dict: _dict,
    slice: _slice,
}
_ORDINARY = frozenset(
    (bool, int, float, str, type(None), np.ndarray, np.float64, np.bool, np.int64)
)
_DEEPEST = 64  # NumPy's arrays have no more axes


def _may_hold_ours(values: Iterable[Any]) -> bool:
    try:
        kinds = set(map(type, values))
    except Exception:  # as above
        return True
    return not OURS.isdisjoint(kinds) or not kinds.isdisjoint(_CONTAINERS)


# ------------------------------------------------------------------------ libraries' arguments

KNOWN = {"lazyfuse", "numpy"}
"""Packages whose functions are not the user's: library_adapters.py adds those with entrances."""

_CALLABLE = (FunctionType, MethodType, functools.partial)


@cached(1, CONSTANT, clears=False)
def suspects() -> Suspects:
    """What entrances look for: types that are, may hold, or may answer with values of ours."""
    types = frozenset((*OURS, *_PAIRED, *_CALLABLE, *_CONTAINERS))

    def any_of(values: Iterable[Any]) -> bool:
        try:
            for value in values:  # quicker than `any` of so few
                if type(value) in types:
                    return True
        except Exception:  # a metaclass forbids to look it up: `argument` knows what to do
            return True
        return False

    return Suspects(
        types,
        argument,
        any_of,
        lambda named: any_of(named.values()),
        lambda values: tuple(map(argument, values)),
        lambda named: {k: x if k == USERS else argument(x) for k, x in named.items()},
    )


def argument(value: Any) -> Any:
    """An argument on its way in: values are converted, and so is what functions will return."""
    kind = type(value)
    if kind is slice:
        if _is_plain((value.start, value.stop, value.step)):
            return value
    elif kind is tuple or kind is list:
        if len(value) <= _FEW and _is_plain(value):
            return value
    elif kind in _CALLABLE and _is_the_users(value):
        return answering(value)
    return outside(value)


def _is_plain(values: Iterable[Any]) -> bool:
    """Whether all values are of types that most keys are made of: answers fast."""
    try:
        for value in values:
            if type(value) not in _ORDINARY:
                return False
    except Exception:  # as above
        return False
    return True


def _is_the_users(function: Any) -> bool:
    while type(function) is functools.partial:
        function = function.func
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    return package not in KNOWN and type(function) in _CALLABLE


class answering:  # noqa: N801  # used as a decorator
    """A user's function whose answers become NumPy's. Pickles if the function does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self.function(*args, **kwargs)
        return found if type(found) in _ORDINARY else outside(found)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else answering(MethodType(self.function, instance))

    def __reduce__(self) -> Any:
        return answering, (self.function,)
