"""Sort keys: unsigned integers in the order of the numbers, for radix sorts.

Floats are compared by their bits, so a device's treatment of small or special values is no matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..base import DeviceError


class Key(NamedTuple):
    """How the elements of a dtype are sorted.

    `stored` is the dtype that they are read as. `text` is the OpenCL expression of the key of
    `x[i]`, `dtype` its type, and `bits` the number of its lowest bits that can differ.
    """

    stored: np.dtype[Any]
    text: str
    dtype: np.dtype[Any]
    bits: int


def key_of(dtype: np.dtype[Any]) -> Key:
    """The key of a dtype; `DeviceError` if its elements have no order as single numbers."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise DeviceError(f"[sort] library: expected integers, bool or floats, got {dtype}")
    bits = dtype.itemsize * 8
    stored: np.dtype[Any] = np.dtype(f"u{dtype.itemsize}")
    key: np.dtype[Any] = np.dtype(np.uint64 if bits == 64 else np.uint32)
    name = "ulong" if bits == 64 else "uint"
    suffix = "UL" if bits == 64 else "U"
    value = f"(({name})x[i])"
    sign = f"{1 << (bits - 1):#x}{suffix}"
    if dtype.kind == "i":
        value = f"({value} ^ {sign})"
    elif dtype.kind == "f":
        value = _float_key(dtype, value, sign, suffix, bits)
    return Key(stored, value, key, bits)


def _float_key(dtype: np.dtype[Any], value: str, sign: str, suffix: str, bits: int) -> str:
    """The key of a float: negative numbers inverted, below positive ones; zeros equal, NaN last."""
    infinity = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
    ones = f"{(1 << bits) - 1:#x}{suffix}"
    size = f"({value} & {(1 << (bits - 1)) - 1:#x}{suffix})"
    number = f"(({value} & {sign}) ? ({value} ^ {ones}) : ({value} | {sign}))"
    return f"({size} > {infinity:#x}{suffix} ? {ones} : {size} == 0 ? {sign} : {number})"
