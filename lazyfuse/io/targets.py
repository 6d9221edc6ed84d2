"""What chunked arrays are written to: a part at a time, by several tasks.

`prepare` is called once, before anything is written; `write` for each chunk, any number of times,
from any thread, and from any process unless the target is `serial`; `finish` once, when all are
written, or `abandon` where that failed. Writing a block again is right: a task may run twice.

A new file or folder is written under another name beside its place (`.NAME.ID.partial`) and gets
its own name in `finish`, once its data are on the disk. Where the name is a link, what it leads to
is replaced. A run that fails leaves what was there before, or nothing; one that is killed leaves
the partial file, too, which may be deleted. What the user has opened (`out=` a
memmap, a dataset, a zarr array) is written in place, as NumPy does.
"""

from __future__ import annotations

import errno
import math
import os
import sys
import uuid
from typing import Any, ClassVar

import numpy as np

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import UnsupportedError, message
from lazyfuse.io import chunks as geometry
from lazyfuse.io import sources
from lazyfuse.io.chunks import Box, Chunks, Sizes
from lazyfuse.io.sources import Array

MANY = 1000
"""Files of one array from which the whole system's data are written to disk, in one call."""

STORED = 1 << 24
"""Bytes that a new array keeps together in storage, about."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Target:
    """An array that is written in parts.

    `grain`: what storage keeps together, per axis; two tasks must not write to one such piece.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sizes: Sizes
    grain: tuple[int, ...]
    description: str

    serial: ClassVar[bool] = False
    """Whether one process at a time may write: the one that made it gets the blocks of others."""

    @property
    def chunks(self) -> Chunks:
        """Chunks that may be written side by side."""
        return geometry.unpack(self.sizes, self.shape)

    @property
    def overwrites(self) -> str:
        """The file whose data it writes over while it goes on; empty for a new one."""
        return ""

    def prepare(self) -> None:
        """Make the place that is written to; what cannot be written to fails here.

        A place that could not be made is gone again.
        """
        try:
            self._prepare()
        except BaseException:
            self.abandon()
            raise

    def _prepare(self) -> None:
        pass

    def write(self, box: Box, array: Array) -> None:
        """Write a part; the array is cast as NumPy casts to `out=`."""
        shape = sources.checked(box, self.shape, self.description)
        if array.shape != shape:
            what = f"a block for {self.description}"
            raise ValueError(message("chunks", what, f"shape {shape}", array.shape))
        if array.dtype != self.dtype:
            array = array.astype(self.dtype, casting="same_kind", copy=False)
        if array.nbytes:
            self._write(box, array)

    def _write(self, box: Box, array: Array) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Make the result complete and give it its name."""

    def abandon(self) -> None:
        """Remove what was written, where it is not the user's own; tasks that write later fail."""

    def settle(self) -> None:
        """Wait until no task of this process writes any more, after `abandon`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryTarget(Target):
    """A NumPy array of this process."""

    array: Array

    serial: ClassVar[bool] = True

    def _write(self, box: Box, array: Array) -> None:
        self.array[box] = array

    def __reduce_ex__(self, protocol: Any) -> Any:
        what = "an array in memory cannot be written to by other processes"
        raise UnsupportedError(message("chunks", what, instead="give a memmap, or use threads"))


def memory(array: Array, written: Chunks | None = None) -> MemoryTarget:
    """An array in memory, which may be written to, as a target."""
    plain = array.view(np.ndarray)
    what = f"array of shape {plain.shape} in memory"
    return MemoryTarget(**about(what, plain.shape, plain.dtype, written), array=plain)


def about(
    description: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    written: Chunks | None,
    grain: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """The fields that every target has."""
    return {
        "shape": shape,
        "dtype": dtype,
        "sizes": cut(written, shape, dtype, grain),
        "grain": tuple(grain) if grain else (1,) * len(shape),
        "description": description,
    }


def cut(
    written: Chunks | None, shape: tuple[int, ...], dtype: np.dtype[Any], grain: Any = None
) -> Sizes:
    """The chunks that a target asks for: those that the caller has, if storage allows them.

    Others are of the same size, about.
    """
    if written is None:
        return geometry.sizes_of(None, shape, dtype, storage=grain)
    if geometry.is_aligned(written, grain or (1,) * len(shape)):
        return geometry.pack(written)
    limit = dtype.itemsize * math.prod(max(sizes, default=1) for sizes in written)
    return geometry.sizes_of(None, shape, dtype, limit, storage=grain)


def named(path: str) -> str:
    """The path that a new file gets: where the name is a link, what it leads to, as in NumPy."""
    found = os.path.realpath(path)
    if os.path.islink(found):  # links that lead to each other
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return found


def partial(path: str) -> str:
    """A name beside that of a new file, for as long as it is not complete."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{uuid.uuid4().hex[:12]}.partial")


def rename(place: str, path: str, former: str = "") -> None:
    """Give a complete file or folder its name, once its data are on the disk.

    `former`: the name that a folder of that name gets.
    """
    sync(place)
    if former:
        os.rename(path, former)
    try:
        os.replace(place, path)
    except OSError:
        if former:
            os.rename(former, path)
        raise
    _sync(os.path.dirname(path))


def sync(path: str) -> None:
    """Wait until a file, or all that is in a folder, is on the disk."""
    if not os.path.isdir(path):
        _sync(path)
        return
    found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    if len(found) > MANY and sys.platform == "linux":  # elsewhere it does not wait
        os.sync()
        return
    for each in (*found, *[folder for folder, _, _ in os.walk(path)]):
        _sync(each)


def _sync(path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.path.isdir(path) and os.name == "nt":  # folders are not opened there
        return
    file = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without it
            raise
    finally:
        os.close(file)


def stored(chunks: Chunks | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """What storage is to keep together of a new array that is written in these chunks.

    Chunks of several sizes have no good divisor; then they have to become regular ones.
    """
    if chunks is None:
        chunks = geometry.normalise(None, shape, dtype)
    itemsize = max(1, dtype.itemsize)
    units = []
    for sizes in chunks:
        common = max(1, math.gcd(*(sizes[:-1] or sizes)))
        units.append(common if 8 * common >= max(sizes) else max(sizes))
    for axis, (unit, sizes) in enumerate(zip(list(units), chunks, strict=True)):
        others = itemsize * math.prod(units) // unit
        wanted = max(1, STORED // others)
        if wanted >= unit:
            break
        units[axis] = wanted if len(sizes) == 1 else _divisor(unit, wanted)
    return tuple(units)


def _divisor(number: int, wanted: int) -> int:
    """The divisor that comes next to what is wanted, as a ratio."""
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    both = [*small, *(number // each for each in small)]
    return min(both, key=lambda each: abs(math.log(each / wanted)))
