"""Writes at computed indices: `x[index] = value`, `put`, `put_along_axis`.

Owns the compiled loops over numpy arrays. The last write to an element wins, as in NumPy: elements
are written one after the other; along rows, one thread writes each row. Where an index is out of
bounds nothing is written, and NumPy raises its error. NumPy writes whole rows, which it copies at
the speed of memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.kernels import compact, gather
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.execution import routine
from lazyfuse.runtime.scheduling import evaluate

Array = np.ndarray[Any, np.dtype[Any]]

_FEWEST = 1 << 18  # elements from which a routine is launched: NumPy is as fast below
_BLOCK = 1 << 14  # elements per chunk, where there are rows
NUMBERS = (int, float, bool, complex)


@cached(why=DTYPES)
def _write_routine(size: int, index: str, scalar: bool) -> routine.Routine:
    """The routine for elements of `size` bytes at `count` indices of each of `rows` rows.

    The caller has checked the bounds; with another check here, stores are twice as fast on Zen 5.
    """
    body = f"""
    for row in range(rows):
        for k in range(count):
            at = int64(index[row * count + k])
            at = at + entries if at < 0 else at
            at = 0 if at >= entries else at
            target[row * entries + at] = values[{"0" if scalar else "row * count + k"}]
    """
    arrays = {"target": f"u{size}", "index": index, "values": f"u{size}"}
    name = f"write_{size}_{index}{'_scalar' if scalar else ''}"
    return routine.Routine(name, ("rows", "count", "entries"), arrays, body)


def _values(real: Array, key: Array, value: Any) -> tuple[Array, bool] | None:
    """The values to write, in the dtype of the elements, and whether they are one number."""
    if type(value) in NUMBERS or isinstance(value, np.generic):
        number = np.asarray(value)
        strong = isinstance(value, np.generic)
        if not (np.can_cast(number.dtype, real.dtype) if strong else _takes(real.dtype, value)):
            return None
        return number.astype(real.dtype).reshape(1), True
    if type(value) is not np.ndarray or value.shape != key.shape:
        return None
    if value.dtype != real.dtype or not value.flags.c_contiguous:
        return None
    if np.may_share_memory(real, value):
        return None
    return value, False


def _takes(dtype: np.dtype[Any], value: Any) -> bool:
    """Whether elements take a Python number without an error or warning of NumPy's."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return isinstance(value, int) and limits.min <= value <= limits.max
    if dtype.kind == "b":
        return type(value) is bool
    return not isinstance(value, complex) and dtype.itemsize >= 8 and abs(value) < 1e300


def written(real: Array, key: Any, value: Any) -> bool | None:
    """Do `real[key] = value`, and return True; None where NumPy has to do it, or to raise."""
    if type(key) is tuple:
        flat = gather.flat_key(real, key)
        return None if flat is None else written(*flat, value)
    return _written(real, key, value, 1) if real.ndim == 1 else None


def written_along(real: Array, key: Array, value: Any) -> bool | None:
    """Do `numpy.put_along_axis(real, key, value, -1)`; None where NumPy has to do it."""
    if real.ndim != key.ndim or real.shape[:-1] != key.shape[:-1] or not key.size:
        return None
    return _written(real, key, value, key.size // key.shape[-1])


def _written(real: Array, key: Any, value: Any, rows: int) -> bool | None:
    """Write at the indices of each of `rows` rows."""
    if not gather.is_index(key, _FEWEST) or not gather.is_plain(real) or real.itemsize > 8:
        return None
    found = None if np.may_share_memory(real, key) else _values(real, key, value)
    if found is None or not real.flags.writeable:
        return None
    values, scalar = found
    count, entries = key.size // rows, real.shape[-1]
    launch = _write_routine(real.itemsize, key.dtype.str[1:], scalar).launcher()
    ends = routine.extremes(key, _FEWEST)
    if launch is None or ends is None or ends[0] < -entries or ends[1] >= entries:
        return None
    bits = f"u{real.itemsize}"
    starts, lengths = routine.blocks(rows, max(1, _BLOCK // count))
    places = [starts * entries, starts * count, starts * (0 if scalar else count)]
    sizes = [(length, count, entries) for length in lengths.tolist()]
    arrays = (real.reshape(-1).view(bits), key, values.reshape(-1).view(bits))
    launch(arrays, sizes, np.stack(places, 1), work=4 * key.size)
    return True


def write(real: Array, key: Any, value: Any) -> None:
    """`real[key] = value`, by a compiled routine where possible."""
    kind = type(key)
    if kind is np.ndarray and key.dtype.kind == "b":
        compact.put(real, key, value)
        return
    indices = kind is np.ndarray or (kind is tuple and key and type(key[0]) is np.ndarray)
    if not (indices and routine.attempt(written, real, key, value)):
        real[key] = value


def look_together(*operands: Any) -> None:
    """Evaluate the pending arrays among `operands` in one run."""
    nodes = [x._node for x in operands if type(x) is ndarray and x._node is not None]
    if len(nodes) > 1:
        evaluate.evaluate(nodes, decisions.INDICES)
