"""`.npy` files and memmaps as sources and targets.

Files are read, not mapped: what a task needs is copied once, from the system's cache of files to
the task's array, and memory stays flat. A memmap is known by its file, and where in it it lies, so
views of it work whatever their strides are. One whose file is gone or is another by now, and one of
which changes stay private (`mode="c"`), is an array in memory.
"""

from __future__ import annotations

import ast
import math
import mmap
import os
import struct
import sys
from typing import Any, BinaryIO

import numpy as np

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import ConfigurationError, message
from lazyfuse.io import chunks as geometry
from lazyfuse.io import raw_files, sources
from lazyfuse.io.chunks import Box
from lazyfuse.io.sources import Array, Source

MAGIC = b"\x93NUMPY"

_LONGEST = 10_000
"""Letters of a header, as `numpy.load` has it: longer ones may end the process that parses them."""

_SAMPLES = 16
_SAMPLE = 512


@dataclass(frozen=True, eq=False, kw_only=True)
class PlainFile(Source):
    """Elements at `offset` of a file, `strides` bytes apart."""

    path: str
    offset: int
    strides: tuple[int, ...]
    identity: sources.Identity

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        sources.stay(self.path, self.identity, self.description)
        result = sources.empty(shape, self.dtype)
        first = raw_files.place(box, self.offset, self.strides)
        with raw_files.opened(self.path) as file:
            raw_files.transfer(file, result, first, self.strides, writes=False)
        return result


def npy(path: str, chunks: Any = None, limit: int | str = geometry.LIMIT) -> Source:
    """An `.npy` file."""
    with open(path, "rb") as file:
        shape, fortran, dtype, offset = _header(file, path)
    order = list(range(len(shape)))
    if fortran:
        order.reverse()
    known = sources.about(f"file {path}", shape, dtype, chunks, limit, order=order)
    needed = offset + math.prod(shape) * dtype.itemsize
    if os.path.getsize(path) < needed:
        found = os.path.getsize(path)
        raise ValueError(message("from_chunks", f"file {path}", f"{needed} bytes", found))
    return PlainFile(
        **known,
        path=os.path.abspath(path),
        offset=offset,
        strides=raw_files.packed(shape, dtype.itemsize, fortran),
        identity=sources.identity(path),
    )


def _header(file: BinaryIO, path: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, dtype and where the values begin; of all versions of the format."""
    try:
        version = np.lib.format.read_magic(file)
        size = {(1, 0): "<H", (2, 0): "<I", (3, 0): "<I"}[version]
        (length,) = struct.unpack(size, file.read(struct.calcsize(size)))
        if length > _LONGEST:
            raise ValueError(f"its header has {length} letters")
        text = file.read(length).decode("utf8" if version >= (3, 0) else "latin1")
        header = ast.literal_eval(text)
        dtype = np.lib.format.descr_to_dtype(header.pop("descr"))
        shape, fortran = header.pop("shape"), header.pop("fortran_order")
        plain = type(shape) is tuple and all(type(each) is int for each in shape)
        if header or not plain or type(fortran) is not bool or min(shape, default=0) < 0:
            raise ValueError("its header has other entries")
        if dtype.subdtype is not None:
            raise ValueError("its elements are arrays")
        if math.prod(max(each, 1) for each in (*shape, dtype.itemsize)) > sys.maxsize:
            raise ValueError("it has more elements than there are addresses")
        return shape, fortran, dtype, file.tell()
    except (
        AttributeError, ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError,
        OverflowError, IndexError, struct.error,
    ) as error:  # fmt: skip
        what = f"{path} is no .npy file that can be read ({error})"
        raise ConfigurationError(message("from_chunks", what)) from error


def mapped(
    array: Array, chunks: Any = None, limit: int | str = geometry.LIMIT, file: Any = None
) -> Source:
    """A memmap, or a view of one; any other array is read in memory.

    `file`: the memmap whose memory the array shows, where its bases do not lead there.
    """
    found = locate(array if file is None else file, array)
    if found is None:
        return sources.memory(array, chunks, limit)
    path, offset = found
    what, order = f"memmap of {path}", sources.axes_of(array)
    return PlainFile(
        **sources.about(what, array.shape, array.dtype, chunks, limit, order=order),
        path=path,
        offset=offset,
        strides=array.strides,
        identity=sources.identity(path),
    )


def locate(base: Any, array: Array) -> tuple[str, int] | None:
    """The file of a memmap, and where an array over it begins.

    `base`: the memmap, or a view of it.
    """
    while not isinstance(base, np.memmap):
        base = base.base if isinstance(base, np.ndarray) else None
        if base is None:
            return None
    owner: Any = getattr(base, "_mmap", None)
    path = base.filename
    if owner is None or path is None or base.mode == "c" or not array.size or array.dtype.hasobject:
        return None
    path = os.path.abspath(os.fspath(path))
    begin = np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
    offset = array.__array_interface__["data"][0] - begin
    start = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY
    if not 0 <= offset < len(owner) or not _is_same(path, owner, start):
        return None
    return path, start + offset


def _is_same(path: str, owner: mmap.mmap, start: int) -> bool:
    """Whether the file of that name still is the one that is mapped: by its bytes, here and there.

    A map does not tell which file it is of; a name may have passed to a new file since.
    """
    try:
        with raw_files.opened(path) as file, memoryview(owner) as view:
            if os.fstat(file).st_size < start + len(view):
                return False
            for step in range(_SAMPLES):
                at = max(0, len(view) - _SAMPLE) * step // (_SAMPLES - 1)
                there = np.empty(min(_SAMPLE, len(view)), np.uint8)
                raw_files.transfer(file, there, start + at, (1,), writes=False)
                if there.tobytes() != bytes(view[at : at + _SAMPLE]):
                    return False
    except OSError:
        return False
    return True
