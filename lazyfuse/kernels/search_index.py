"""Bucket indexes: they give a search in a sorted table its start. Large tables keep theirs.

Owns `BucketIndex` and the cache of a few, at most `LIMIT` bytes. A cached index serves only a table
with the same bits. Each search compares them, at a twentieth of the cost of building an index, so
writes to the table need no tracking.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.devices.caches import register

Array = np.ndarray[Any, np.dtype[Any]]

LIMIT = 64 << 20  # bytes of cached tables with their indexes
_CELLS = 1 << 20  # most cells of an index
_WORTH = 1 << 12  # entries below which building an index is faster than finding one


class BucketIndex:
    """A sorted table whose range is cut into equal cells; each cell has the start of its searches.

    The cell of a number never decreases as the number grows, however its computation rounds.
    Entries in lower cells are smaller and entries in higher cells larger, so a search compares at
    most `window` entries.
    """

    __slots__ = ("absent", "entries", "scalars", "starts", "table", "window")

    def __init__(self, table: Array) -> None:
        size = len(table)
        numbers = size - int(np.isnan(table).sum()) if table.dtype.kind == "f" else size
        self.entries = numbers
        self.absent = {"left": numbers, "right": size}  # the positions of NaN
        ends = (float(table[0]), float(table[numbers - 1])) if numbers else (0.0, 0.0)
        cells = min(_CELLS, 1 << (8 * numbers if numbers < 1024 else 2 * numbers).bit_length())
        with np.errstate(all="ignore"):
            scale = np.float64(cells) / (np.float64(ends[1]) - np.float64(ends[0]))
            if not (np.isfinite(scale) and np.isfinite(scale * ends[0])):
                scale, cells = np.float64(0.0), 1
            origin = ends[0] if scale else 0.0
            cell = (table[:numbers].astype("f8") - origin) * scale
        if not scale:
            cell = np.zeros(numbers)
        count = np.bincount(np.clip(cell, 0.0, cells - 1.0).astype(np.int64), minlength=cells)
        self.window = max(1, int(count.max(initial=0)))
        self.starts = np.zeros(cells, np.int64)
        np.cumsum(count[:-1], out=self.starts[1:])
        top = np.inf if table.dtype.kind == "f" else np.iinfo(table.dtype).max
        self.table = np.concatenate([table[:numbers], np.full(self.window + 1, top, table.dtype)])
        self.scalars = (origin, float(scale), float(cells - 1))

    def is_of(self, table: Array) -> bool:
        """Whether the index was built from a table with these bits; any NaN equals any other."""
        known, size = self.table, len(table)
        if known.dtype != table.dtype or self.absent["right"] != size:
            return False
        bits = f"u{table.itemsize}"
        mine, other = known[: self.entries].view(bits), table[: self.entries].view(bits)
        step = max(1, self.entries >> 6)
        if not (mine[::step] == other[::step]).all() or not (mine == other).all():
            return False
        return self.entries == size or bool(np.isnan(table[self.entries :]).all())

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + self.starts.nbytes


def is_sorted(table: Array) -> bool:
    """Whether a table is in ascending order, NaN last."""
    first, second = table[:-1], table[1:]
    if table.dtype.kind != "f":
        return bool((first <= second).all())
    with np.errstate(all="ignore"):
        return bool(((first <= second) | (second != second)).all())


class BucketIndexes:
    """The most recently used indexes, the latest first, as many as fit into `LIMIT`."""

    def __init__(self) -> None:
        self.guides: list[BucketIndex] = []
        self.hits = self.misses = 0

    def of(self, table: Array) -> BucketIndex | None:
        """The index of a packed table; None if it is not sorted (NaN last)."""
        if len(table) < _WORTH:
            return BucketIndex(table) if is_sorted(table) else None
        guides = self.guides  # replaced, never changed: other threads may read it
        found = next((each for each in guides if each.is_of(table)), None)
        if found is None:
            if not is_sorted(table):
                return None
            found = BucketIndex(table)
            self.misses += 1
        else:
            self.hits += 1
        latest = [found, *(each for each in guides if each is not found)]
        while latest and sum(each.nbytes for each in latest) > LIMIT:
            latest.pop()
        self.guides = latest
        return found

    def info(self) -> dict[str, int]:
        """Entries, bytes, limit and counters of the cache."""
        guides = self.guides
        return {
            "entries": len(guides),
            "bytes": sum(each.nbytes for each in guides),
            "limit": LIMIT,
            "hits": self.hits,
            "misses": self.misses,
        }

    def clear(self) -> None:
        """Drop all cached indexes."""
        self.guides = []


kept = BucketIndexes()
register("kernels.search_index.tables", lambda: len(kept.guides), None, kept.clear, "bytes: LIMIT")
