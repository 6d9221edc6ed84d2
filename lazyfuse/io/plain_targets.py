"""`.npy` files and memmaps as targets."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.io import plain_files, raw_files, sources, targets
from lazyfuse.io.chunks import Box, Chunks
from lazyfuse.io.sources import Array
from lazyfuse.io.targets import Target


@dataclass(frozen=True, eq=False, kw_only=True)
class PlainTarget(Target):
    """Elements at `offset` of a file. `header`: of a new one, which is at `place` until complete.

    `path` is empty for a memmap: its file is written in place.
    """

    path: str
    place: str
    offset: int
    strides: tuple[int, ...]
    header: bytes

    @property
    def overwrites(self) -> str:
        """As of every target."""
        return "" if self.path else self.place

    def _prepare(self) -> None:
        if not self.path:
            return
        with open(self.place, "xb") as file:
            file.write(self.header)
            size = math.prod(self.shape) * self.dtype.itemsize
            file.truncate(self.offset + size)
            _reserve(file.fileno(), self.offset, size)

    def _write(self, box: Box, array: Array) -> None:
        first = raw_files.place(box, self.offset, self.strides)
        with raw_files.opened(self.place, writes=True) as file:
            raw_files.transfer(file, array, first, self.strides, writes=True)

    def finish(self) -> None:
        if self.path:
            targets.rename(self.place, self.path)

    def abandon(self) -> None:
        if self.path:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.place)


def _reserve(file: int, offset: int, size: int) -> None:
    """Take the room on the disk now: a full one is an error here, and a crash in a mapping."""
    if not size or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, offset, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def npy(
    path: str, shape: tuple[int, ...], dtype: np.dtype[Any], written: Chunks | None = None
) -> PlainTarget:
    """A new `.npy` file, to the byte as `numpy.save` writes it."""
    sources.refuse_objects(dtype, f"file {path}")
    header = _header(shape, dtype)
    named = targets.named(path)
    return PlainTarget(
        **targets.about(f"file {path}", shape, dtype, written),
        path=named,
        place=targets.partial(named),
        offset=len(header),
        strides=raw_files.packed(shape, dtype.itemsize),
        header=header,
    )


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    description = np.lib.format.dtype_to_descr(dtype)
    values = {"descr": description, "fortran_order": False, "shape": shape}
    made = io.BytesIO()
    try:
        np.lib.format.write_array_header_1_0(made, values)
    except ValueError:  # too long for the first version
        np.lib.format.write_array_header_2_0(made, values)
    return made.getvalue()


def mapped(array: Array, written: Chunks | None = None) -> Target:
    """A memmap or a view of one, in place; any other array in memory."""
    if not array.flags.writeable:
        raise ValueError("output array is read-only")  # NumPy's text
    found = plain_files.locate(array, array)
    if found is None:
        return targets.memory(array, written)
    path, offset = found
    return PlainTarget(
        **targets.about(f"memmap of {path}", array.shape, array.dtype, written),
        path="",
        place=path,
        offset=offset,
        strides=array.strides,
        header=b"",
    )
