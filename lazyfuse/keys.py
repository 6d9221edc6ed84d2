"""Keys of indexing: which give a view, which name one element, and what NumPy gets of them.

Knows keys and nothing of the arrays that they are for.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np

from lazyfuse.array import OURS
from lazyfuse.operators import PLAIN, real_list, real_operand

BASIC = frozenset((int, slice, EllipsisType, type(None)))


def is_basic(key: Any) -> bool:
    """Whether a key gives a view: integers, slices, `...`, None, and tuples of them."""
    if type(key) is int:
        return True
    if type(key) is tuple:
        for part in key:  # noqa: SIM110  # all() is a call more on a hot path
            if type(part) not in BASIC:
                return False
        return True
    return type(key) in BASIC


def real_key(key: Any) -> Any:
    """A key as NumPy may have it: our arrays evaluated, NumPy's integers as Python's."""
    if issubclass(type(key), tuple):
        return tuple([_real_part(part) for part in key])
    return _real_part(key)


def _real_part(part: Any) -> Any:
    kind = type(part)
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
