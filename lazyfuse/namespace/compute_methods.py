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
    return elementwise.clip(self, min, max, out, **kwargs)


def conjugate(self: ndarray, /, *args: Any, **kwargs: Any) -> Any:
    """As `numpy.ndarray.conjugate`: returns real arrays unchanged."""
    kind = dtype_of(self).kind
    if kind in "biuf" and not args and not kwargs:
        return self
    if kind == "c":
        return ufunc_of(np.conjugate)(self, *args, **kwargs)
    return fallback.run(np.ndarray.conjugate, "ndarray.conjugate", (self, *args), kwargs)


METHODS: dict[str, Any] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argsort": sorting.argsort,
    "clip": clip,
    "compress": indexing.compress_method,
    "conj": conjugate,
    "conjugate": conjugate,
    "cumprod": reductions.cumprod,
    "cumsum": reductions.cumsum,
    "dot": products.dot,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": indexing.nonzero,
    "prod": reductions.prod,
    "repeat": joining.repeat,
    "round": elementwise.round,
    "searchsorted": searching.searchsorted,
    "sort": sorting.sort_method,
    "std": reductions.std,
    "sum": reductions.sum,
    "var": reductions.var,
}


def _method(name: str, function: Any) -> Any:
    """Make a new function object, with the method's documentation."""
    theirs = getattr(np.ndarray, name)

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs and name in ("any", "all"):  # the method takes more than the function
            return fallback.run(theirs, f"ndarray.{name}", (self, *args), kwargs)
        if kwargs and issubclass(type(kwargs.get("out")), np.ndarray):  # a method asks no class
            return fallback.run(theirs, f"ndarray.{name}", (self, *args), kwargs)
        try:
            return function(self, *args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
        # wrong names or numbers of arguments: NumPy raises its own error
        return fallback.run(theirs, f"ndarray.{name}", (self, *args), kwargs)

    method.__name__ = name
    method.__qualname__ = f"ndarray.{name}"
    method.__doc__ = theirs.__doc__
    return method


methods.install({name: _method(name, function) for name, function in METHODS.items()})
