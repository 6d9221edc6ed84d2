"""The methods of arrays that compute: our functions instead of NumPy's methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays import methods
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.functions import (
    elementwise,
    indexing,
    joining,
    products,
    reductions,
    searching,
    sorting,
)
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.interop import fallback


def clip(self: ndarray, min: Any = None, max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    """As `numpy.ndarray.clip`."""
    return elementwise.clip.recorded(self, min, max, out, **kwargs)


def compress(self: ndarray, condition: Any, axis: Any = None, out: Any = None) -> Any:
    """As `numpy.ndarray.compress`."""
    return indexing.compress.recorded(condition, self, axis, out)


def conjugate(self: ndarray, /, *args: Any, **kwargs: Any) -> Any:
    """As `numpy.ndarray.conjugate`: returns real arrays unchanged."""
    kind = dtype_of(self).kind
    if kind in "biuf" and not args and not kwargs:
        return self
    if kind == "c":
        return ufunc_of(np.conjugate)(self, *args, **kwargs)
    return fallback.run(np.ndarray.conjugate, "ndarray.conjugate", (self, *args), kwargs)


_RECORDED_IN = {
    elementwise: "round",
    indexing: "nonzero",
    products: "dot",
    reductions: "all any argmax argmin cumprod cumsum max mean min prod std sum var",
    searching: "searchsorted",
}
RECORDED: dict[str, Any] = {
    "clip": clip,
    "compress": compress,
    **{
        name: getattr(module, name).recorded
        for module, names in _RECORDED_IN.items()
        for name in names.split()
    },
}
"""Functions that give None for what NumPy's method has to do."""

WHOLE: dict[str, Any] = {
    "argsort": sorting.argsort,
    "conj": conjugate,
    "conjugate": conjugate,
    "repeat": joining.repeat,
    "sort": sorting.sort_method,
}
"""Functions that do all that NumPy's method does."""


def _whole(name: str, function: Any) -> Any:
    theirs = getattr(np.ndarray, name)

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
        # wrong names or numbers of arguments: NumPy raises its own error
        return fallback.run(theirs, f"ndarray.{name}", (self, *args), kwargs)

    return method


def _recorded(name: str, function: Any) -> Any:
    return fallback.or_at_once(function, getattr(np.ndarray, name), name)


methods.install({name: _whole(name, function) for name, function in WHOLE.items()})
methods.install({name: _recorded(name, function) for name, function in RECORDED.items()})
