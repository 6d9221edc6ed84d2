"""Reads and sums at computed indices: `x[index]`, `take`, `numpy.add.at`.

Owns the compiled loops over NumPy arrays: reads on all threads, sums in their order on one. If an
index is out of bounds nothing is written, and NumPy raises its error. Sums of elements of one dtype
stay with NumPy, whose loop runs at the speed of memory. Writes are in `scatter.py`.
"""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from lazyfuse.codegen.table.op import Op
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.kernels.scan import NAMES
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.execution import routine
from lazyfuse.runtime.numerics import fp_flags

Array = np.ndarray[Any, np.dtype[Any]]

_FEWEST = 1 << 15  # indices for which a routine is launched
_WORTH = 1 << 18  # indices of NumPy's own dtype for which threads beat its loop
_BLOCK = 1 << 14  # indices per chunk
_TABLE = 256  # entries that a one-byte index can address
_INDICES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4")


_POSITIONS = {
    "raise": """
at = at + entries if at < 0 else at
outside = (at < 0) | (at >= entries)
wrong = wrong | int64(outside)
at = 0 if outside else at
""",
    "clip": "at = min(max(at, 0), entries - 1)",
    "wrap": """
at = at + entries if at < 0 else at
at = at - entries if at >= entries else at
outside = (at < 0) | (at >= entries)
wrong = wrong | int64(outside)
at = 0 if outside else at
""",
}
"""Kernel text by NumPy's `mode`: the entry of an index `at`, and whether NumPy must take over.

NumPy does so if the index is out of bounds, or wraps more than once: a division costs more than
the read.
"""


def _index(mode: str, depth: int) -> str:
    """The kernel text for `mode`, indented."""
    return textwrap.indent(_POSITIONS[mode].strip(), "    " * depth).strip()


@cached(why=DTYPES)
def _read_routine(size: int, index: str, mode: str = "raise") -> routine.Routine:
    """Reads rows of `width` elements of `size` bytes, at `count` indices into `entries` rows."""
    body = f"""
    wrong = 0
    if width == 1:
        for k in range(count):
            independent()
            at = int64(index[k])
            {_index(mode, 3)}
            results[k] = values[at]
    else:
        for k in range(count):
            at = int64(index[k])
            {_index(mode, 3)}
            start = at * width
            for j in range(width):
                independent()
                results[k * width + j] = values[start + j]
    found[0] = wrong
    """
    arrays = {"values": f"u{size}", "index": index, "results": f"u{size}", "found": "i8"}
    name = f"read_{size}_{index}{'' if mode == 'raise' else '_' + mode}"
    return routine.Routine(name, ("count", "entries", "width"), arrays, body)


_BYTES = routine.Routine(
    "read_bytes_u1",
    ("count", "entries"),
    {"values": "u1", "index": "u1", "results": "u1", "found": "i8"},
    """
    wrong = 0
    if entries < 256:
        for k in range(count):
            independent()
            wrong = wrong | int64(int64(index[k]) >= entries)
    read_bytes(results, values, index, count)
    found[0] = wrong
    """,
)
"""Reads bytes at `count` one-byte indices into a table of 256, of which `entries` are valid."""


@cached(why=DTYPES)
def _along_routine(size: int, index: str, mode: str = "raise") -> routine.Routine:
    """Reads `count` elements at indices from each of `rows` rows of `entries` elements.

    Each row has its own indices (`step` is `count`), or all rows share them (`step` is 0).
    """
    body = f"""
    wrong = 0
    for row in range(rows):
        for k in range(count):
            independent()
            at = int64(index[row * step + k])
            {_index(mode, 3)}
            results[row * count + k] = values[row * entries + at]
    found[0] = wrong
    """
    arrays = {"values": f"u{size}", "index": index, "results": f"u{size}", "found": "i8"}
    name = f"along_{size}_{index}{'' if mode == 'raise' else '_' + mode}"
    return routine.Routine(name, ("rows", "count", "entries", "step"), arrays, body)


@cached(why=DTYPES)
def _flat_routine(first: str, second: str) -> routine.Routine:
    """Flat indices into a matrix of `rows` by `columns`, from two indices each."""
    body = """
    wrong = 0
    for k in range(count):
        independent()
        row = int64(first[k])
        row = row + rows if row < 0 else row
        column = int64(second[k])
        column = column + columns if column < 0 else column
        outside = (row < 0) | (row >= rows) | (column < 0) | (column >= columns)
        wrong = wrong | int64(outside)
        results[k] = row * columns + column
    found[0] = wrong
    """
    arrays = {"first": first, "second": second, "results": "i8", "found": "i8"}
    return routine.Routine(f"flat_{first}_{second}", ("count", "rows", "columns"), arrays, body)


def is_index(key: Any, fewest: int = _FEWEST) -> bool:
    """Whether an array holds indices that compiled loops can read."""
    return (
        type(key) is np.ndarray
        and key.size >= fewest
        and key.dtype.str[1:] in _INDICES
        and key.dtype.isnative
        and key.flags.c_contiguous
    )


def is_plain(real: Array) -> bool:
    """Whether compiled loops can read and write an array: C order, native, a numeric dtype."""
    if not real.ndim or not real.size or not real.flags.c_contiguous:
        return False
    return real.dtype.kind in "biufc" and real.dtype.isnative and real.itemsize <= 16


def flat_key(real: Array, key: Any) -> tuple[Array, Array] | None:
    """A matrix and two arrays of indices, as its flat elements and one array of indices.

    None if NumPy must read the key, or raise.
    """
    if type(key) is not tuple or len(key) != 2 or real.ndim != 2 or not is_plain(real):
        return None
    first, second = key
    if not is_index(first) or not is_index(second) or first.shape != second.shape:
        return None
    launch = _flat_routine(first.dtype.str[1:], second.dtype.str[1:]).launcher()
    if launch is None:
        return None
    results = routine.empty(first.shape, np.dtype(np.int64))
    starts, lengths = routine.blocks(first.size, _BLOCK)
    found = np.zeros(len(starts), np.int64)
    offsets = np.stack([starts, starts, starts, np.arange(len(starts))], 1)
    sizes = [(length, *real.shape) for length in lengths.tolist()]
    launch((first, second, results, found), sizes, offsets, work=4 * first.size)
    return None if found.any() else (real.reshape(-1), results)


def read(real: Array, key: Any, mode: str = "raise") -> Array | None:
    """`real[key]` for an array of indices; None if NumPy must do it, or raise."""
    if type(key) is tuple:
        flat = flat_key(real, key)
        return None if flat is None else read(*flat)
    if not is_index(key) or not is_plain(real):
        return None
    plain = key.dtype == np.intp  # NumPy converts other indices first
    size = min(real.itemsize, 8)
    width = math.prod(real.shape[1:]) * (real.itemsize // size)
    if key.size < (_WORTH if plain else 2 * _FEWEST) or (plain and routine.threads() < 2):
        return None
    if size == width == 1 and key.dtype == np.uint8 and len(real) <= _TABLE and mode == "raise":
        return _read_bytes(real, key)
    launch = _read_routine(size, key.dtype.str[1:], mode).launcher()
    if launch is None:
        return None
    results = routine.empty((*key.shape, *real.shape[1:]), real.dtype)
    starts, lengths = routine.blocks(key.size, max(1, _BLOCK // width))
    found = np.zeros(len(starts), np.int64)
    bits = f"u{size}"
    arrays = (real.reshape(-1).view(bits), key, results.reshape(-1).view(bits), found)
    offsets = np.stack([0 * starts, starts, starts * width, np.arange(len(starts))], 1)
    sizes = [(length, len(real), width) for length in lengths.tolist()]
    launch(arrays, sizes, offsets, work=4 * key.size * width)
    return None if found.any() else results


def _read_bytes(real: Array, key: Array) -> Array | None:
    """As `read`, for bytes in a table of at most 256 entries with one-byte indices."""
    launch = _BYTES.launcher()
    if launch is None:
        return None
    table = np.zeros(_TABLE, np.uint8)
    table[: len(real)] = real.reshape(-1).view(np.uint8)
    results = routine.empty(key.shape, real.dtype)
    starts, lengths = routine.spread(key.size, 2 * _BLOCK)
    found = np.zeros(len(starts), np.int64)
    offsets = np.stack([0 * starts, starts, starts, np.arange(len(starts))], 1)
    sizes = np.stack([lengths, np.full_like(lengths, len(real))], 1)
    arrays = (table, key, results.reshape(-1).view(np.uint8), found)
    launch(arrays, sizes, offsets, work=key.size)
    return None if found.any() else results


def along(real: Array, key: Any, mode: str = "raise") -> Array | None:
    """Elements along the last axis, at indices per row, or at the same ones (1-D) for all rows.

    None if NumPy must do it, or raise.
    """
    own = key.ndim == real.ndim and key.shape[:-1] == real.shape[:-1]
    if not is_index(key, 1) or not is_plain(real) or real.itemsize > 8:
        return None
    if not own and key.ndim != 1:
        return None
    count, entries = key.shape[-1], real.shape[-1]
    rows = real.size // entries
    launch = _along_routine(real.itemsize, key.dtype.str[1:], mode).launcher()
    fewest = _FEWEST if own else _WORTH  # for indices per row NumPy makes more index arrays
    if launch is None or rows * count < fewest or rows < 2 or (not own and routine.threads() < 2):
        return None
    results = routine.empty((*real.shape[:-1], count), real.dtype)
    starts, lengths = routine.blocks(rows, max(1, _BLOCK // count))
    step = count if own else 0
    found = np.zeros(len(starts), np.int64)
    bits = f"u{real.itemsize}"
    arrays = (real.reshape(-1).view(bits), key, results.reshape(-1).view(bits), found)
    places = [starts * entries, starts * step, starts * count, np.arange(len(starts))]
    sizes = [(length, count, entries, step) for length in lengths.tolist()]
    launch(arrays, sizes, np.stack(places, 1), work=4 * rows * count)
    return None if found.any() else results


def at(real: Array, key: Any) -> Any:
    """`real[key]`, by a compiled loop if possible."""
    kind = type(key)
    if kind is np.ndarray or (kind is tuple and key and type(key[0]) is np.ndarray):
        found = routine.attempt(read, real, key)
        if found is not None:
            return found
        if kind is np.ndarray and key.dtype.kind in "iu":
            numpy_calls.note_done()
    return real[key]


# -------------------------------------------------------------------------------- sums in place


@cached(why=DTYPES)
def _combine_routine(step: str, code: str, index: str, scalar: bool) -> routine.Routine:
    """Combines elements at `count` indices with values, one after the other."""
    kind = NAMES[code]
    text = TABLE[step].expression("numba", (code, code), code)
    assert text is not None  # see `_combines`
    body = f"""
    clear_flags()
    value = {kind}(values[0])
    for k in range(count):
        at = int64(index[k])
        at = at + entries if at < 0 else at
        {"" if scalar else f"value = {kind}(values[k])"}
        target[at] = {kind}({text.format("target[at]", "value")})
    return test_flags()
    """
    arrays = {"target": code, "index": index, "values": code}
    name = f"combine_{step}_{code}_{index}{'_scalar' if scalar else ''}"
    return routine.Routine(name, ("count", "entries"), arrays, body)


def _combined(step: str, real: Array, key: Any, value: Any) -> int | None:
    """Combine `real[key]` with values; returns the IEEE flags, or None if NumPy must do it."""
    if not is_index(key) or real.ndim != 1 or not real.size or not real.flags.c_contiguous:
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
            return None  # NumPy has a fast loop for it
        values = value
    else:
        return None
    if np.may_share_memory(real, values) or np.may_share_memory(real, key):
        return None
    launch = _combine_routine(step, code, index, scalar).launcher()
    if not values.flags.c_contiguous:
        return None
    ends = routine.extremes(key, _FEWEST)
    if ends is None or launch is None or ends[0] < -real.size or ends[1] >= real.size:
        return None
    return launch((real, key, values), (key.size, real.size))


def _takes(dtype: np.dtype[Any], value: int | float) -> bool:
    """Whether NumPy converts a number to the dtype of the elements without error or warning."""
    if dtype == np.dtype(np.intp):
        return type(value) is int and abs(value) < 1 << 62
    return dtype == np.dtype(np.float64) and abs(value) < 1e300


def _combines(row: Op, dtype: np.dtype[Any]) -> bool:
    """Whether `combine` supports an operation: sums, and those with an integer accumulator."""
    if not row.is_exact(dtype):
        return False
    integers = dtype.kind in "iu" and bool(row.start)
    return row.keeps(dtype) and (integers or row.parts == "sum")


def combine(row: Op, real: Array, key: Any, value: Any) -> bool:
    """As the `at` method of the row's ufunc; False if NumPy must do it."""
    if not _combines(row, real.dtype):
        return False
    flags = routine.attempt(_combined, row.name, real, key, value)
    if flags is None:
        return False
    if flags and real.dtype.kind not in "iu":
        _raise_in_numpy(row.ufunc, flags, real.dtype)
    return True


def _raise_in_numpy(ufunc: Any, flags: int, dtype: np.dtype[Any]) -> None:
    """Make NumPy raise the floating-point exceptions of the sums, so that NumPy reports them."""
    huge = np.array([np.finfo(dtype).max], dtype)
    if flags & fp_flags.OVER:
        ufunc.at(huge.copy(), [0], huge[0] if ufunc is np.add else -huge[0])
    if flags & fp_flags.INVALID:
        endless = np.array([np.inf], dtype)
        ufunc.at(endless, [0], -endless[0] if ufunc is np.add else endless[0])
