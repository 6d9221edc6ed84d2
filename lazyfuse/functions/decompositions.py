"""NumPy's own Python code, run over recorded arrays.

Much of NumPy is written in Python on top of a few primitives. `decompose` gives such a function
lazyfuse's globals instead of NumPy's, so that each of its steps is recorded. The result is what
NumPy computes, step by step, and lazyfuse needs no code of its own for it. Small arrays take
NumPy's function itself. Owns the list of decomposed functions.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.arrays.nodes import FOLLOWED as PACKAGE
from lazyfuse.arrays.scalars import deliver_several, scalar
from lazyfuse.devices.caches import register
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.interop import fallback, overrides
from lazyfuse.registry import OURS, implements, with_globals
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.scheduling.compound_calls import as_one
from lazyfuse.runtime.scheduling.stand_ins import speak

FOLLOWED = {
    "arrays": "angle append array_equal array_equiv average column_stack corrcoef cov dstack fix "
    "hstack kron nanmax nanmean nanmin nanprod nanstd nansum nanvar outer polyval sinc stack "
    "tensordot trapezoid tril triu vander vstack",
    "views": "atleast_1d atleast_2d atleast_3d diff nan_to_num unwrap",
    "broadcast": "allclose cross isclose select",
    "": "histogram2d histogramdd isneginf isposinf meshgrid",
}
"""Functions of the main namespace that are decomposed by their Python code, by what small arrays
ask of them (see `registry.implements`)."""

FOLLOWED_LINALG = "norm vector_norm matrix_norm multi_dot matrix_power".split()
"""Decomposed functions of `numpy.linalg`."""

FOLLOWED_FFT = "fftshift ifftshift".split()
"""Decomposed functions of `numpy.fft`."""

Copies = dict[types.FunctionType, types.FunctionType]
_rebound: Copies = {}
register(
    "functions.decompositions.rebound", _rebound.__len__, None, None, "one for each such function"
)


def is_big(value: Any) -> bool:
    """Whether `value` is or lists (one level) a lazy scalar or an array that would be recorded."""
    kind = type(value)
    if kind is ndarray:
        return value._eager is None
    if kind is list or kind is tuple:
        return len(value) < 1000 and any(
            type(item) is ndarray and item._eager is None for item in value
        )
    return kind is scalar


def any_big(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether any argument would be recorded, and none overrides the function."""
    values = (*args, *kwargs.values()) if kwargs else args
    big = False
    for value in values:
        if is_big(value):
            big = True
    return big and not overrides.of_functions.find(overrides.flat(values))


class _Warnings:
    """The module `warnings` for decomposed code: a call that warns at each visit is not traced."""

    def __getattr__(self, name: str) -> Any:
        if name == "warn":  # no frame of ours beside NumPy's, which says where the warning is
            speak()
        return getattr(warnings, name)


class _Module:
    """A NumPy module for decomposed code: lazyfuse's functions where they exist, else NumPy's."""

    def __init__(self, theirs: types.ModuleType) -> None:
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        found = _translate(getattr(self._theirs, name))
        setattr(self, name, found)
        return found


def _translate(theirs: Any, made: Copies | None = None) -> Any:
    """The replacement of one global in NumPy's code, for lazyfuse arrays; `made`: see `rebind`."""
    if theirs is warnings:
        return _Warnings()
    if isinstance(theirs, types.ModuleType):
        return _Module(theirs) if theirs.__name__.startswith("numpy") else theirs
    try:
        ours = OURS.get(theirs)
    except TypeError:
        return theirs
    if ours is not None:
        return ours
    if isinstance(theirs, np.ufunc):
        return ufunc_of(theirs)
    if isinstance(theirs, types.FunctionType):
        return rebind(theirs, made) if theirs.__module__.startswith("numpy") else theirs
    if hasattr(theirs, "_implementation") and callable(theirs):
        return fallback.wrap_function(theirs)
    return theirs


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def rebind(function: types.FunctionType, made: Copies | None = None) -> types.FunctionType:
    """A copy of NumPy's Python `function` that works on lazyfuse arrays.

    `made`: the copies that are being made. They become known together, once all are whole: an
    interrupt in between leaves none, and no other thread meets one without its globals.
    """
    known = _rebound.get(function) or (made or {}).get(function)
    if known is not None:
        return known
    if made is None:
        made = {}
        copy = rebind(function, made)
        _rebound.update(made)
        return copy
    # with the package set, the search for the user's source line skips these frames too
    inside = {"__name__": __name__, "__package__": PACKAGE}
    scope: dict[str, Any] = {"__builtins__": __builtins__, **inside}
    copy = with_globals(function, scope)
    made[function] = copy  # before its globals are replaced: functions may be recursive
    theirs = function.__globals__
    for name in _names(function.__code__):
        if name in theirs:
            scope[name] = _translate(theirs[name], made)
    return copy


def decompose(theirs: Any, eager: str = "") -> Callable[..., Any]:
    """Decompose a NumPy function written in Python: large arrays are recorded step by step."""
    implementation = theirs.__wrapped__
    name = numpy_calls.name_of(theirs)
    rebound: Callable[..., Any] | None = None

    @implements(theirs, eager)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal rebound
        if not any_big(args, kwargs):
            return fallback.run(theirs, name, args, kwargs)
        if rebound is None:
            rebound = as_one(rebind(implementation))
        found = rebound(*args, **kwargs)
        return deliver_several(found) if type(found) is tuple else found

    return call


def _decompose_all() -> None:
    home = vars(sys.modules[__name__])
    for eager, names in FOLLOWED.items():
        for name in names.split():
            home[name] = decompose(getattr(np, name), eager)
    for name in FOLLOWED_LINALG:
        decompose(getattr(np.linalg, name))
    for name in FOLLOWED_FFT:
        decompose(getattr(np.fft, name))


_decompose_all()
