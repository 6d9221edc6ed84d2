"""The eager path of ufunc calls: small eager arrays and numbers.

Owns `UfuncCore`, the base of `ufunc` (ufunc.py), which has the general path. In C: native/ufunc.c,
which also records what was met before.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.arrays.base import COMPILED, HOOKS, NATIVE, REAL, direct
from lazyfuse.arrays.nodes import PLAIN


class UfuncCore:
    """A ufunc: NumPy's ufunc that it calls, and its eager path."""

    __slots__ = ("_call", "_compute", "_loops", "_reduction", "_rows", "_takes_weak", "nin", "nout")

    _takes_weak: bool  # whether Python's numbers take the arrays' dtype: Op.takes_weak_scalars
    _call: Any
    _compute: Any  # `_call`, or a function around it: see complex_cases.py
    _loops: Any
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
        if not kwargs and len(args) == self.nin <= 2:
            given = [_quick_operand(x) for x in args]
            if not any(x is None for x in given):
                return _ours((self._compute if self.nin == 1 else self._call)(*given))
        return self._general(args, kwargs)

    def _general(self, args: Any, kwargs: Any) -> Any:
        """The general path: ufunc.py has it."""
        raise NotImplementedError


def _quick_operand(x: Any) -> Any:
    """The numpy array of a small eager array, or a number; None for all else."""
    if type(x) is HOOKS.array:
        small = x._eager
        return None if small is None or x._may_grow else small
    return x if type(x) in PLAIN else None


def _ours(result: Any) -> Any:
    """What NumPy's ufunc gave, with arrays of ours."""
    if type(result) is tuple:
        return tuple([_ours(each) for each in result])
    return direct(result) if type(result) is REAL else result


def adopt(kind: Any) -> Any:
    """Decorator of `ufunc`: has the native extension, where it is built, call its objects."""
    if COMPILED:
        NATIVE.adopt_ufunc(kind)
    return kind


if COMPILED:
    globals()["UfuncCore"] = NATIVE.UfuncCore
