"""Who else wants a say: operands with an `__array_ufunc__` of their own (NEP 13).

NumPy's protocol, followed in Python so that such classes get our ufunc object and our arrays, not
evaluated ones. Owns the order in which overrides are asked and the error when all of them refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.array import ndarray
from lazyfuse.operators import PLAIN

_ORDINARY: set[type] = {ndarray, np.ndarray, list, tuple, str, bytes, type(None), *PLAIN}
_DEFAULT = np.ndarray.__array_ufunc__
_OVERRIDES: dict[type, bool] = {}
_CACHED_TYPES = 512  # more classes than this means that somebody makes them in a loop


def overrides(kind: type) -> bool:
    """Whether operands of this class take part in the choice of what a ufunc does."""
    known = _OVERRIDES.get(kind)
    if known is None:
        method = getattr(kind, "__array_ufunc__", _DEFAULT)
        known = method is not _DEFAULT and not issubclass(kind, ndarray)
        if len(_OVERRIDES) >= _CACHED_TYPES:
            _OVERRIDES.clear()
        _OVERRIDES[kind] = known
    return known


def find(operands: Sequence[Any]) -> list[Any]:
    """The operands that override, one per class: subclasses before their bases, else in order."""
    found: list[Any] = []
    for operand in operands:
        kind = type(operand)
        if kind in _ORDINARY or not overrides(kind) or any(type(x) is kind for x in found):
            continue
        place = next((i for i, x in enumerate(found) if issubclass(kind, type(x))), len(found))
        found.insert(place, operand)
    return found


def dispatch(
    found: Sequence[Any], ufunc: Any, method: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Ask each override in turn; NumPy's TypeError if none of them knows."""
    for operand in found:
        if type(operand).__array_ufunc__ is None:
            name = type(operand).__name__
            raise TypeError(f"operand '{name}' does not support ufuncs (__array_ufunc__=None)")
        result = operand.__array_ufunc__(ufunc, method, *args, **kwargs)
        if result is not NotImplemented:
            return result
    parts = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    kinds = ", ".join(repr(type(arg).__name__) for arg in (*args, *kwargs.get("out", ())))
    raise TypeError(
        "operand type(s) all returned NotImplemented from "
        f"__array_ufunc__({ufunc!r}, {method!r}, {', '.join(parts)}): {kinds}"
    )
