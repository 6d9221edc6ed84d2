"""The operators as methods of `ndarray`. Importing this module installs them.

Those of the native extension run eager operands in NumPy's loops; they get here what they call for
all else. Without it every operator is the general one of operators.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import base, operators
from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.arrays.operators import SPECS, Spec
from lazyfuse.runtime.scheduling.evaluate import held


def _one_at_a_time(function: Callable[[Any, ndarray, Any], Any]) -> Callable[..., Any]:
    """`function(spec, self, other)`, which changes `self`, run by one thread at a time."""

    def change(spec: Any, self: ndarray, other: Any) -> Any:
        if self._eager is not None:
            return function(spec, self, other)
        with held():
            return function(spec, self, other)

    return change


inplace = _one_at_a_time(operators.inplace)
inplace_power = _one_at_a_time(operators.inplace_power)


def _binary(spec: Spec, swapped: bool) -> Callable[..., Any]:
    return lambda self, other: operators.binary(spec, self, other, swapped)


def _inplace(spec: Spec) -> Callable[..., Any]:
    return lambda self, other: inplace(spec, self, other)


def _unary(spec: Spec) -> Callable[..., Any]:
    return lambda self: operators.unary(spec, self)


def _put(name: str, function: Callable[..., Any]) -> None:
    function.__name__ = name
    function.__qualname__ = f"ndarray.{name}"
    function.__module__ = "lazyfuse"
    function.__doc__ = getattr(np.ndarray, name).__doc__
    setattr(ndarray, name, function)


def _register_in_c(spec: Spec) -> bool:
    """Give the native extension an operator's parts; whether `Core` has that operator in C."""
    if not base.COMPILED:
        return False
    op = spec.op
    slow = operators.unary if op.nin == 1 else operators.binary
    told = base.NATIVE.operator(op.name, op.ufunc, spec, op, slow, inplace)
    return bool(told)


def _install() -> None:
    for spec in SPECS.values():
        if _register_in_c(spec) or spec.op.name == "power":  # it has its own methods, below
            continue
        names = spec.names
        if spec.op.nin == 1:
            _put(names[0], _unary(spec))
            continue
        _put(names[0], _binary(spec, False))
        if len(names) > 1:
            _put(names[1], _binary(spec, True))
            _put(names[2], _inplace(spec))
    _install_special()


def __pow__(self: ndarray, other: Any, modulo: Any = None) -> Any:
    return operators.power(_POWER, self, other, modulo)


def __rpow__(self: ndarray, other: Any, modulo: Any = None) -> Any:
    return NotImplemented if modulo is not None else operators.binary(_POWER, self, other, True)


def power(self: ndarray, other: Any, modulo: Any, swapped: bool) -> Any:
    """`pow(self, other, modulo)` or the reverse, where C has no eager path."""
    return (__rpow__ if swapped else __pow__)(self, other, modulo)


_POWER = SPECS["power"]
_OF_CORE = ("__pow__", "__rpow__", "__matmul__", "__rmatmul__")


def _install_special() -> None:
    def __ipow__(self: ndarray, other: Any) -> Any:
        return inplace_power(_POWER, self, other)

    def __divmod__(self: ndarray, other: Any) -> Any:
        return operators.divide_with_rest(self, other, False)

    def __rdivmod__(self: ndarray, other: Any) -> Any:
        return operators.divide_with_rest(self, other, True)

    def __matmul__(self: ndarray, other: Any) -> Any:
        return operators.contract(self, other, False)

    def __rmatmul__(self: ndarray, other: Any) -> Any:
        return operators.contract(self, other, True)

    def __imatmul__(self: ndarray, other: Any) -> Any:
        with array.changing(self):
            return operators.contract_in_place(self, other)

    for function in (
        __pow__, __rpow__, __ipow__, __divmod__, __rdivmod__, __matmul__, __rmatmul__, __imatmul__,
    ):  # fmt: skip
        function.__qualname__ = f"ndarray.{function.__name__}"
        if not (base.COMPILED and function.__name__ in _OF_CORE):
            setattr(ndarray, function.__name__, function)


_install()
