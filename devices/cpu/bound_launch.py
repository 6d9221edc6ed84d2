"""A bound launch: its geometry is known, and each run fills in only addresses and scalars.

Owns the template of a launch's argument memory (see launch.py for its layout). A bound launch
serves all arrays of the same strides and dtypes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..base import Array, Bound, BoundRun, Launch
from .native_threads import NativeThreads

native: Any = None
"""The native extension whose `rows` are used (native/capture/launch.c); None: the Python here."""


def use(module: Any) -> None:
    """Bind launches with the native extension from now on; None: with the Python here."""
    global native
    native = module


class Threads(Protocol):
    """Decides which threads run chunks, and with which loop (`launching.Work`)."""

    native: NativeThreads

    def helpers(self, work: float, chunks: int) -> int:
        """As `launching.Work.helpers`."""

    def chunks_address(self) -> int:
        """As `launching.Work.chunks_address`."""


def in_c(
    launch: Launch,
    entry: int,
    weight: float,
    kinds: str,
    keep: object,
    work: Threads,
    slow: BoundRun,
) -> Bound:
    """Runs of a launch by the native extension; by `slow` where Python threads must help."""
    count = len(launch.sizes)
    template, columns = _table(launch)
    rows = native.rows(template.tobytes(), columns, template.shape[1], kinds, entry, keep)
    if count == 1:
        return Bound(rows, rows)
    additions = launch.elements * weight

    def threads() -> tuple[int, int, int, int] | None:
        """The loop over rows, and the team that shares it; None: Python threads help."""
        helpers = work.helpers(additions, count)
        if helpers <= 0:
            return work.chunks_address(), 0, 0, 0
        crew = work.native.team(helpers)
        if crew is None:
            return None
        return work.chunks_address(), crew.loaded[0].address, crew.address, helpers

    def run(arrays: list[Array], scalars: tuple[Any, ...]) -> int:
        shared = threads()
        if shared is None:
            return slow(arrays, scalars)
        flags: int = rows(arrays, scalars, *shared)
        return flags

    return Bound(run, rows, threads)


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


def one_row(
    launch: Launch,
    call: Callable[[bytes, bytes], int],
    pack: Callable[[tuple[Any, ...]], bytes],
    address_of: Callable[[Array], int],
) -> BoundRun:
    """Runs of a launch of one chunk: one row of integers."""
    template: list[int] = launch.sizes.tolist()[0]
    offsets: list[int] = launch.offsets.tolist()[0]
    columns = []
    for array, offset, strides in zip(launch.arrays, offsets, launch.strides, strict=True):
        columns.append(len(template))
        template.append(offset * array.itemsize)
        template += strides
    write = struct.Struct(f"{len(template)}q").pack
    bare = pack(()) if not launch.scalars else b""

    def run(arrays: list[Array], scalars: tuple[Any, ...]) -> int:
        row = template.copy()
        for column, array in zip(columns, arrays, strict=True):
            row[column] += address_of(array)
        return call(write(*row), pack(scalars) if scalars else bare)

    return run


def many_rows(
    launch: Launch,
    width: int,
    head: int,
    rows: Callable[[Array, int, bytes, float], int],
    pack: Callable[[tuple[Any, ...]], bytes],
    address_of: Callable[[Array], int],
) -> BoundRun:
    """Runs of a launch of several chunks.

    `rows(memory, count, scalars, elements)` goes through `count` rows that follow `head` words.
    """
    count, rank = launch.sizes.shape
    table, columns = _table(launch)
    template = np.concatenate([np.zeros(head, dtype=np.int64), table.reshape(-1)])
    step = columns[1] - columns[0] if len(columns) > 1 else 1
    elements = launch.elements
    shape = count, width

    def run(arrays: list[Array], scalars: tuple[Any, ...]) -> int:
        memory = template.copy()
        addresses = [address_of(array) for array in arrays]
        memory[head:].reshape(shape)[:, rank::step] += addresses
        return rows(memory, count, pack(scalars), elements)

    return run
