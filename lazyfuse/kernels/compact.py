"""The elements that a mask keeps, on NumPy arrays: their number, positions, values, and sum.

Owns the compiled loops for it. They count per block of the mask; then chunks write to disjoint
ranges in parallel, chosen by sizes alone. A float sum follows NumPy's pairwise tree over the kept
values, segment by segment, in a buffer that stays in the cache. Knows NumPy arrays only; while a
loop is not compiled NumPy computes the same values.
"""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lazyfuse import bootstrap
from lazyfuse.codegen.lowering.summation import leaves, left_half
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.runtime.execution import routine
from lazyfuse.runtime.execution.routine import Routine
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling.eager_rules import MASKED_ELEMENTS, small

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 1024  # mask elements that are counted together
CHUNK = 64 * BLOCK
_BYTES = 128  # counters of one byte each, for as many mask elements at a time
STRETCH = 1 << 15  # most values in a chunk of a sum; large sums have about PIECES chunks
PIECES = 15
LEAF = 1024  # values that are added at once, from a buffer in the L1 cache
_PIECE = 512  # mask elements that are read between two such additions
_ROOM = LEAF + BLOCK + 2 * _PIECE
# Work per element, in additions: threads pay from fewer elements on than in an addition.
WEIGHT = 4
# Below this many truth values in one row NumPy finds positions before a compiled loop starts.
FEW = 1 << 17
_GEOMETRIES = 32  # cached geometries of chunks

_native: Any = bootstrap.machine_code()

_COUNT = Routine(
    "count_true",
    ("count", "first"),
    {"mask": "u1", "found": "i8"},
    f"""
    lanes = local_u1({_BYTES})
    for block in range((count + {BLOCK - 1}) // {BLOCK}):
        start = block * {BLOCK}
        stop = min(start + {BLOCK}, count)
        whole = stop - (stop - start) % {_BYTES}
        for j in range({_BYTES}):
            independent()
            lanes[j] = uint8(0)
        for at in range(start, whole, {_BYTES}):
            for j in range({_BYTES}):
                independent()
                lanes[j] = uint8(lanes[j] + uint8(mask[at + j] != 0))
        total = int32(0)
        for j in range({_BYTES}):
            total += int32(lanes[j])
        for i in range(whole, stop):
            total += int32(mask[i] != 0)
        found[first + block] = total
    """,
)

_POSITIONS = Routine(
    "true_positions",
    ("count", "room", "start"),
    {"mask": "u1", "out": "i8"},
    f"""
    numbers = local_i8({BLOCK})
    k = 0
    for first in range(0, count, {BLOCK}):
        number = min({BLOCK}, count - first)
        for i in range(number):
            numbers[i] = start + first + i
        there, here = pointer_i8(meta[7] + 8 * k), pointer_u1(meta[3] + first)  # out, mask
        k += compact_8(there, numbers, here, number, room - k)
    """,
)

_POSITIONS_2 = Routine(
    "true_rows_columns",
    ("count", "room", "row", "column"),
    {"mask": "u1", "out": "i8"},
    """
    k = 0
    i = 0
    while k < room:
        out[2 * k] = row
        out[2 * k + 1] = column
        k += int64(mask[i] != 0)
        i += 1
        column += 1
        if column == columns:
            column = 0
            row += 1
    """,
    scalars={"columns": "i8"},
)

# NumPy's pairwise tree over the kept values, left to right with a stack; each leaf is added when
# the mask has given its values. The first `skip` kept values belong to another chunk.
_SUM = """
buffer, left = local_{code}({room}), local_{code}(64)
right, side = local_i8(64), local_i8(64)
clear_flags()
first, last, seen = 0, 0, 0
top, size = 0, count
while True:
    while size > {leaf}:
        half = {half}
        right[top] = size - half
        side[top] = 0
        top += 1
        size = half
    if first + size + skip + {piece} > {room}:
        last -= first
        for k in range(last):
            buffer[k] = buffer[first + k]
        first = 0
    while last - first < size + skip:
        number = min({piece}, rest - seen)
        there, these = shifted(buffer, last), shifted(data, seen)
        last += compact_{bytes}(there, these, shifted(mask, seen), number, {room} - last)
        seen += number
    first += skip
    skip = 0
    total = pairwise_{code}(shifted(buffer, first), size)
    first += size
    while top > 0 and side[top - 1] == 1:
        top -= 1
        total = left[top] + total
    if top == 0:
        break
    left[top - 1] = total
    side[top - 1] = 1
    size = right[top - 1]
out[0] = total
return test_flags()
"""
_HALF = {"f": "(size >> 1) & ~7", "c": "(size - (size & 7)) >> 1"}


@cached(why=DTYPES)
def _select_routine(size: int) -> Routine:
    code = "c16" if size == 16 else f"u{size}"
    body = f"compact_{size}(out, data, mask, count, room)"
    return Routine(
        f"select_{code}", ("count", "room"), {"data": code, "mask": "u1", "out": code}, body
    )


@cached(why=DTYPES)
def _sum_routine(code: str) -> Routine:
    sizes = {"room": _ROOM, "leaf": LEAF, "piece": _PIECE}
    body = _SUM.format(code=code, bytes=code[1:], half=_HALF[code[0]], **sizes)
    arrays = {"data": code, "mask": "u1", "out": code}
    return Routine(f"sum_kept_{code}", ("rest", "skip", "count"), arrays, body)


class CountedMask(NamedTuple):
    """A mask in C order and what it keeps. `before`: for each block, the kept values before it."""

    whole: Array  # the mask
    mask: Array  # flat, as bytes
    before: Array | None  # None: NumPy counted the whole mask
    number: int


def _runs_at_once(mask: Array) -> bool:
    return _native is not None and mask.size <= MASKED_ELEMENTS


def kept(mask: Array) -> CountedMask:
    """Count what a mask keeps."""
    if _runs_at_once(mask):
        flat = mask.reshape(-1).view(np.uint8)
        return CountedMask(mask, flat, None, int(np.count_nonzero(mask)))
    return _by_block(mask)


def _by_block(mask: Array, found: CountedMask | None = None) -> CountedMask:
    """What a mask keeps, counted per block if the loop for it is compiled."""
    if found is not None and found.before is not None:
        return found
    flat = np.ascontiguousarray(mask).reshape(-1).view(np.uint8)
    before = routine.either(_counted, _uncounted, flat)
    count = int(before[-1]) if before.size else int(np.count_nonzero(mask))
    return CountedMask(mask, flat, before if before.size else None, count)


def _counted(flat: Array) -> Array | None:
    launch = _COUNT.launcher()
    if launch is None or not flat.size:
        return None
    before = np.zeros(-(-flat.size // BLOCK) + 1, dtype=np.int64)
    sizes, places = _counting(flat.size)
    launch((flat, before[1:]), sizes, places, work=flat.size)
    before.cumsum(out=before)
    return before


@cached(_GEOMETRIES)
def _counting(size: int) -> tuple[Array, Array]:
    """Sizes and offsets of the chunks that count a mask of `size` elements."""
    starts, counts = _chunks(size)
    return _columns(counts, starts // BLOCK), _columns(starts, np.zeros_like(starts))


def _uncounted(flat: Array) -> Array:
    return np.empty(0, dtype=np.int64)


@cached(_GEOMETRIES)
def _chunks(size: int) -> tuple[Array, Array]:
    starts = np.arange(0, size, CHUNK, dtype=np.int64)
    return starts, np.minimum(CHUNK, size - starts)


def _rooms(found: CountedMask, starts: Array) -> tuple[Array, Array]:
    """The offset at which each chunk writes, and the number of elements."""
    assert found.before is not None
    lows = found.before[starts // BLOCK]
    rooms = np.empty_like(lows)
    np.subtract(lows[1:], lows[:-1], out=rooms[:-1])
    rooms[-1:] = found.number - lows[-1:]
    return lows, rooms


def _columns(*columns: Array) -> Array:
    """As `np.stack(columns, 1)`, which takes three times as long for so few numbers."""
    made = np.empty((len(columns[0]), len(columns)), dtype=np.int64)
    for at, each in enumerate(columns):
        made[:, at] = each
    return made


def _fresh(count: int, dtype: np.dtype[Any]) -> Array:
    """Memory for a result: from the pool, unless it becomes an eager array that owns its memory."""
    if small(count):
        return np.empty(count, dtype)
    return devices.empty((count,), dtype)


# --------------------------------------------------------------------------------------- values


def select(values: Array, mask: Array, found: CountedMask | None = None) -> Array:
    """`values[mask]` for a mask of the shape of `values`: a new packed array."""
    if _runs_at_once(mask) and (chosen := _selected_at_once(values, mask, found)) is not None:
        return chosen
    return routine.either(_selected, _selected_by_numpy, values, mask, found)


def _selected_at_once(values: Array, mask: Array, found: CountedMask | None) -> Array | None:
    """The same by one thread in C; None where it does not do it."""
    if values.dtype.kind not in "biufc":
        return None
    number = int(np.count_nonzero(mask)) if found is None else found.number
    out = _fresh(number, values.dtype)
    return out if _native.mask_take(values, mask, out) else None


def put(values: Array, mask: Array, value: Any) -> None:
    """`values[mask] = value`."""
    if _native is None or not _native.mask_put(values, mask, value):
        values[mask] = value


def _selected(values: Array, mask: Array, found: CountedMask | None) -> Array | None:
    size = values.itemsize
    if size not in (1, 2, 4, 8, 16) or values.dtype.hasobject:
        return None
    launch = _select_routine(size).launcher()
    if launch is None:
        return None
    found = _by_block(mask, found)
    if found.before is None:
        return None
    out = _fresh(found.number, values.dtype)
    code = "c16" if size == 16 else f"u{size}"
    data = np.ascontiguousarray(values).reshape(-1)
    starts, counts = _chunks(data.size)
    lows, rooms = _rooms(found, starts)
    launch(
        (data.view(code), found.mask, out.view(code)),
        _columns(counts, rooms),
        _columns(starts, starts, lows),
        work=WEIGHT * data.size,
    )
    return out


def _selected_by_numpy(values: Array, mask: Array, found: CountedMask | None) -> Array:
    chosen: Array = values[mask]
    return chosen


# ------------------------------------------------------------------------------------ positions


def positions(mask: Array) -> tuple[Array, ...]:
    """As `numpy.nonzero` of an array of truth values."""
    return routine.either(_positions, np.nonzero, mask)


def _positions(mask: Array) -> tuple[Array, ...] | None:
    rank = mask.ndim
    if rank > 2 or mask.size < (FEW if rank == 1 else 1):
        return None
    launch = (_POSITIONS if rank == 1 else _POSITIONS_2).launcher()
    if launch is None:
        return None
    found = _by_block(mask)
    if found.before is None or not found.number:
        return None
    starts, counts = _chunks(mask.size)
    lows, rooms = _rooms(found, starts)
    if rank == 1:
        out = _fresh(found.number, np.dtype(np.int64))
        sizes = _columns(counts, rooms, starts)
        scalars: tuple[int, ...] = ()
    else:
        out = np.empty((found.number, 2), dtype=np.int64)
        rows, columns = np.divmod(starts, mask.shape[1])
        sizes, scalars = _columns(counts, rooms, rows, columns), (mask.shape[1],)
    places = _columns(starts, rank * lows)
    launch((found.mask, out), sizes, places, scalars, work=WEIGHT * mask.size)
    return (out,) if rank == 1 else (out[:, 0], out[:, 1])


# ----------------------------------------------------------------------------------------- sums


def total(values: Array, mask: Array, found: CountedMask | None = None) -> Array:
    """`values[mask].sum()` of floats, in NumPy's order of summation, as an array without axes."""
    if _runs_at_once(mask):
        return _total_by_numpy(values, mask, found)
    return routine.either(_total, _total_by_numpy, values, mask, found)


def _total(values: Array, mask: Array, found: CountedMask | None) -> Array | None:
    dtype = values.dtype
    code = dtype.str[1:]
    launch = _sum_routine(code).launcher() if code in ("f4", "f8", "c8", "c16") else None
    if launch is None or not dtype.isnative:
        return None
    found = _by_block(mask, found)
    if found.before is None or not found.number:
        return None
    counts, lows, numbers, joins = _stretches(found.number, dtype.kind == "c")
    blocks = found.before.searchsorted(lows, side="right") - 1
    starts = blocks * BLOCK
    partial = np.empty(len(counts), dtype)
    data = np.ascontiguousarray(values).reshape(-1)
    flags = launch(
        (data, found.mask, partial),
        _columns(data.size - starts, lows - found.before[blocks], counts),
        _columns(starts, starts, numbers),
        work=WEIGHT * data.size,
    )
    if flags:
        return None  # NumPy repeats the sum and warns
    if dtype.char in "dD":  # Python's numbers are doubles, and faster than NumPy's
        found_sum = _joined(partial.tolist(), joins)
    else:
        with np.errstate(all="ignore"):
            found_sum = _joined(list(partial), joins)
    return np.asarray(found_sum, dtype) if isfinite(found_sum) else None


def _total_by_numpy(values: Array, mask: Array, found: CountedMask | None) -> Array:
    return np.asarray(np.add.reduce(select(values, mask, found)))


@cached(_GEOMETRIES)
def _stretches(number: int, complex_values: bool) -> tuple[Array, Array, Array, tuple[int, ...]]:
    """The segments of a sum of `number` values: lengths, offsets, numbers, joins.

    Each segment is a subtree of NumPy's tree, so the cuts change no bit of the sum.
    """
    lengths = leaves(number, max(STRETCH, number // PIECES), complex_values)
    counts = np.array(lengths, dtype=np.int64)
    joins: list[int] = []
    _schedule(number, iter(lengths), 0, complex_values, joins)
    return counts, counts.cumsum() - counts, np.arange(len(counts)), tuple(joins)


def _schedule(
    count: int, lengths: Iterator[int], ahead: int, complex_values: bool, joins: list[int]
) -> None:
    """After each segment, how often the last two sums are added. `ahead`: a length already read."""
    first = ahead or next(lengths)
    if first == count:
        joins.append(0)
        return
    left = left_half(count, complex_values)
    _schedule(left, lengths, first, complex_values, joins)
    _schedule(count - left, lengths, 0, complex_values, joins)
    joins[-1] += 1


def _joined(sums: list[Any], joins: tuple[int, ...]) -> Any:
    """The sum of the segments' sums, by NumPy's tree above them."""
    stack: list[Any] = []
    for value, number in zip(sums, joins, strict=True):
        total = value
        for _ in range(number):
            total = stack.pop() + total
        stack.append(total)
    # NumPy adds the tree to the identity: -0.0 becomes 0.0
    return stack[0] + (0j if type(stack[0]) is complex else 0)
