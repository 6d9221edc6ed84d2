"""A launch whose geometry is known: only addresses and scalars are filled in at each run.

Owns the template of a launch's argument memory (see launching.py for its layout). What a program
prepares is good for all arrays of the same strides and dtypes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Launch

Run = Callable[[list[Array], tuple[Any, ...]], int]
"""`run(arrays, scalars)`: the IEEE flags, as `base.Program.launch` gives them."""


def one_row(
    launch: Launch,
    call: Callable[[bytes, bytes], int],
    pack: Callable[[tuple[Any, ...]], bytes],
    address_of: Callable[[Array], int],
) -> Run:
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
) -> Run:
    """Runs of a launch of several chunks.

    `rows(memory, count, scalars, elements)` goes through `count` rows that follow `head` words.
    """
    count, rank = launch.sizes.shape
    template = np.zeros(head + count * width, dtype=np.int64)
    table = template[head:].reshape(count, width)
    table[:, :rank] = launch.sizes
    column = rank
    columns = []
    for at, (array, strides) in enumerate(zip(launch.arrays, launch.strides, strict=True)):
        table[:, column] = launch.offsets[:, at] * array.itemsize
        table[:, column + 1 : column + 1 + len(strides)] = strides
        columns.append(column)
        column += 1 + len(strides)
    step = columns[1] - columns[0] if len(columns) > 1 else 1
    elements = launch.elements
    shape = count, width

    def run(arrays: list[Array], scalars: tuple[Any, ...]) -> int:
        memory = template.copy()
        addresses = [address_of(array) for array in arrays]
        memory[head:].reshape(shape)[:, rank::step] += addresses
        return rows(memory, count, pack(scalars), elements)

    return run
