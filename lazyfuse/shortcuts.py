"""Functions and methods on small arrays go straight to NumPy.

Owns the check that comes before everything else: when every operand is a direct array or a plain
value, NumPy's own function runs at once and its result is wrapped. What is not so simple goes to
the function that knows how to record it. Importing this module puts the checks in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.array import direct, ndarray, options, wrap
from lazyfuse.registry import OURS, THEIRS

# What a call may hold besides arrays: nothing that could lead to an array of ours.
SIMPLE = frozenset((int, float, complex, bool, type(None), str, type, type(np.dtype("f8"))))
SIMPLE |= {type(np.dtype(char)) for char in "?bhilqBHILQefdgFDG"}

# Reductions and the like: their results are never bigger than what goes in.
METHODS = (
    "sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax",
    "cumsum", "cumprod", "argsort", "round", "searchsorted", "ptp", "trace", "clip", "nonzero",
)  # fmt: skip
# Functions that NumPy's methods of the same name serve, with the keywords that both understand.
FUNCTIONS_BY_METHOD = {
    **dict.fromkeys(("sum", "prod", "mean"), frozenset(("axis", "dtype", "keepdims"))),
    **dict.fromkeys(("min", "max", "any", "all"), frozenset(("axis", "keepdims"))),
    **dict.fromkeys(("argmin", "argmax"), frozenset(("axis", "keepdims"))),
    **dict.fromkeys(("var", "std"), frozenset(("axis", "dtype", "keepdims", "ddof"))),
    **dict.fromkeys(("cumsum", "cumprod"), frozenset(("axis", "dtype"))),
    "argsort": frozenset(("axis",)),
}
FUNCTIONS = (
    "where", "clip", "dot", "matmul", "inner", "outer", "vdot", "round", "around", "diff",
    "count_nonzero", "median", "isclose", "allclose", "array_equal", "bincount", "histogram",
    "searchsorted", "nansum", "nanmean", "nanmax", "nanmin", "roll", "take", "repeat", "tile",
)  # fmt: skip

Real = np.ndarray


def _wrapped(result: Any) -> Any:
    kind = type(result)
    if kind is Real:
        return direct(result) if result.size < options.eager_below else wrap(result)
    if kind is tuple:
        return tuple([_wrapped(item) for item in result])
    return result


def _method(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A method: NumPy's on direct arrays, ours on the others."""

    @functools.wraps(ours)
    def call(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        small = self._small
        if small is not None:
            for value in args:
                if type(value) not in SIMPLE:
                    return ours(self, *args, **kwargs)
            for value in kwargs.values():
                if type(value) not in SIMPLE:
                    return ours(self, *args, **kwargs)
            result = theirs(small, *args, **kwargs)
            return _wrapped(result) if type(result) in (Real, tuple) else result
        return ours(self, *args, **kwargs)

    return call


def _by_method(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is a method of its first argument; the second can only be the axis."""
    keywords = FUNCTIONS_BY_METHOD[theirs.__name__]

    @functools.wraps(ours)
    def call(*args: Any, **kwargs: Any) -> Any:
        if 0 < len(args) < 3 and type(args[0]) is ndarray:
            first, *rest = args
            small = first._small
            if small is not None and kwargs.keys() <= keywords:
                for value in (*rest, *kwargs.values()):
                    if type(value) not in SIMPLE:
                        return ours(*args, **kwargs)
                result = theirs(small, *rest, **kwargs)
                return _wrapped(result) if type(result) is Real else result
        return ours(*args, **kwargs)

    return call


def _function(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function of any number of arrays."""

    @functools.wraps(ours)
    def call(*args: Any, **kwargs: Any) -> Any:
        real = []
        arrays = False
        for value in args:
            kind = type(value)
            if kind is ndarray:
                small = value._small
                if small is None or value._thin:
                    return ours(*args, **kwargs)
                real.append(small)
                arrays = True
            elif kind in SIMPLE:
                real.append(value)
            else:
                return ours(*args, **kwargs)
        for value in kwargs.values():
            if type(value) not in SIMPLE:
                return ours(*args, **kwargs)
        return _wrapped(theirs(*real, **kwargs)) if arrays else ours(*args, **kwargs)

    return call


def _replace(theirs: Any, make: Callable[..., Any], quick: Any) -> None:
    ours = OURS.get(theirs)
    if ours is None or isinstance(ours, type):
        return
    OURS[theirs] = made = make(quick, ours)
    THEIRS[made] = theirs


def _install() -> None:
    for name in METHODS:
        theirs = getattr(Real, name, None)
        ours = getattr(ndarray, name, None)
        if theirs is not None and ours is not None:
            setattr(ndarray, name, _method(theirs, ours))
    for name in FUNCTIONS_BY_METHOD:
        _replace(getattr(np, name), _by_method, getattr(Real, name))
    for name in FUNCTIONS:
        theirs = getattr(np, name)
        if not isinstance(theirs, np.ufunc):
            _replace(theirs, _function, theirs)


_install()
