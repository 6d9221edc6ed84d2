"""Guides: where a search in a sorted table begins. Those of large tables are kept for the next one.

Owns `Guide`, and the few that are kept. A kept guide serves a table with the same bits only: that
is looked at each time, which costs a twentieth of building a guide, so nobody need know who wrote
to the table in between. `LIMIT` bytes may be kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.devices.caches import register

Array = np.ndarray[Any, np.dtype[Any]]

LIMIT = 64 << 20  # bytes of sorted tables kept, with their guides
_CELLS = 1 << 20  # of a guide, at most
_WORTH = 1 << 12  # entries below which a guide is built faster than it is found


class BucketIndex:
    """A sorted table with the place where a search in it begins, by equal cells of its range.

    The cell of a number grows with it, however its computation rounds: what stands in lower cells
    is smaller, what stands in higher ones is larger, so at most `window` entries are compared.
    """

    __slots__ = ("absent", "entries", "scalars", "starts", "table", "window")

    def __init__(self, table: Array) -> None:
        size = len(table)
        numbers = size - int(np.isnan(table).sum()) if table.dtype.kind == "f" else size
        self.entries = numbers
        self.absent = {"left": numbers, "right": size}  # where NaN belongs
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
        """Whether the guide was built from a table of these bits (those of NaN aside)."""
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
    """Whether a table ascends, NaN last."""
    first, second = table[:-1], table[1:]
    if table.dtype.kind != "f":
        return bool((first <= second).all())
    with np.errstate(all="ignore"):
        return bool(((first <= second) | (second != second)).all())


class BucketIndexes:
    """The guides searched with last, the latest first, as many as fit into `LIMIT`."""

    def __init__(self) -> None:
        self.guides: list[BucketIndex] = []
        self.hits = self.misses = 0

    def of(self, table: Array) -> BucketIndex | None:
        """The guide of a packed table; None if it is not sorted (NaN last)."""
        if len(table) < _WORTH:
            return BucketIndex(table) if is_sorted(table) else None
        guides = self.guides  # never changed, only replaced: threads may search at once
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
        """Entries, bytes, limit and counters."""
        guides = self.guides
        return {
            "entries": len(guides),
            "bytes": sum(each.nbytes for each in guides),
            "limit": LIMIT,
            "hits": self.hits,
            "misses": self.misses,
        }

    def clear(self) -> None:
        """Forget all of them."""
        self.guides = []


kept = BucketIndexes()
register("kernels.search_index.tables", lambda: len(kept.guides), None, kept.clear, "bytes: LIMIT")
