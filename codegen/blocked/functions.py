"""The functions of blocked texts that compiled text has as helpers (codegen/numba/helpers.py): the
same operations in the same order, on a chunk. NumPy only; knows nothing of kernels.

`log1p(target, scratch, operand)` is the device's, and returns the IEEE flags that it raised. NumPy
reports those of its own operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
CALL = re.compile(r"(vmf?_\w+)\(((?:\{\d\}(?:\.real|\.imag)?(?:, )?)+)\)")
"""A compiled expression that is one call of a function of the device: its name, its operands."""


def prefix(dtype: str) -> str:
    """What the device's functions of such numbers begin with."""
    return "vm" if dtype == "f8" else "vmf"


Log1p = Callable[[Array, Any, Array], int]


def hypot(target: Array, log1p: Log1p, scratch: Any, x: Array, y: Array) -> int:
    """As `hypot_f8`; without `log1p`."""
    kind = x.dtype.type
    one, two, far, most = np.array([1.0, 2.0, 1e9, np.inf], kind).view(f"i{x.itemsize}")
    a, b = np.absolute(x), np.absolute(y)
    large, small = np.maximum(a, b), np.fmin(a, b)  # of NaN and a number: NaN, the number
    bits = large.view(one.dtype)
    power = np.maximum(bits & most, two - one)
    is_edge = power == most
    is_alone = is_edge | (bits - small.view(one.dtype) > far - one)
    unit = np.where(is_edge, one, power).view(kind)
    first, second = large / unit, np.where(is_alone, kind(0), small) / unit
    size = np.sqrt(first * first + second * second) * unit
    np.copyto(target, np.where(small == np.inf, small, size))
    return 0


def arccosh(target: Array, log1p: Log1p, scratch: Any, x: Array) -> int:
    """As `arccosh_f8`."""
    kind = x.dtype.type
    is_edge = np.isnan(x) | (x == np.inf)
    more = np.where(is_edge, kind(1), x) - kind(1)
    is_large, is_outside = x > kind(1e9), x < kind(1)
    root = np.sqrt(np.where(is_large | is_outside, more, more + more + more * more))
    found = np.empty_like(x)
    flags = log1p(found, scratch, np.where(is_large, more, more + root))
    found += np.where(is_large, kind(0.693147180559945309417232121458176568), kind(0))
    np.copyto(target, np.where(is_edge, x, found))
    return flags


def arctanh(target: Array, log1p: Log1p, scratch: Any, x: Array) -> int:
    """As `arctanh_f8`."""
    kind = x.dtype.type
    size = np.where(np.isnan(x), kind(0), np.absolute(x))
    quotient = (size + size) / (kind(1) - size)
    is_one = size == 1
    found = np.empty_like(x)
    flags = log1p(found, scratch, np.where(is_one, kind(0), quotient))
    found = np.copysign(np.where(is_one, quotient, kind(0.5) * found), x)
    np.copyto(target, np.where(np.isnan(x), x, found))
    return flags
