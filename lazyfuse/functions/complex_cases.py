"""Functions of complex numbers where NumPy gives NaN, or the wrong zero, for special operands.

Owns `expm1` and `tanh` of operands that are not finite, or zero with a negative real part. Their
values are those of the array API standard, which NumPy's other functions follow. NumPy computes all
other numbers, and real ones. Works on NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

Real = np.ndarray
_REAL = frozenset((np.dtype("f4"), np.dtype("f8")))
_KINDS = frozenset((complex, Real, np.complex64, np.complex128, np.clongdouble))


def _expm1(z: Array) -> Array:
    """From `exp`, which is right for all special operands."""
    found: Array = np.exp(z)
    found.real -= 1
    return found


def _tanh(z: Array) -> Array:
    """As NumPy; but for an infinite real part the imaginary part is a zero with its own sign."""
    found: Array = np.tanh(z)
    far = np.isinf(z.real) & np.isfinite(z.imag)
    found.imag[far] = np.copysign(0, z.imag[far])
    return found


def completed(theirs: np.ufunc, values: Callable[[Array], Array]) -> Callable[..., Any]:
    """A ufunc of one operand that takes the results for special complex numbers from `values`."""

    def call(z: Any, /, *rest: Any, **kwargs: Any) -> Any:
        if z.__class__ is Real and z.dtype in _REAL and not kwargs and not rest:
            return theirs(z)
        if type(z) not in _KINDS or (type(z) is Real and z.dtype.kind != "c"):
            return theirs(z, *rest, **kwargs)
        odd = ~np.isfinite(z) | (np.equal(z, 0) & np.signbit(z.real))
        if not odd.any():
            return theirs(z, *rest, **kwargs)
        return _replaced(theirs, values, np.asarray(z), odd, rest, kwargs)

    call.__name__ = theirs.__name__
    return call


def _replaced(
    theirs: np.ufunc,
    values: Callable[[Array], Array],
    z: Array,
    odd: Array,
    rest: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The result of the ufunc, which would warn of the special numbers, with their values added."""
    replaced, tame = z.copy(order="K"), z.copy(order="K")
    with np.errstate(all="ignore"):
        replaced[odd] = values(z[odd])
    tame[odd] = 0
    result = theirs(tame, *rest, **kwargs)
    if type(result) is not Real:
        return result.dtype.type(replaced[()])
    np.copyto(result, replaced, casting="unsafe", where=odd & kwargs.get("where", True))
    return result


COMPLETED: dict[str, Callable[..., Any]] = {
    "expm1": completed(np.expm1, _expm1),
    "tanh": completed(np.tanh, _tanh),
}
"""The completed functions, by ufunc name."""
