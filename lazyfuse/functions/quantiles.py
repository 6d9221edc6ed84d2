"""As NumPy's `median`, `quantile`, `percentile`: of all elements of a large array.

Owns the selection. It counts elements in equal cells of the range of ranks, on all threads, and
sorts only the cells that hold a wanted order statistic. The steps from order statistics to a result
are NumPy's (`numpy/lib/_function_base_impl.py`, `_median`, `_quantile`, `_lerp`). NumPy itself does
everything else, and every array with NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import concrete_value, gather, ndarray
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import shape_of
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.interop.fallback import records
from lazyfuse.kernels import sort
from lazyfuse.runtime.execution import routine

Array = np.ndarray[Any, np.dtype[Any]]

_FEWEST = 1 << 15  # fewest elements
_CELLS = 1 << 13
_BLOCK = 1 << 17  # elements of a chunk
_MOST = 6  # most cells that are sorted: each costs a pass
_NAN = {"f8": 0x7FF0000000000001, "f4": 0x7F800001}  # the ranks of NaN, see kernels/sort.py


@cached(why=DTYPES)
def _count_routine(code: str) -> routine.Routine:
    """Counts the elements in each cell of 2 ** `shift` ranks."""
    body = f"""
for k in range(count):
{sort.rank_text(code, "values[k]", 1)}
    counts[(rank - low) >> shift] += 1
"""
    arrays = {"values": f"i{code[1]}", "counts": "i8"}
    scalars = {"low": "i8", "shift": "i8"}
    return routine.Routine(f"cells_{code}", ("count",), arrays, body, scalars)


@cached(why=DTYPES)
def _collect_routine(code: str) -> routine.Routine:
    """Copies the elements that are in one cell; the result has room for one more."""
    body = f"""
at = 0
for k in range(count):
{sort.rank_text(code, "values[k]", 1)}
    found[at] = values[k]
    at += int64(((rank - low) >> shift) == cell)
"""
    arrays = {"values": f"i{code[1]}", "found": f"i{code[1]}"}
    scalars = {"low": "i8", "shift": "i8", "cell": "i8"}
    return routine.Routine(f"cell_{code}", ("count",), arrays, body, scalars)


def select(row: Array, places: Sequence[int]) -> list[Any] | None:
    """The elements at some positions of the sorted row; None if NumPy must find them.

    NumPy also takes rows with NaN, and those with a wanted element of zero, whose sign is unknown.
    """
    code, size = row.dtype.str[1:], len(row)
    if size < _FEWEST or code not in sort.CODES or not row.dtype.isnative:
        return None
    count, collect = _count_routine(code).launcher(), _collect_routine(code).launcher()
    bits = row.view(f"i{row.itemsize}")
    ends = sort.rank_range(row)
    if count is None or collect is None or ends is None or ends[1] >= _NAN.get(code, 1 << 64):
        return None
    low, span = ends[0], ends[1] - ends[0]
    shift = max(0, span.bit_length() - _CELLS.bit_length() + 1)
    if span >= 1 << 63:
        return None
    starts, lengths = routine.spread(size, _BLOCK)
    counts = np.zeros((len(starts), _CELLS), np.int64)
    rows = np.arange(len(starts)) * _CELLS
    count((bits, counts), lengths, np.stack([starts, rows], 1), (low, shift), work=8 * size)
    before = np.cumsum(counts.sum(0))
    cells = np.searchsorted(before, places, "right")
    if len(set(cells.tolist())) > _MOST:
        return None
    found: dict[int, Array] = {}
    values = []
    for place, cell in zip(places, cells.tolist(), strict=True):
        first = int(before[cell - 1]) if cell else 0
        if cell not in found:
            rooms = counts[:, cell] + 1
            if int(rooms.sum()) > size // 2:
                return None
            into = np.cumsum(rooms) - rooms
            room = np.empty(int(rooms.sum()), bits.dtype)
            offsets = np.stack([starts, into], 1)
            collect((bits, room), lengths, offsets, (low, shift, cell), work=4 * size)
            kept = np.ones(len(room), bool)
            kept[into + rooms - 1] = False
            found[cell] = np.sort(room[kept].view(row.dtype))
        value = found[cell][place - first]
        if row.dtype.kind == "f" and value == 0:
            return None
        values.append(value)
    return values


def _row(a: Any) -> Array | None:
    """All elements of a large array, evaluated and flat; None for others."""
    if type(a) is not ndarray or concrete_value(a) is not None or dtype_of(a).kind not in "fiu":
        return None
    real = gather(a)
    return real.reshape(-1) if real.flags.c_contiguous else None


@records(np.median, eager="arrays")
def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: Any = False
) -> Any:
    """As `numpy.median`."""
    whole = axis is None or (type(a) is ndarray and len(shape_of(a)) == 1 and axis in (0, -1))
    if whole and out is None and overwrite_input is False and keepdims is False:
        row = _row(a)
        return None if row is None else routine.attempt(_median, row)
    return None


def _median(row: Array) -> Any:
    half = len(row) // 2
    found = select(row, [half] if len(row) % 2 else [half - 1, half])
    return None if found is None else np.mean(np.array(found, row.dtype))


def _quantile(row: Array, q: Any) -> Any:
    """Quantiles by linear interpolation between order statistics; None if NumPy must do it."""
    if row.dtype != np.float64:
        return None
    wanted = np.asarray(q)
    if wanted.dtype != np.float64 or not wanted.size or wanted.size > _MOST:
        return None
    if not ((wanted >= 0) & (wanted <= 1)).all():
        return None
    size = len(row)
    virtual = (size - 1) * wanted
    lower = np.floor(virtual)
    share = virtual - lower
    first = np.minimum(lower.astype(np.intp), size - 1)
    second = np.minimum(first + 1, size - 1)
    places = sorted({*first.reshape(-1).tolist(), *second.reshape(-1).tolist()})
    found = select(row, places)
    if found is None:
        return None
    order = np.array(found)
    before, after = (order[np.searchsorted(places, each)] for each in (first, second))
    distance = after - before
    result = np.asarray(before + distance * share)
    np.subtract(after, distance * (1 - share), out=result, where=share >= 0.5)
    return result[()]


def _of_all(theirs: Any, percent: bool) -> None:
    @records(theirs)
    def function(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
        row = None if args or kwargs else _row(a)
        if row is None or type(q) not in (int, float, list, tuple, np.ndarray, np.float64):
            return None
        share = np.true_divide(q, row.dtype.type(100)) if percent else q
        return routine.attempt(_quantile, row, share)


_of_all(np.quantile, False)
_of_all(np.percentile, True)
