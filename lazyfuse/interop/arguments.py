"""Arguments on their way into libraries that know only NumPy: exported as NumPy arrays.

Owns the conversion of an argument (`argument`), and the wrapper of the user's functions that a
library calls (`answering`). library_adapters.py lists the libraries.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import EXPORT, suspect_types, to_numpy
from lazyfuse.devices.caches import CONSTANT, cached
from lazyfuse.interop import entrance_code

KNOWN = {"lazyfuse", "numpy"}
"""Packages whose functions are not the user's: library_adapters.py adds the adapted ones."""

_CALLABLE = (FunctionType, MethodType, functools.partial)
_ORDINARY = frozenset(
    (bool, int, float, str, type(None), np.ndarray, np.float64, np.bool, np.int64)
)
_FEW = 8  # items of a container that are checked one by one


@cached(1, CONSTANT, clears=False)
def suspects() -> entrance_code.Suspects:
    """The types that wrappers convert: those that are, may hold, or may return values of ours."""
    types = suspect_types().union(_CALLABLE)

    def any_of(values: Iterable[Any]) -> bool:
        try:
            for value in values:  # faster than `any` for few values
                if type(value) in types:
                    return True
        except Exception:  # a metaclass forbids the lookup: `argument` handles it
            return True
        return False

    return entrance_code.Suspects(
        types,
        argument,
        any_of,
        lambda named: any_of(named.values()),
        lambda values: tuple(map(argument, values)),
        lambda named: {k: x if k == entrance_code.USERS else argument(x) for k, x in named.items()},
    )


@cached(1, CONSTANT, clears=False)
def module_suspects() -> entrance_code.Suspects:
    """The same for functions that are given NumPy as a module, alone or in a list."""
    ours = sys.modules["lazyfuse"]

    def convert(value: Any) -> Any:
        if value is ours:
            return np
        if type(value) in (list, tuple) and any(each is ours for each in value):
            return type(value)(np if each is ours else each for each in value)
        return value

    return suspects()._replace(types=frozenset({type(ours), list, tuple}), convert=convert)


def argument(value: Any) -> Any:
    """Convert an argument for the library: values, and results of the user's functions."""
    kind = type(value)
    if kind is slice:
        if _is_plain((value.start, value.stop, value.step)):
            return value
    elif kind is tuple or kind is list:
        if len(value) <= _FEW and _is_plain(value):
            return value
    elif kind in _CALLABLE and _is_the_users(value):
        return answering(value)
    return to_numpy(value, EXPORT)


def _is_plain(values: Iterable[Any]) -> bool:
    """Whether all values are of the types that most keys consist of: a fast check."""
    try:
        for value in values:
            if type(value) not in _ORDINARY:
                return False
    except Exception:  # a metaclass forbids the lookup
        return False
    return True


def _is_the_users(function: Any) -> bool:
    while type(function) is functools.partial:
        function = function.func
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    return package not in KNOWN and type(function) in _CALLABLE


class answering:  # noqa: N801  # used as a decorator
    """A user's function whose results become NumPy's. Pickles if the function does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self.function(*args, **kwargs)
        return found if type(found) in _ORDINARY else to_numpy(found, EXPORT)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else answering(MethodType(self.function, instance))

    def __reduce__(self) -> Any:
        return answering, (self.function,)
