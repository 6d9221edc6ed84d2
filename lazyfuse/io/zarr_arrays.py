"""Zarr arrays as sources, of both formats, with shards or without.

An array in a folder of this machine is known by its path and opened once in each process. One in
another store (object storage, a zip file) travels as zarr's own pickle of it.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import ConfigurationError, UnsupportedError, message
from lazyfuse.io import chunks as geometry
from lazyfuse.io import handles, sources
from lazyfuse.io.chunks import Box
from lazyfuse.io.packages import package
from lazyfuse.io.sources import Array, Source

METADATA = ("zarr.json", ".zarray", ".zgroup")


@dataclass(frozen=True, eq=False, kw_only=True)
class ZarrFolder(Source):
    """An array in a folder of this machine."""

    path: str
    identity: sources.Identity

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        sources.stay(self.path, self.identity, self.description)
        with opened(self.path) as array:
            return _part(array, box, shape, self)


@dataclass(frozen=True, eq=False, kw_only=True)
class ZarrArray(Source):
    """An array in any store that zarr knows."""

    array: Any

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        return _part(self.array, box, shape, self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        refuse_memory(self.array)
        return object.__reduce_ex__(self, protocol)


def refuse_memory(array: Any) -> None:
    """A store in the memory of one process would be copied, and what is written there be lost."""
    if "Memory" in type(array.store).__name__:
        what = "a zarr array in memory cannot be used by other processes"
        cure = "keep it in a folder, or use threads"
        raise UnsupportedError(message("from_chunks", what, instead=cure))


def _part(array: Any, box: Box, shape: tuple[int, ...], source: Source) -> Array:
    # format 3 knows byte orders on disk alone: an array opened again has the machine's
    ours, theirs = source.dtype.newbyteorder("="), array.dtype.newbyteorder("=")
    if array.shape != source.shape or ours != theirs:
        changed = f"{source.description} has changed"
        there = (array.shape, str(array.dtype))
        expected = f"shape {source.shape} of {source.dtype}"
        raise ConfigurationError(message("from_chunks", changed, expected, there))
    found = np.asarray(array[box], source.dtype, order="C")
    return (found if found.flags.writeable else found.copy()).reshape(shape)


@contextlib.contextmanager
def opened(path: str, writes: bool = False) -> Iterator[Any]:
    """The array in a folder, kept open in this process."""
    mode = "r+" if writes else "r"
    stamp = tuple((each.st_ino, each.st_mtime_ns) for each in map(os.stat, _metadata(path)))
    opening = lambda: package("zarr").open_array(path, mode=mode)
    with handles.borrow(("zarr", path, mode), stamp, opening, lambda array: None) as array:
        yield array


def _metadata(path: str) -> list[str]:
    found = [os.path.join(path, name) for name in METADATA]
    return [each for each in found if os.path.exists(each)]


def is_folder(path: str) -> bool:
    """Whether a folder is a zarr array or group."""
    return os.path.isdir(path) and bool(_metadata(path))


def stored(place: Any, chunks: Any = None, limit: int | str = geometry.LIMIT) -> Source:
    """The array in a folder, at an address or in a store; of a group with one array, that one."""
    found = package("zarr").open(place, mode="r")
    if not hasattr(found, "shape"):
        names = sorted(name for name, _ in found.arrays())
        if len(names) != 1:
            what = f"{place} is a group of zarr arrays"
            cure = f"name one: {place}/{names[0] if names else 'NAME'}"
            raise ConfigurationError(message("from_chunks", what, "one array", names, cure))
        found = found[names[0]]
    return of_array(found, chunks, limit)


def of_array(array: Any, chunks: Any = None, limit: int | str = geometry.LIMIT) -> Source:
    """A `zarr.Array`."""
    place = local_path(array)
    description = f"zarr array {place or array.store_path}"
    grain = _grain(array, geometry.parse_bytes(limit))
    common = sources.about(description, array.shape, array.dtype, chunks, limit, storage=grain)
    if place is not None:
        return ZarrFolder(**common, path=place, identity=sources.identity(place))
    return ZarrArray(**common, array=array)


def local_path(array: Any) -> str | None:
    """The folder of an array on this machine."""
    root = getattr(array.store, "root", None)
    if type(array.store).__name__ != "LocalStore" or root is None:
        return None
    return os.path.abspath(os.path.join(str(root), str(array.path)))


def _grain(array: Any, limit: int) -> tuple[int, ...]:
    """What is best read together: a shard if it is no larger than a chunk of ours may be."""
    shards = array.shards
    if shards and math.prod(shards) * array.dtype.itemsize <= limit:
        return tuple(shards)
    return tuple(array.chunks)


def written_together(array: Any) -> tuple[int, ...]:
    """What two tasks must not write at once."""
    return tuple(array.shards or array.chunks)
