"""Arrays that lie in a file as they would in memory: `.npy` files, and what `numpy.memmap` maps.

A part is moved by the fewest transfers that its layout allows: runs of bytes are read and written
directly, short ones go through a mapping of a window of the file. No mapping is larger than
`WINDOW`, so that a file may be larger than the address space that the process is allowed.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from lazyfuse.io.chunks import Box

Array = np.ndarray[Any, np.dtype[Any]]

WINDOW = 1 << 27
"""Bytes of a file that are mapped at once."""

SCRATCH = 1 << 24
"""Bytes that are transposed at once, where file and array have their axes in another order."""

RUN = 1 << 15
"""Bytes from which a transfer of its own is cheaper than faults in a mapping."""

GAP = 1 << 16
"""Bytes that a fault brings in at once, about: where as many lie between two runs, they are read
one by one.
"""

DIRECT = hasattr(os, "preadv")


@contextlib.contextmanager
def opened(path: str, writes: bool = False) -> Iterator[int]:
    """The file's descriptor."""
    flags = (os.O_RDWR if writes else os.O_RDONLY) | getattr(os, "O_BINARY", 0)
    file = os.open(path, flags)
    try:
        yield file
    finally:
        os.close(file)


def transfer(file: int, array: Array, offset: int, strides: tuple[int, ...], writes: bool) -> None:
    """Move the elements between an array and those at `offset` of a file, `strides` bytes apart."""
    if not array.nbytes:
        return
    axes = [axis for axis in range(array.ndim) if array.shape[axis] > 1]
    axes.sort(key=lambda axis: -abs(strides[axis]))
    array = array.transpose(axes + [axis for axis in range(array.ndim) if axis not in axes])
    array = array.reshape(array.shape[: len(axes)])  # axes of length 1 are gone: always a view
    _move(file, array, offset, tuple(strides[axis] for axis in axes), writes)


def _move(file: int, array: Array, offset: int, strides: tuple[int, ...], writes: bool) -> None:
    """The same with the axes in the file's order."""
    if _is_packed(array.shape, strides, array.itemsize):
        if DIRECT and array.flags.c_contiguous:
            _run(file, array, offset, writes)
            return
        if DIRECT and array.nbytes <= SCRATCH:
            scratch = np.empty(array.shape, array.dtype)
            if writes:
                scratch[...] = array
            _run(file, scratch, offset, writes)
            if not writes:
                array[...] = scratch
            return
        step = SCRATCH
    else:
        inner = math.prod(array.shape[1:]) * array.itemsize
        packed = _is_packed(array.shape[1:], strides[1:], array.itemsize)
        if DIRECT and packed and (inner >= RUN or abs(strides[0]) - inner >= GAP):
            for at in range(len(array)):
                _move(file, array[at, ...], offset + at * strides[0], strides[1:], writes)
            return
        step = WINDOW
    if _extent(array.shape, strides, array.itemsize) <= step:
        _map(file, array, offset, strides, writes)
        return
    count = max(1, min(step // abs(strides[0]), len(array) // 2))
    for at in range(0, len(array), count):
        part, place = array[at : at + count], offset + at * strides[0]
        if count == 1:
            _move(file, part[0, ...], place, strides[1:], writes)
        else:
            _move(file, part, place, strides, writes)


def _is_packed(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if stride != expected:
            return False
        expected *= length
    return True


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    return itemsize + sum((n - 1) * abs(step) for n, step in zip(shape, strides, strict=True))


def _run(file: int, array: Array, offset: int, writes: bool) -> None:
    """Read or write bytes that lie together."""
    plain: Any = array.reshape(-1).view(np.uint8)
    view = memoryview(plain)
    done = 0
    while done < len(view):
        move = os.pwritev if writes else os.preadv
        moved = move(file, [view[done:]], offset + done)
        if moved == 0:
            raise _too_short(file, offset + len(view))
        done += moved


def _map(file: int, array: Array, offset: int, strides: tuple[int, ...], writes: bool) -> None:
    """Copy from or to a mapping of what lies between the first and the last element."""
    below = sum((n - 1) * step for n, step in zip(array.shape, strides, strict=True) if step < 0)
    first = offset + below
    start = first - first % mmap.ALLOCATIONGRANULARITY
    end = first + _extent(array.shape, strides, array.itemsize)
    if os.fstat(file).st_size < end:
        raise _too_short(file, end)  # the system would kill the process
    access = mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ
    with mmap.mmap(file, end - start, access=access, offset=start) as window:
        mapped = np.ndarray(array.shape, array.dtype, window, offset - start, strides)
        if writes:
            mapped[...] = array
        else:
            array[...] = mapped
        del mapped


def _too_short(file: int, expected: int) -> EOFError:
    found = os.fstat(file).st_size
    return EOFError(f"[chunks] the file has {found} bytes and should have {expected} or more")


def place(box: Box, offset: int, strides: tuple[int, ...]) -> int:
    """Where the first element of a part lies."""
    first: int = sum(span.start * step for span, step in zip(box, strides, strict=True))
    return offset + first


def packed(shape: tuple[int, ...], itemsize: int, fortran: bool = False) -> tuple[int, ...]:
    """The strides of a whole array in a file."""
    strides = []
    step = itemsize
    for length in shape if fortran else reversed(shape):
        strides.append(step)
        step *= length
    return tuple(strides if fortran else reversed(strides))
