"""The positions of values in a sorted table: `searchsorted` and `digitize`.

Owns the compiled search. No branch depends on the data; a bucket index (search_index.py) gives the
start; a tile of searches runs in parallel, and threads share the blocks of values. NumPy takes
tables that are not sorted, since its answers for them depend on the order of its steps.
"""

from __future__ import annotations

import functools
import textwrap
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.ndarray import concrete_value, ndarray
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import host, may_record, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.interop import overrides
from lazyfuse.interop.fallback import records
from lazyfuse.kernels import search_index
from lazyfuse.registry import serves
from lazyfuse.runtime.execution import routine

Array = np.ndarray[Any, np.dtype[Any]]

_INTP = np.dtype(np.intp)
_BLOCK = 1 << 14  # values per chunk
NUMBA_TYPES = {
    "i4": "int32", "i8": "int64", "u1": "uint8", "u4": "uint32", "f4": "float32", "f8": "float64",
}  # fmt: skip
"""The dtypes in which compiled searches compare, with their names in kernel text."""

_BEFORE = {"left": "<", "right": "<="}
_TILE = 256  # parallel searches


def place_text(code: str, side: str, values: str, kind: str) -> str:
    """Kernel text that puts the positions of a tile of values into `at[0]`, `at[1]`, ...

    A bucket index gives each search its start. `values` is the text of value `k`, of type `kind`.
    """
    element = f"table[place + half - 1] {_BEFORE[side]} value"
    last = f"table[place] {_BEFORE[side]} value"
    nan = "absent if value != value else " if code[0] == "f" else ""
    return f"""
    for k in range(size):
        independent()
        value = {kind}({values})
        wanted[k] = value
        cell = (float64(value) - origin) * scale
        cell = cell if cell > 0.0 else 0.0
        cell = cell if cell < final_cell else final_cell
        at[k] = guide[int64(cell)]
    left = window
    while left > 1:
        half = left >> 1
        for k in range(size):
            independent()
            place = at[k]
            value = wanted[k]
            at[k] = place + half if {element} else place
        left -= half
    for k in range(size):
        independent()
        place = at[k]
        value = wanted[k]
        place = place + 1 if {last} else place
        at[k] = {nan}min(place, entries)
    """


GUIDED = {"origin": "f8", "scale": "f8", "final_cell": "f8"}
"""The scalars that kernel text of `place_text` needs."""


@cached(why=DTYPES)
def search_routine(code: str, side: str) -> routine.Routine:
    """Finds the positions of `count` values in a table with a bucket index."""
    kind = NUMBA_TYPES[code]
    body = f"""
    at = local_i8({_TILE})
    wanted = local_{code}({_TILE})
    for first in range(0, count, {_TILE}):
        size = min({_TILE}, count - first)
    {textwrap.indent(place_text(code, side, "values[first + k]", kind), "    ")}
        for k in range(size):
            independent()
            places[first + k] = at[k]
    """
    sizes = ("count", "entries", "window", "absent")
    arrays = {"values": code, "table": code, "guide": "i8", "places": "i8"}
    return routine.Routine(f"search_{side}_{code}", sizes, arrays, body, GUIDED)


@serves(np.searchsorted)
def search(table: Array, values: Array, side: str = "left", sorter: Any = None) -> Array | None:
    """As `numpy.searchsorted`, by a compiled loop; None if NumPy must do it."""
    if sorter is not None or table.ndim != 1 or not table.size or values.size < routine.FEWEST:
        return None
    dtype = np.result_type(table, values)
    code = dtype.str[1:]
    if code not in NUMBA_TYPES or dtype.str[0] == ">":
        return None
    launch = search_routine(code, side).launcher()
    if launch is None:
        return None
    guide = search_index.kept.of(np.ascontiguousarray(table, dtype))
    if guide is None:
        return None
    flat = np.ascontiguousarray(values, dtype)
    places = routine.empty(flat.shape, _INTP)
    starts, lengths = routine.blocks(flat.size, _BLOCK)
    sizes = [[length, guide.entries, guide.window, guide.absent[side]] for length in lengths]
    offsets = np.stack([starts, 0 * starts, 0 * starts, starts], 1)
    arrays = (flat, guide.table, guide.starts, places)
    launch(arrays, sizes, offsets, guide.scalars, work=16 * flat.size)
    return places


def _is_table(a: Any) -> bool:
    return type(a) in (ndarray, np.ndarray) and len(a.shape) == 1 and a.dtype in CANONICAL


@records(np.searchsorted)
def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    """As `numpy.searchsorted`."""
    if type(a) in (list, tuple):
        a = np.asarray(to_numpy(a))
    big = type(v) is ndarray and concrete_value(v) is None and dtype_of(v) in CANONICAL
    if big and sorter is None and side in ("left", "right") and _is_table(a):
        function = functools.partial(np.searchsorted, side=side)
        return host("searchsorted", function, (a, v), shape_of(v), _INTP)
    return None


_multiarray: Any = getattr(getattr(np, "_core", None), "multiarray", None)
_monotonicity: Any = getattr(_multiarray, "_monotonicity", None)


@records(np.digitize, eager="arrays")
def digitize(x: Any, bins: Any, right: Any = False) -> Any:
    """As `numpy.digitize`; recorded for a large `x`."""
    if type(x) is not ndarray or concrete_value(x) is not None or not may_record():
        return None
    if dtype_of(x) not in CANONICAL or overrides.of_functions(type(bins)):
        return None
    table = np.asarray(to_numpy(bins))
    simple = table.ndim == 1 and table.size and table.dtype in CANONICAL
    if not simple or _monotonicity is None or right not in (True, False):
        return None
    if "c" in (dtype_of(x).kind, table.dtype.kind):
        return None
    falls = _monotonicity(table)
    side = "left" if right else "right"
    if falls == 1:
        return searchsorted(table.copy(), x, side)
    return len(table) - searchsorted(table[::-1].copy(), x, side) if falls == -1 else None
