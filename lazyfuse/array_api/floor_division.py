"""Floor division of the array API standard: infinities divide as they do in `/`.

Works on arrays of the main namespace; for finite operands it is NumPy's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.arrays.operators import WEAK
from lazyfuse.functions.creation import asarray
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.registry import OURS

_NUMBERS = WEAK | {bool}
_where = OURS[np.where]
_isinf = ufunc_of(np.isinf)


def floor_divide(first: Any, second: Any) -> Any:
    """`first // second`, rounded down; for infinities the quotient itself."""
    operands = _floats(first, second)
    if operands is None:
        return operator.floordiv(first, second)
    odd = _isinf(operands[0]) | _isinf(operands[1])
    if all(type(x) is not ndarray or x._eager is not None for x in operands) and not odd.any():
        return operator.floordiv(first, second)
    x, y = operands
    quotient = _where(odd, x, 1) / _where(odd, y, 1)  # each division sees only its own operands
    return _where(odd, quotient, _where(odd, 1, x) // _where(odd, 1, y))


def _floats(first: Any, second: Any) -> tuple[Any, Any] | None:
    """Both operands in the result's dtype; None unless it is a real floating-point dtype."""
    kinds = [x if type(x) in _NUMBERS else getattr(x, "dtype", None) for x in (first, second)]
    if any(each is None for each in kinds):
        return None
    dtype = np.result_type(*kinds)
    if dtype.kind != "f":
        return None
    return asarray(first, dtype), asarray(second, dtype)


def floor_divide_in_place(x: ndarray, other: Any) -> Any:
    """`x //= other`; refuses what does not fit into `x`, as NumPy does."""
    found = floor_divide(x, other)
    if found.dtype != x.dtype or found.shape != x.shape:  # type: ignore[attr-defined]
        divide: Callable[..., Any] = operator.ifloordiv
        return divide(x, other)
    x[...] = found
    return x
