"""Keys of indexing: which give a view, which name one element, and what NumPy gets of them.

Knows keys and nothing of the arrays that they are for.
"""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import OURS
from lazyfuse.arrays.operators import PLAIN, real_list, real_operand

BASIC = frozenset((int, slice, EllipsisType, type(None)))
BOUNDS = frozenset((int, type(None), np.int64))


def is_basic(key: Any) -> bool:
    """Whether a key gives a view: integers, slices, `...`, None, and tuples of them.

    And whether looking at it runs no code of the user's: bounds of slices are whole numbers.
    """
    kind = type(key)
    if kind is int:
        return True
    if kind is tuple:
        for part in key:
            kind = type(part)
            if kind not in BASIC or (kind is slice and not _is_plain(part)):
                return False
        return True
    return kind in BASIC and (kind is not slice or _is_plain(key))


def _is_plain(part: slice[Any, Any, Any]) -> bool:
    return type(part.start) in BOUNDS and type(part.stop) in BOUNDS and type(part.step) in BOUNDS


def real_key(key: Any) -> Any:
    """A key as NumPy may have it: our arrays evaluated, NumPy's integers as Python's."""
    if issubclass(type(key), tuple):
        return tuple([_real_part(part) for part in key])
    return _real_part(key)


def _real_part(part: Any) -> Any:
    kind = type(part)
    if kind is slice:
        if _is_plain(part):
            return part
        return slice(_real_bound(part.start), _real_bound(part.stop), _real_bound(part.step))
    if kind in BASIC:
        return part
    if kind in OURS:
        value = real_operand(part)
        return int(value) if isinstance(value, np.integer) else value
    if issubclass(kind, np.integer):
        return int(part)
    if kind is list or kind is tuple:
        return real_list(part)
    if kind not in PLAIN and kind is not np.ndarray and hasattr(kind, "__array__"):
        return np.asarray(real_operand(part.__array__()))
    return part


def _real_bound(bound: Any) -> Any:
    """A bound of a slice as a whole number; what is none is left for NumPy to refuse."""
    if not hasattr(type(bound), "__index__"):
        return bound
    try:
        return operator.index(bound)
    except Exception as error:
        return _Failing(error)


class _Failing:
    """A bound that raises when NumPy asks for it, which may find another mistake before."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __index__(self) -> int:
        raise self.error


def is_pick(key: Any, rank: int) -> bool:
    """Whether a basic key certainly names one element."""
    if type(key) is int:
        return rank == 1
    return type(key) is tuple and len(key) == rank and all(type(part) is int for part in key)


def opened(key: Any) -> Any:
    """A basic key that never reads memory: with `...`, NumPy gives a 0-d view, not a scalar."""
    if type(key) is not tuple:
        return key if key is Ellipsis else (key, ...)
    return key if has_ellipsis(key) else (*key, ...)


def has_ellipsis(key: Any) -> bool:
    """Whether a basic key has `...` in it."""
    return key is Ellipsis or (type(key) is tuple and Ellipsis in key)
