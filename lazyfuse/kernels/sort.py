"""Sorting on all threads: `sort` and `argsort` as the CPU runs them.

Threads share the rows of a matrix, and NumPy sorts each row. One long row is split at its median,
and NumPy sorts the parts in place; `argsort` sorts words that hold key and index. The order of
equal elements must be NumPy's: if the sort is not stable and two elements are equal, NumPy sorts
the whole row. Owns these decisions and the kernel texts.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.devices.caches import DTYPES, cached
from lazyfuse.kernels import gather
from lazyfuse.registry import serves
from lazyfuse.runtime.execution import routine

Array = np.ndarray[Any, np.dtype[Any]]

_INTP = np.dtype(np.intp)
_LONG = 1 << 15  # elements from which this module sorts one row itself
_SHORTEST = 1 << 16  # fewest elements of a part
_MANY = 1 << 15  # elements of all rows from which threads share them
_PARTS = 8  # most parts of one row
_BLOCK = 1 << 15  # elements of a chunk
_RUN = 32  # most equal words whose indices are sorted by insertion
_SAMPLE = 1024  # elements that are sampled for equal ones
CODES = ("i4", "i8", "u4", "u8", "f4", "f8")
"""The dtypes of elements that have ranks."""


_TALLIED = ("i1", "i2", "i4", "i8", "u1", "u2", "u4")
_BINS = 1 << 16  # widest range of integers that is counted
_FEW = 1 << 11  # bins up to which four tables alternate

# -------------------------------------------------------------------------------- packed keys

# Ranks: signed integers in the order of the numbers whose bits `v` holds. NaN is infinity's rank
# plus one, and both zeros have the same rank.
_RANKS = {
    "f8": """
    v = int64(0) if v == -0x8000000000000000 else v
    rank = v ^ ((v >> 63) & 0x7FFFFFFFFFFFFFFF)
    rank = 0x7FF0000000000001 if (v & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000 else rank
    """,
    "f4": """
    v = int64(0) if v == -0x80000000 else v
    rank = v ^ ((v >> 63) & 0x7FFFFFFF)
    rank = 0x7F800001 if (v & 0x7FFFFFFF) > 0x7F800000 else rank
    """,
    "i8": "rank = v",
    "i4": "rank = v",
    "u4": "rank = v & 0xFFFFFFFF",
    "u8": "rank = v ^ -0x8000000000000000",
}


def rank_text(code: str, load: str, depth: int) -> str:
    """Kernel text that sets `rank` to the rank of the element with the bits `load`."""
    lines = [f"v = int64({load})", *_RANKS[code].strip().splitlines()]
    return "\n".join("    " * depth + line.strip() for line in lines)


@cached(why=DTYPES)
def _range_routine(code: str) -> routine.Routine:
    """Finds the lowest and the highest rank of `count` elements."""
    body = f"""
{rank_text(code, "values[0]", 0)}
low = rank
high = rank
for k in range(count):
{rank_text(code, "values[k]", 1)}
    low = rank if rank < low else low
    high = rank if rank > high else high
found[0] = low
found[1] = high
"""
    arrays = {"values": f"i{code[1]}", "found": "i8"}
    return routine.Routine(f"range_{code}", ("count",), arrays, body)


@cached(why=DTYPES)
def _pack_routine(code: str) -> routine.Routine:
    """Packs words of rank and index, with as many upper bits of the rank as fit."""
    body = f"""
    for k in range(count):
        independent()
{rank_text(code, "values[k]", 2)}
        upper = uint64(rank - low) >> uint64(drop)
        words[k] = (upper << uint64(bits)) | uint64(first + k)
    """
    arrays = {"values": f"i{code[1]}", "words": "u8"}
    scalars = {"low": "i8", "drop": "i8", "bits": "i8"}
    return routine.Routine(f"pack_{code}", ("count", "first"), arrays, body, scalars)


@cached(why=DTYPES)
def _unpack_routine(code: str) -> routine.Routine:
    """Replaces `count` sorted words by their indices, those of equal words ordered by whole ranks.

    Sets `found` to 1 if elements are equal, to 2 if too many words are equal.
    """
    body = f"""
    mask = (uint64(1) << uint64(bits)) - uint64(1)
    k = 0
    while k < count:
        word = words[k]
        upper = word >> uint64(bits)
        words[k] = word & mask
        k += 1
        if k < count and (words[k] >> uint64(bits)) == upper:
            start = k - 1
            while k < count and (words[k] >> uint64(bits)) == upper:
                words[k] = words[k] & mask
                k += 1
            if drop == 0:
                found[0] |= 1
                continue
            if k - start > {_RUN}:
                found[0] |= 2
                continue
            for at in range(start + 1, k):
                place = words[at]
{rank_text(code, "values[int64(place)]", 4)}
                mine = rank
                to = at
                while to > start:
{rank_text(code, "values[int64(words[to - 1])]", 5)}
                    if rank == mine:
                        found[0] |= 1
                    if rank <= mine:
                        break
                    words[to] = words[to - 1]
                    to -= 1
                words[to] = place
    """
    arrays = {"values": f"i{code[1]}", "words": "u8", "found": "i8"}
    scalars = {"drop": "i8", "bits": "i8"}
    return routine.Routine(f"unpack_{code}", ("count",), arrays, body, scalars)


# -------------------------------------------------------------------------------- one row


def _parts(size: int) -> int:
    """The number of parts of a row: a power of two that depends on the number of threads."""
    wanted = min(routine.threads(), _PARTS, max(1, size // _SHORTEST))
    return int(1 << (wanted - 1).bit_length())


def _sort_in_parts(row: Array) -> None:
    """`row.sort()`: partition into halves of smaller and larger elements, then sort in parallel."""
    pieces = [row]
    for _ in range(_parts(len(row)).bit_length() - 1):
        middles = [len(piece) // 2 for piece in pieces]
        pairs = zip(pieces, middles, strict=True)
        routine.together([functools.partial(piece.partition, at) for piece, at in pairs])
        pairs = zip(pieces, middles, strict=True)
        pieces = [half for piece, at in pairs for half in (piece[:at], piece[at:])]
    routine.together([piece.sort for piece in pieces])


def _looks_unique(row: Array) -> bool:
    """Whether equal elements are unlikely, by a sample and by the number of possible values."""
    size = len(row)
    if row.dtype.kind in "iu":
        span = int(row.max()) - int(row.min())
        if 4 * size < span < size * size // 4:
            return False  # random elements would probably contain equal ones
    elif row.dtype.itemsize < 8:
        return False
    sample = np.sort(row[:: max(1, size // _SAMPLE)])
    return not (sample[1:] == sample[:-1]).any()


def _looks_sorted(row: Array) -> bool:
    """Whether a row rises, by a sample: NumPy is ten times as fast then."""
    sample = row[:: max(1, len(row) // _SAMPLE)]
    return bool((sample[1:] >= sample[:-1]).all())


def _cut_argsort(row: Array, stable: bool) -> Array | None:
    """The order of one long row; None if NumPy must find it.

    Sorts words that hold each index below as many bits of its element's rank as fit.
    """
    code, size = row.dtype.str[1:], len(row)
    steps = (_range_routine, _pack_routine, _unpack_routine)
    find, pack, unpack = [step(code).launcher() for step in steps]
    if find is None or pack is None or unpack is None:
        return None
    if _looks_sorted(row) or (not stable and not _looks_unique(row)):
        return None
    low, high = _range(row, find)
    row = row.view(f"i{row.itemsize}")
    starts, lengths = [each.tolist() for each in routine.spread(size, _BLOCK)]
    bits = (size - 1).bit_length()
    drop = max(0, (high - low).bit_length() - (64 - bits))
    order = routine.empty((size,), _INTP)
    words = order.view(np.uint64)
    sizes = list(zip(lengths, starts, strict=True))
    pack((row, words), sizes, [(start, start) for start in starts], (low, drop, bits), work=size)
    _sort_in_parts(words)
    bounds = [_run_start(words, start, bits) for start in starts] + [size]
    found = np.zeros(len(starts), np.int64)
    counts = np.diff(bounds)
    places = [(0, start, k) for k, start in enumerate(bounds[:-1])]
    unpack((row, words, found), counts, places, (drop, bits), work=4 * size)
    if (found & 2).any() or (not stable and found.any()):
        return None
    return order


def _range(row: Array, find: Any) -> tuple[int, int]:
    starts, lengths = routine.spread(len(row), _BLOCK)
    ends = np.empty((len(starts), 2), np.int64)
    places = np.stack([starts, 2 * np.arange(len(starts))], 1)
    find((row.view(f"i{row.itemsize}"), ends), lengths, places, work=2 * len(row))
    return int(ends.min()), int(ends.max())


def rank_range(row: Array) -> tuple[int, int] | None:
    """The lowest and the highest rank of a packed row; None if not compiled yet."""
    find = _range_routine(row.dtype.str[1:]).launcher()
    return None if find is None else _range(row, find)


def _run_start(words: Array, at: int, bits: int) -> int:
    """The position of the first word with the upper bits of the word at `at`."""
    upper = int(words[at]) >> bits
    return int(np.searchsorted(words[: at + 1], np.uint64(upper << bits)))


def _cut_sort(row: Array) -> Array | None:
    """One long row, sorted; None if NumPy must sort it."""
    keys = routine.empty(row.shape, row.dtype)
    keys[...] = row
    _sort_in_parts(keys)
    return keys if row.dtype.kind != "f" or _is_plain(keys) else None


def _is_plain(row: Array) -> bool:
    """Whether equal elements of a sorted row have equal bits, zeros and NaN included."""
    low, high = np.searchsorted(row, 0.0), np.searchsorted(row, 0.0, "right")
    signs = np.signbit(row[low:high])
    tail = row[np.searchsorted(row, np.nan) :].view(f"u{row.itemsize}")
    return not (signs.any() and not signs.all()) and not (tail[1:] != tail[:-1]).any()


# -------------------------------------------------------------------------------- few values


@cached(why=DTYPES)
def _tally_routine(code: str) -> routine.Routine:
    """Counts each of `bins` integers from `low` on; tables alternate for equal neighbours."""
    body = """
    for k in range(count):
        counts[(k & lanes) * bins + int64(values[k]) - low] += 1
    """
    sizes = ("count", "bins", "lanes", "low")
    return routine.Routine(f"tally_{code}", sizes, {"values": code, "counts": "i8"}, body)


@cached(why=DTYPES)
def _spell_routine(code: str) -> routine.Routine:
    """Writes `bins` integers from `low` on, each as often as it was counted."""
    kind = f"{'uint' if code[0] == 'u' else 'int'}{8 * int(code[1])}"
    body = f"""
    at = 0
    for bin in range(bins):
        times = counts[bin]
        value = {kind}(low + bin)
        for k in range(times):
            independent()
            results[at + k] = value
        at += times
    """
    arrays = {"counts": "i8", "results": code}
    return routine.Routine(f"spell_{code}", ("bins", "low"), arrays, body)


def _tallied(row: Array) -> Array | None:
    """Integers of a small range, sorted by counting them; None for other elements."""
    code, size = row.dtype.str[1:], row.size
    if size < _LONG or code not in _TALLIED or not row.dtype.isnative:
        return None
    tally, spell = _tally_routine(code).launcher(), _spell_routine(code).launcher()
    ends = routine.extremes(row, _BLOCK)
    if ends is None or tally is None or spell is None:
        return None
    low, bins = ends[0], ends[1] - ends[0] + 1
    if bins > min(size >> 3, _BINS):
        return None
    starts, lengths = routine.spread(size, max(_BLOCK, 8 * bins))
    lanes = 4 if bins <= _FEW else 1
    tables = np.zeros((len(starts), lanes, bins), np.int64)
    rows = np.arange(len(starts)) * (lanes * bins)
    sizes = [(length, bins, lanes - 1, low) for length in lengths.tolist()]
    tally((row, tables), sizes, np.stack([starts, rows], 1), work=4 * size)
    counts = tables.sum((0, 1))
    before = np.cumsum(counts) - counts
    wanted = np.arange(0, size, max(_BLOCK, size // 16))
    firsts = np.unique(np.append(np.searchsorted(before, wanted, "right") - 1, 0))
    parts = np.diff(np.append(firsts, bins))
    results = routine.empty(row.shape, row.dtype)
    pairs = zip(parts.tolist(), firsts.tolist(), strict=True)
    places = [(part, low + first) for part, first in pairs]
    spell((counts, results), places, np.stack([firsts, before[firsts]], 1), work=size)
    return results


# -------------------------------------------------------------------------------- rows


def _shared_out(function: Any, a: Array, axis: int, dtype: Any, **named: Any) -> Array | None:
    """`function` along one axis of an array of many rows, in groups of rows on all threads."""
    lanes = a.size // a.shape[axis]
    if not config.options.routines:
        return None
    across = [other for other in range(a.ndim) if other != axis and a.shape[other] > 1]
    if lanes < 2 or a.size < _MANY or routine.threads() < 2 or not across:
        return None
    along = max(across, key=lambda other: (a.shape[other] >= 4 * routine.threads(), -other))
    result = routine.empty(a.shape, dtype)
    groups = min(a.shape[along], 4 * routine.threads())
    bounds = (np.arange(groups + 1) * a.shape[along] // groups).tolist()

    def some(first: int, last: int) -> None:
        part = (slice(None),) * along + (slice(first, last),)
        result[part] = function(a[part], axis=axis, **named)

    routine.together([functools.partial(some, *pair) for pair in itertools.pairwise(bounds)])
    return result


def _is_long(a: Array) -> bool:
    return a.size >= _LONG and a.dtype.str[1:] in CODES and a.dtype.isnative


_STABLE = ("stable", "mergesort")


@serves(np.sort)
def sort(a: Array, axis: Any = -1, kind: Any = None, stable: Any = None) -> Array | None:
    """As `numpy.sort`, on all threads; None if NumPy must do it."""
    if not config.options.routines or a.dtype.kind not in "biufc":
        return None
    named = {"kind": kind} if stable is None else {"stable": stable}
    if axis is not None and a.ndim > 1 and a.shape[axis] < a.size:
        return _shared_out(np.sort, a, axis % a.ndim, a.dtype, **named) if a.size else None
    found = _tallied(np.ascontiguousarray(a).reshape(-1)) if a.dtype.kind in "iu" else None
    if found is None:
        if not _is_long(a) or kind == "heapsort":
            return None
        if ((stable or kind in _STABLE) and a.dtype.kind == "f") or _parts(a.size) < 2:
            return None  # a stable sort keeps the order of -0.0 and 0.0
        found = _cut_sort(a.reshape(-1))
    return found if found is None or axis is None or a.ndim == 1 else found.reshape(a.shape)


@serves(np.argsort)
def argsort(a: Array, axis: Any = -1, kind: Any = None, stable: Any = None) -> Array | None:
    """As `numpy.argsort`, on all threads; None if NumPy must do it."""
    if not config.options.routines or a.dtype.kind not in "biufc":
        return None
    named = {"kind": kind} if stable is None else {"stable": stable}
    if axis is not None and a.ndim > 1 and a.shape[axis] < a.size:
        return _shared_out(np.argsort, a, axis % a.ndim, _INTP, **named) if a.size else None
    if not _is_long(a) or kind == "heapsort":
        return None
    row = np.ascontiguousarray(a).reshape(-1)
    found = _cut_argsort(row, bool(stable) or kind in _STABLE)
    return found if found is None or axis is None or a.ndim == 1 else found.reshape(a.shape)


@serves(np.lexsort)
def lexsort(keys: Any, axis: Any = -1) -> Array | None:
    """As `numpy.lexsort` of rows: a stable sort by each row, the last row is the primary key."""
    order: Array | None = None
    for key in keys:
        row = key if order is None else routine.attempt(gather.read, key, order)
        found = None if row is None or not _is_long(row) else _cut_argsort(row, True)
        if found is None:
            return None
        order = found if order is None else gather.at(order, found)
    return order


def _split(theirs: Any, dtype: Any, a: Array, kth: Any, axis: Any) -> Array | None:
    if axis is None or a.ndim < 2 or not a.size or a.dtype.kind not in "biuf":
        return None
    return _shared_out(functools.partial(theirs, kth=kth), a, axis % a.ndim, dtype)


@serves(np.partition)
def partition(a: Array, kth: Any, axis: Any = -1) -> Array | None:
    """As `numpy.partition`, rows on all threads; None if NumPy must do it."""
    return _split(np.partition, a.dtype, a, kth, axis)


@serves(np.argpartition)
def argpartition(a: Array, kth: Any, axis: Any = -1) -> Array | None:
    """As `numpy.argpartition`, rows on all threads; None if NumPy must do it."""
    return _split(np.argpartition, _INTP, a, kth, axis)
