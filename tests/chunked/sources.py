"""Arrays in chunks over sources of each kind, for random programs. Holds no test."""

from __future__ import annotations

import itertools
import os
import tempfile
from typing import Any

import dask.array
import numpy

import lazyfuse
from lazyfuse.io.packages import package

Chunks = tuple[tuple[int, ...], ...]
NEW = itertools.count()


class Folder:
    """A folder of files for one program."""

    def __init__(self) -> None:
        self._made: Any = None

    def path(self, ending: str) -> str:
        """A name for a new file."""
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="chunked-")
        return os.path.join(self._made.name, f"{next(NEW)}{ending}")

    def clear(self) -> None:
        """Remove all files."""
        if self._made is not None:
            self._made.cleanup()

    def opened(self, x: Any, kind: str, chunks: Chunks) -> Any:
        """The values of a real array, in chunks over a source of that kind."""
        values = KINDS[kind](self, x, chunks)
        return values if kind in ON_HOST else lazyfuse.from_chunks(values, chunks=chunks)


def _npy(folder: Folder, x: Any, order: str = "C") -> str:
    path = folder.path(".npy")
    numpy.save(path, numpy.array(x, order=order))
    return path


def _memmap(folder: Folder, x: Any) -> Any:
    """Every second row of a file that is writable, backwards."""
    wide = numpy.repeat(x, 2, axis=0)[::-1]
    return numpy.load(_npy(folder, wide), mmap_mode="r+")[::-2]


def _zarr(folder: Folder, x: Any, chunks: Chunks) -> str:
    path = folder.path(".zarr")
    sizes = tuple(max(1, max(each)) for each in chunks)
    package("zarr").create_array(path, shape=x.shape, dtype=x.dtype, chunks=sizes)[...] = x
    return path


def _hdf5(folder: Folder, x: Any) -> str:
    path = folder.path(".h5")
    with package("h5py").File(path, "w") as file:
        file["x"] = x
    return path + "::/x"


KINDS: dict[str, Any] = {
    "npy": lambda folder, x, chunks: _npy(folder, x),
    "npy in order F": lambda folder, x, chunks: _npy(folder, x, "F"),
    "npy swapped": lambda folder, x, chunks: _npy(folder, x.astype(x.dtype.newbyteorder("S"))),
    "memmap": lambda folder, x, chunks: _memmap(folder, x),
    "zarr": _zarr,
    "hdf5": lambda folder, x, chunks: _hdf5(folder, x),
    "memory": lambda folder, x, chunks: x,
    "dask": lambda folder, x, chunks: dask.array.from_array(x.copy(), chunks=chunks),
    "kept": lambda folder, x, chunks: lazyfuse.persist(lazyfuse.from_chunks(x, chunks=chunks)),
    "host": lambda folder, x, chunks: lazyfuse.array(x),
}
"""By name: what `from_chunks` is given for a real array."""
ON_HOST = ("kept", "host")
"""What is an array of ours as it is."""
