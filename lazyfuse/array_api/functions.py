"""The functions of the array API standard that differ from those of the main namespace.

Owns their implementations, on arrays of the main namespace, and their variants in older versions of
the standard. The tables of names.py list all others.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from lazyfuse import fft, linalg
from lazyfuse.array_api import floor_division
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.functions.sorting import argsort, sort
from lazyfuse.interop import fallback
from lazyfuse.registry import OURS

Function = Callable[..., Any]


@dataclass(frozen=True)
class finfo_object:  # noqa: N801  # the standard's spelling
    """Machine limits of a floating-point dtype, as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class iinfo_object:  # noqa: N801
    """Machine limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def _dtype_of(x: Any) -> Any:
    """The dtype of an array; everything else unchanged."""
    return dtype_of(x) if type(x) is ndarray else x


def finfo(type: Any) -> finfo_object:
    """The limits of a dtype, or of an array's."""
    found = np.finfo(_dtype_of(type))
    names = ("eps", "max", "min", "smallest_normal")
    limits = {name: float(getattr(found, name)) for name in names}
    return finfo_object(bits=found.bits, dtype=found.dtype, **limits)


def iinfo(type: Any) -> iinfo_object:
    """The limits of a dtype, or of an array's."""
    found = np.iinfo(_dtype_of(type))
    return iinfo_object(found.bits, int(found.max), int(found.min), found.dtype)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype of results; for arrays their dtypes count, and nothing is evaluated."""
    return np.result_type(*[_dtype_of(x) for x in arrays_and_dtypes])


def can_cast(from_: Any, to: Any) -> bool:
    """Whether a dtype, or an array's, can be cast safely."""
    return np.can_cast(_dtype_of(from_), to)


def _complex(dtype: Any) -> Any:
    return np.result_type(dtype, np.complex64)


def eig(x: Any) -> Any:
    """Complex eigenvalues and eigenvectors, also where NumPy gives real ones."""
    found = linalg.eig(x)
    dtype = _complex(x.dtype)
    return type(found)(*[part.astype(dtype, copy=False) for part in found])


def eigvals(x: Any) -> Any:
    """Complex eigenvalues, also where NumPy gives real ones."""
    return linalg.eigvals(x).astype(_complex(x.dtype), copy=False)


def _with_axes(transform: Function) -> Function:
    """A transform of several axes: the last ones if only sizes are given."""

    def call(x: Any, s: Any, axes: Any, norm: Any) -> Any:
        if s is not None and axes is None:
            axes = range(-len(s), 0)
        return transform(x, s=s, axes=axes if axes is None else tuple(axes), norm=norm)

    return call


def diff(x: Any, axis: int, n: int, prepend: Any, append: Any) -> Any:
    """Differences along an axis; `prepend` and `append` may be None."""
    return OURS[np.diff](x, n=n, axis=axis, **fallback.given(prepend=prepend, append=append))


MAIN: dict[str, Function] = {
    "argsort": argsort,
    "can_cast": can_cast,
    "diff": diff,
    "finfo": finfo,
    "floor_divide": floor_division.floor_divide,
    "iinfo": iinfo,
    "result_type": result_type,
    "sort": sort,
}
LINALG: dict[str, Function] = {"eig": eig, "eigvals": eigvals}
FFT: dict[str, Function] = {
    name: _with_axes(getattr(fft, name)) for name in ("fftn", "ifftn", "rfftn", "irfftn")
}
OWN = {"": MAIN, "linalg": LINALG, "fft": FFT}
"""Functions by extension ("" for the main part) and name."""


# ------------------------------------------------------------------------------ older versions


def _as_list(function: Function) -> Function:
    return lambda *arrays, **named: list(function(*arrays, **named))


def _widening(function: Function) -> Function:
    """Sums in the default floating-point dtype, if the caller names none."""

    def call(x: Any, *args: Any, dtype: Any = None, **named: Any) -> Any:
        kind = x.dtype.kind
        if dtype is None and kind in "fc":
            dtype = np.result_type(x.dtype, np.complex128 if kind == "c" else np.float64)
        return function(x, *args, dtype=dtype, **named)

    return call


CHANGED = (
    ("2025.12", ("broadcast_arrays", "meshgrid"), _as_list),
    ("2023.12", ("prod", "sum", "trace"), _widening),
)
"""The version that changed functions, their names, and the decorator that makes the older ones."""


def older(name: str, function: Function, version: str) -> Function:
    """A function as it is in a version of the standard."""
    for changed, names, make in CHANGED:
        if version < changed and name in names:
            function = make(function)
    return function


def ours(module: ModuleType, extension: str, name: str) -> Function:
    """The implementation of a function: from above, or the main namespace's of the same name."""
    found: Function | None = OWN[extension].get(name)
    return found if found is not None else getattr(module, name)
