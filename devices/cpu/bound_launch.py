"""A bound launch: its geometry is known, and each run fills in only addresses and scalars.

Owns the template of a launch's argument memory (see launch.py for its layout). A bound launch
serves all arrays of the same strides and dtypes.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import thread_pool
from ..base import Bound, Crew, Launch

if TYPE_CHECKING:
    from .launch import ChunkRunner

native: Any = None
"""The native extension that launches rows (native/player/launch.c); None: nothing is bound."""


def use(module: Any) -> None:
    """Bind launches with the native extension from now on."""
    global native
    native = module


def in_c(
    launch: Launch,
    entry: int,
    weight: float,
    kinds: str,
    keep: object,
    work: ChunkRunner,
    chunks: str,
) -> Bound:
    """A launch for the native extension. `chunks`: the name of the loop over rows."""
    count = len(launch.sizes)
    template, columns = _table(launch)
    rows = native.rows(template.tobytes(), columns, template.shape[1], kinds, entry, keep)
    if count == 1:
        return Bound(rows)
    additions = launch.elements * weight
    loop = work.loop(chunks)[0]
    if additions < work.threads_above:
        return Bound(rows, (loop, 0, 0, 0, None, 0, 0.0))

    def threads() -> Crew | None:
        """The loop over rows, and the team that shares it; None: Python threads help."""
        helpers = work.helpers(additions, count)
        lasts = ctypes.addressof(thread_pool.changes), work.native.sure_for()
        if helpers <= 0:
            return loop, 0, 0, 0, None, *lasts
        crew = work.native.team(helpers)
        if crew is None:
            return None
        return loop, crew.loaded[0].address, crew.address, helpers, crew, *lasts

    return Bound(rows, threads)


def _table(launch: Launch) -> tuple[np.ndarray[Any, np.dtype[Any]], tuple[int, ...]]:
    """The rows of a launch without the arrays' addresses, and the columns of these."""
    count, rank = launch.sizes.shape
    width = rank + sum([1 + len(strides) for strides in launch.strides])
    table = np.zeros((count, width), dtype=np.int64)
    table[:, :rank] = launch.sizes
    column = rank
    columns = []
    for at, (array, strides) in enumerate(zip(launch.arrays, launch.strides, strict=True)):
        table[:, column] = launch.offsets[:, at] * array.itemsize
        table[:, column + 1 : column + 1 + len(strides)] = strides
        columns.append(column)
        column += 1 + len(strides)
    return table, tuple(columns)
