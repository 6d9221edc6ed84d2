"""The base of `ufunc` (ufunc.py), which has the general path.

In C: native/arrays/ufunc.c, which has the eager path of calls, of small eager arrays and numbers;
other calls are followed where they come round (native/tape).
"""

from __future__ import annotations

from typing import Any

from lazyfuse.arrays.base import COMPILED, NATIVE


class UfuncCore:
    """A ufunc: NumPy's ufunc that it calls, and what C asks of it."""

    __slots__ = ("_call", "_compute", "_reduction", "_rows", "_takes_weak", "nin", "nout")

    _takes_weak: bool  # whether Python's numbers take the arrays' dtype: Op.takes_weak_scalars
    _call: Any
    _compute: Any  # `_call`, or a function around it: see complex_cases.py
    _reduction: Any
    _rows: Any
    nin: int
    nout: int
    _general_accumulate: Any  # of any operands: `ufunc` has these
    _general_reduceat: Any
    _general_outer: Any
    _general_at: Any

    def accumulate(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ufunc.accumulate`."""
        return self._general_accumulate(*args, **kwargs)

    def reduceat(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ufunc.reduceat`."""
        return self._general_reduceat(*args, **kwargs)

    def outer(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ufunc.outer`."""
        return self._general_outer(*args, **kwargs)

    def at(self, *args: Any) -> None:
        """As `numpy.ufunc.at`."""
        self._general_at(*args)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._general(*args, **kwargs)

    def _general(self, *args: Any, **kwargs: Any) -> Any:
        """The general path: ufunc.py has it."""
        raise NotImplementedError


def adopt(kind: Any) -> Any:
    """Decorator of `ufunc`: has the native extension, where it is built, call its objects."""
    if COMPILED:
        NATIVE.adopt_ufunc(kind)
    return kind


if COMPILED:
    globals()["UfuncCore"] = NATIVE.UfuncCore
