"""As NumPy's `interp`: compiled for a large `x` and a sorted table of real numbers.

Owns the compiled loop: the search of `searching.py`, then the steps of NumPy's C function
(`numpy/_core/src/multiarray/compiled_base.c`, `arr_interp`), for a tile of values in parallel.
NumPy itself takes tables that are not sorted or hold NaN, and complex heights.
"""

from __future__ import annotations

import functools
import textwrap
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.ndarray import concrete_value, ndarray
from lazyfuse.arrays.operators import PLAIN, dtype_of
from lazyfuse.arrays.recording import host, may_record, shape_of
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.functions.searching import GUIDED, place_text
from lazyfuse.interop import fallback, overrides
from lazyfuse.interop.fallback import records
from lazyfuse.kernels import search_index
from lazyfuse.registry import serves
from lazyfuse.runtime.execution import routine

Array = np.ndarray[Any, np.dtype[Any]]

_F8 = np.dtype(np.float64)
_BLOCK = 1 << 14  # values per chunk
_TILE = 256  # parallel searches
_CODES = ("f8", "f4", "i8", "i4", "i2", "i1", "u1", "u2", "u4")


@cached(why=DTYPES)
def _routine(code: str) -> routine.Routine:
    """Computes heights at `count` values; `steps` are the slopes between the table's entries."""
    found = place_text("f8", "right", "values[first + k]", "float64")
    body = f"""
    at = local_i8({_TILE})
    wanted = local_f8({_TILE})
    absent = 0
    last = entries - 1
    for first in range(0, count, {_TILE}):
        size = min({_TILE}, count - first)
    {textwrap.indent(found, "    ")}
        again = 0
        for k in range(size):
            independent()
            value = wanted[k]
            low = max(min(at[k] - 1, last - 1), 0)
            start = table[low]
            height = heights[low]
            result = steps[low] * (value - start) + height
            again = again | int64(result != result)
            result = height if start == value else result
            result = below if at[k] == 0 else result
            beyond = heights[last] if value == table[last] else above
            result = beyond if at[k] > last else result
            results[first + k] = value if value != value else result
        if again:
            for k in range(size):
                value = wanted[k]
                low = at[k] - 1
                if low < 0 or low >= last or value != value or table[low] == value:
                    continue
                result = steps[low] * (value - table[low]) + heights[low]
                if result != result:
                    result = steps[low] * (value - table[low + 1]) + heights[low + 1]
                    if result != result and heights[low] == heights[low + 1]:
                        result = heights[low]
                results[first + k] = result
    """
    arrays = dict.fromkeys(("table", "guide", "heights", "steps", "results"), "f8")
    arrays = {"values": code, **arrays, "guide": "i8"}
    scalars = {**GUIDED, "below": "f8", "above": "f8"}
    return routine.Routine(f"interp_{code}", ("count", "entries", "window"), arrays, body, scalars)


@cached(1)
def _rounds_each_step() -> bool:
    """Whether NumPy was compiled without contraction of `slope * distance + height`."""
    slope, distance = 1.0 + 2.0**-30, 1.0 - 2.0**-30
    fp = np.array([-1.0, slope * 2.0 - 1.0])  # its slope is exactly `slope`
    return bool(np.interp(distance, [0.0, 2.0], fp) == slope * distance - 1.0)


@serves(np.interp)
def compiled(
    x: Array, xp: Array, fp: Array, left: float | None = None, right: float | None = None
) -> Array | None:
    """As `numpy.interp` of NumPy arrays, by a compiled loop; None if NumPy must do it."""
    code = x.dtype.str[1:]
    if code not in _CODES or not x.dtype.isnative or x.size < routine.FEWEST or len(xp) < 2:
        return None
    launch = _routine(code).launcher()
    guide = search_index.kept.of(xp) if launch is not None and _rounds_each_step() else None
    if guide is None or launch is None or guide.entries < len(xp):
        return None
    with np.errstate(all="ignore"):
        steps = np.diff(fp) / np.diff(xp)
    flat = np.ascontiguousarray(x).reshape(-1)
    results = routine.empty(flat.shape, _F8)
    starts, lengths = routine.blocks(flat.size, _BLOCK)
    sizes = [[length, len(xp), guide.window] for length in lengths]
    offsets = np.zeros((len(starts), 6), np.int64)
    offsets[:, 0] = offsets[:, 5] = starts
    ends = (fp[0] if left is None else left, fp[-1] if right is None else right)
    arrays = (flat, guide.table, guide.starts, fp, steps, results)
    launch(arrays, sizes, offsets, (*guide.scalars, *map(float, ends)), work=20 * flat.size)
    return results.reshape(x.shape)


@records(np.interp, eager="arrays")
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """As `numpy.interp`; recorded for a large `x` with a table of real numbers."""
    if type(x) is not ndarray or concrete_value(x) is not None or not may_record():
        return None
    if overrides.of_functions.find((xp, fp)):
        return None
    table = [np.asarray(to_numpy(each)) for each in (xp, fp)]
    simple = all(each.ndim == 1 and each.size and each.dtype.kind in "fiu" for each in table)
    if not simple or table[0].size != table[1].size or dtype_of(x).kind not in "fiu":
        return None
    places, heights = [np.array(each, _F8) for each in table]
    points: Any = x
    if period is not None:
        if type(period) not in (int, float) or period == 0:
            return None
        period = abs(period)
        left = right = None
        points = x.astype(_F8) % period  # type: ignore[attr-defined]
        places = places % period
        order = np.argsort(places)
        places, heights = places[order], heights[order]
        places = np.concatenate((places[-1:] - period, places, places[:1] + period))
        heights = np.concatenate((heights[-1:], heights, heights[:1]))
    for end in (left, right):
        if end is not None and (type(end) not in PLAIN or isinstance(end, complex)):
            return None
    function = functools.partial(np.interp, **fallback.given(left=left, right=right))
    return host("interp", function, (points, places, heights), shape_of(x), _F8)
