"""Reads and sums at computed places: `x[index]`, `take`, `numpy.add.at`.

Owns the compiled loops over real arrays: reads on all threads, sums in their order on one. Where an
index is out of bounds nothing is written, and NumPy raises its error. What NumPy has a loop for at
the speed of memory stays with it: writes, and sums of elements of one dtype.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from lazyfuse import floating, routines
from lazyfuse.scans import NAMES

Array = np.ndarray[Any, np.dtype[Any]]

_FEWEST = 1 << 15  # indices for which a routine is launched
_WORTH = 1 << 18  # indices of NumPy's own dtype for which threads beat its loop
_BLOCK = 1 << 14  # indices per chunk
_INDICES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4")


@functools.cache
def _read_routine(size: int, index: str) -> routines.Routine:
    """Rows of `width` elements of `size` bytes, at `count` indices into `entries` rows."""
    body = """
    wrong = 0
    if width == 1:
        for k in range(count):
            independent()
            at = int64(index[k])
            at = at + entries if at < 0 else at
            outside = (at < 0) | (at >= entries)
            wrong = wrong | int64(outside)
            at = 0 if outside else at
            results[k] = values[at]
    else:
        for k in range(count):
            at = int64(index[k])
            at = at + entries if at < 0 else at
            outside = (at < 0) | (at >= entries)
            wrong = wrong | int64(outside)
            start = 0 if outside else at * width
            for j in range(width):
                independent()
                results[k * width + j] = values[start + j]
    found[0] = wrong
    """
    arrays = {"values": f"u{size}", "index": index, "results": f"u{size}", "found": "i8"}
    return routines.Routine(f"read_{size}_{index}", ("count", "entries", "width"), arrays, body)


def _is_index(key: Any) -> bool:
    return (
        type(key) is np.ndarray
        and key.size >= _FEWEST
        and key.dtype.str[1:] in _INDICES
        and key.dtype.isnative
        and key.flags.c_contiguous
    )


def read(real: Array, key: Any) -> Array | None:
    """`real[key]` for an array of indices; None where NumPy has to do it, or to raise."""
    if not _is_index(key) or not real.ndim or not real.size or not real.flags.c_contiguous:
        return None
    if real.dtype.kind not in "biufc" or not real.dtype.isnative:
        return None
    plain = key.dtype == np.intp  # else NumPy converts the indices first
    if key.size < (_WORTH if plain else 2 * _FEWEST) or (plain and routines.threads() < 2):
        return None
    size = min(real.itemsize, 8)
    width = math.prod(real.shape[1:]) * (real.itemsize // size)
    launch = _read_routine(size, key.dtype.str[1:]).ready()
    if launch is None or size not in (1, 2, 4, 8):
        return None
    results = routines.empty((*key.shape, *real.shape[1:]), real.dtype)
    starts, lengths = routines.blocks(key.size, max(1, _BLOCK // width))
    found = np.zeros(len(starts), np.int64)
    bits = f"u{size}"
    arrays = (real.reshape(-1).view(bits), key, results.reshape(-1).view(bits), found)
    offsets = np.stack([0 * starts, starts, starts * width, np.arange(len(starts))], 1)
    sizes = [(length, len(real), width) for length in lengths.tolist()]
    launch(arrays, sizes, offsets, work=4 * key.size * width)
    return None if found.any() else results


def at(real: Array, key: Any) -> Any:
    """`real[key]`, by compiled text where it can be."""
    if type(key) is np.ndarray and key.size >= _FEWEST:
        found = routines.attempt(read, real, key)
        if found is not None:
            return found
    return real[key]


# -------------------------------------------------------------------------------- sums in place

_STEPS = {
    "add": "target[at] + value",
    "subtract": "target[at] - value",
    "maximum": "max(target[at], value)",
    "minimum": "min(target[at], value)",
}


@functools.cache
def _combine_routine(step: str, code: str, index: str, scalar: bool) -> routines.Routine:
    """Elements at `count` indices combined with values, one after the other."""
    kind = NAMES[code]
    body = f"""
    clear_flags()
    value = {kind}(values[0])
    for k in range(count):
        at = int64(index[k])
        at = at + entries if at < 0 else at
        {"" if scalar else f"value = {kind}(values[k])"}
        target[at] = {kind}({_STEPS[step]})
    return test_flags()
    """
    arrays = {"target": code, "index": index, "values": code}
    name = f"combine_{step}_{code}_{index}{'_scalar' if scalar else ''}"
    return routines.Routine(name, ("count", "entries"), arrays, body)


def _combined(step: str, real: Array, key: Any, value: Any) -> int | None:
    """`real[key]` combined with values; the IEEE flags, or None where NumPy has to do it."""
    if not _is_index(key) or real.ndim != 1 or not real.size or not real.flags.c_contiguous:
        return None
    plain = real.flags.writeable and real.flags.aligned and real.dtype.isnative
    code, index = real.dtype.str[1:], key.dtype.str[1:]
    if not plain or code not in NAMES or code[0] == "c":
        return None
    scalar = type(value) in (int, float)
    if scalar:
        if not _takes(real.dtype, value):
            return None
        values = np.full(1, value, real.dtype)
    elif type(value) is np.ndarray and value.shape == key.shape and value.dtype == real.dtype:
        if key.dtype == np.intp:
            return None  # NumPy has a loop for it
        values = value
    else:
        return None
    if np.may_share_memory(real, values) or np.may_share_memory(real, key):
        return None
    launch = _combine_routine(step, code, index, scalar).ready()
    if not values.flags.c_contiguous:
        return None
    ends = routines.extremes(key, _FEWEST)
    if ends is None or launch is None or ends[0] < -real.size or ends[1] >= real.size:
        return None
    return launch((real, key, values), (key.size, real.size))


def _takes(dtype: np.dtype[Any], value: int | float) -> bool:
    """Whether NumPy computes with a number in the dtype of the elements, and hears of nothing."""
    if dtype == np.dtype(np.intp):
        return type(value) is int and abs(value) < 1 << 62
    return dtype == np.dtype(np.float64) and abs(value) < 1e300


_TELLING = {"add": np.add, "subtract": np.subtract}


def combine(name: str, real: Array, key: Any, value: Any) -> bool:
    """As `numpy.add.at` and its like; False where NumPy has to do it."""
    exact = real.dtype.kind in "iu"
    if name not in ("add", "subtract") and not (exact and name in ("maximum", "minimum")):
        return False
    flags = routines.attempt(_combined, name, real, key, value)
    if flags is None:
        return False
    if flags and not exact:
        _tell(_TELLING[name], flags, real.dtype)
    return True


def _tell(ufunc: Any, flags: int, dtype: np.dtype[Any]) -> None:
    """Let NumPy meet the conditions that the sums have met: the user hears of them as usual."""
    huge = np.array([np.finfo(dtype).max], dtype)
    if flags & floating.OVER:
        ufunc.at(huge.copy(), [0], huge[0] if ufunc is np.add else -huge[0])
    if flags & floating.INVALID:
        endless = np.array([np.inf], dtype)
        ufunc.at(endless, [0], -endless[0] if ufunc is np.add else endless[0])
