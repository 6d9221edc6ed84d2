"""Running sums and products: `cumsum` and `cumprod`, by compiled loops.

Owns the loops. Every sum is taken in NumPy's order. Along rows, four rows run in parallel, since
each addition waits for the previous one; along other axes whole rows are added. Threads share the
rows, or blocks of columns. If any row raises a floating-point exception NumPy computes all rows
again and reports it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse.codegen.graph.node import HostCall, Shape
from lazyfuse.codegen.graph.shapes import contiguous_strides
from lazyfuse.codegen.plan import chains
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.late_modules import when_run
from lazyfuse.registry import serves
from lazyfuse.runtime.execution import routine, tiles
from lazyfuse.runtime.numerics import fp_flags

if TYPE_CHECKING:
    from lazyfuse.runtime.execution.tiles import TileCall, TileOperand

Array = np.ndarray[Any, np.dtype[Any]]

_SIDE = 4  # rows summed in parallel by one thread
_BLOCK = 1 << 15  # elements per chunk
_COLUMNS = 1 << 9  # per block: two rows of a block stay in the L1 cache
_TELLING = fp_flags.OVER | fp_flags.INVALID | fp_flags.DIVIDE

NAMES = {
    "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64",
    "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128",
}  # fmt: skip
"""Names of dtypes in kernel text."""


@cached(why=DTYPES)
def _rows_routine(sign: str, code: str, total: str, bare: bool = False) -> routine.Routine:
    """Running sums along each of `rows` rows of `length` elements."""
    kind = NAMES[total]
    sides = range(_SIDE)
    starts = "".join(f"    from{s} = (row + {s}) * length\n" for s in sides)
    firsts = "".join(f"    total{s} = {kind}(values[from{s}])\n" for s in sides)
    stores = "".join(f"    results[from{s}] = total{s}\n" for s in sides)
    steps = "".join(f"        next{s} = {kind}(values[from{s} + k])\n" for s in sides)
    steps += "".join(f"        total{s} = {kind}(total{s} {sign} next{s})\n" for s in sides)
    steps += "".join(f"        results[from{s} + k] = total{s}\n" for s in sides)
    body = f"""
clear_flags()
together = rows - rows % {_SIDE}
for row in range(0, together, {_SIDE}):
{starts}{firsts}{stores}    for k in range(1, length):
{steps}
for row in range(together, rows):
    start = row * length
    total = {kind}(values[start])
    results[start] = total
    for k in range(1, length):
        total = {kind}(total {sign} {kind}(values[start + k]))
        results[start + k] = total
return test_flags()
"""
    arrays = {"values": code, "results": total}
    name = f"scan_rows_{_WORDS[sign]}_{code}_{total}{'_bare' if bare else ''}"
    return routine.Routine(name, ("rows", "length"), arrays, body, bare=bare)


@cached(why=DTYPES)
def _columns_routine(sign: str, code: str, total: str) -> routine.Routine:
    """Running sums over `length` rows of `columns` elements, with a row stride of `width`."""
    kind = NAMES[total]
    body = f"""
    clear_flags()
    for j in range(columns):
        independent()
        results[j] = {kind}(values[j])
    for row in range(1, length):
        at = row * width
        for j in range(columns):
            independent()
            results[at + j] = {kind}(results[at - width + j] {sign} {kind}(values[at + j]))
    return test_flags()
    """
    arrays = {"values": code, "results": total}
    name = f"scan_columns_{_WORDS[sign]}_{code}_{total}"
    return routine.Routine(name, ("columns", "length", "width"), arrays, body)


_WORDS = {"+": "add", "*": "multiply"}


def _scanned(sign: str, a: Array, axis: int | None, dtype: Any) -> Array | None:
    """The running sums or products; None if NumPy must compute them."""
    asked = np.dtype(dtype) if dtype is not None else _total(a.dtype)
    code, total = a.dtype.str[1:], asked.str[1:]
    if a.dtype.byteorder == ">" or asked.byteorder == ">" or a.size < routine.FEWEST:
        return None
    if total not in NAMES or code not in (*NAMES, "b1") or not _is_plain(sign, a.dtype, asked):
        return None
    if asked.kind in "iu" and asked == a.dtype:
        return None  # NumPy adds them at the speed of memory
    shape = (a.size,) if axis is None or not a.shape else a.shape
    axis = 0 if axis is None else axis % len(shape)
    outer, length = math.prod(shape[:axis]), shape[axis]
    width = math.prod(shape[axis + 1 :])
    rows = width == 1
    launch = (_rows_routine if rows else _columns_routine)(sign, code, total).launcher()
    if launch is None:
        return None
    a = np.ascontiguousarray(a)
    results = routine.empty(shape, asked)
    if rows:
        starts, lengths = routine.blocks(outer, max(1, _BLOCK // length))
        sizes = [[count, length] for count in lengths]
        places = starts * length
    else:
        starts, lengths = routine.blocks(width, _COLUMNS)
        sizes = [[count, length, width] for _ in range(outer) for count in lengths]
        places = (np.arange(outer)[:, None] * (length * width) + starts).reshape(-1)
    flags = launch((a, results), sizes, np.stack([places, places], 1), work=2 * a.size)
    return None if flags & _TELLING and asked.kind in "fc" else results


def _total(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of NumPy's sums: narrow integers are summed as the default integer."""
    if dtype.kind not in "biu" or dtype.itemsize >= np.dtype(int).itemsize:
        return dtype
    return np.dtype(np.uint if dtype.kind == "u" else int)


def _is_plain(sign: str, given: np.dtype[Any], total: np.dtype[Any]) -> bool:
    """Whether casts and steps give the same values and warnings in compiled loops as in NumPy."""
    if given != total and not np.can_cast(given, total, "safe"):
        return False
    if sign == "*":  # compiled complex products can differ from NumPy's
        return total.kind != "c" and not fp_flags.is_wanted(fp_flags.UNDER)
    return True


@serves(np.cumsum)
def cumsum(a: Array, axis: int | None = None, dtype: Any = None) -> Array | None:
    """As `numpy.cumsum`, by a compiled loop; None if NumPy must do it."""
    return _scanned("+", a, axis, dtype)


@serves(np.cumprod)
def cumprod(a: Array, axis: int | None = None, dtype: Any = None) -> Array | None:
    """As `numpy.cumprod`, by a compiled loop; None if NumPy must do it."""
    return _scanned("*", a, axis, dtype)


# -------------------------------------------------------------------------------- in chains


def _tiled(sources: tuple[Shape, ...], result: Shape, places: tuple[int | None, ...]) -> int | None:
    """The axis to cut into tiles: 0, for running sums along rows; None for others."""
    rows = len(result) > 1 and sources[0] == result and places[0] == 0
    return 0 if rows else None


def _tile(call: HostCall, sources: Sequence[TileOperand], result: TileOperand) -> TileCall | None:
    """A call that sums the rows of one tile along the last axis; None for other calls."""
    function: Any = call.function
    scan, source = getattr(function, "func", None), sources[0]
    sign = "+" if scan is np.cumsum else "*"
    if (
        scan not in (np.cumsum, np.cumprod)
        or function.keywords.get("axis") != len(result.shape) - 1
    ):
        return None
    code, total = source.dtype.str[1:], result.dtype.str[1:]
    packed = all(each.strides == contiguous_strides(each.shape) for each in (source, result))
    known = (
        total in NAMES and code in (*NAMES, "b1") and _is_plain(sign, source.dtype, result.dtype)
    )
    if not packed or not known or 0 in result.shape:
        return None
    found = routine.entry_of(_rows_routine(sign, code, total, bare=True))
    if found is None:
        return None
    length = result.shape[-1]
    return tiles.TileCall(found[0], (math.prod(result.shape[:-1]), length), found[1])


when_run(chains, lambda: chains.TILED.update(accumulate=_tiled))
when_run(tiles, lambda: tiles.MAKERS.update(accumulate=_tile))
