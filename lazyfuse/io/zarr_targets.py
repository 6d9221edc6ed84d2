"""Zarr arrays as targets: a new folder, or an array that the user has made."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import ConfigurationError, message
from lazyfuse.io import handles, sources, targets, zarr_arrays
from lazyfuse.io.chunks import Box, Chunks
from lazyfuse.io.packages import package
from lazyfuse.io.sources import Array
from lazyfuse.io.targets import Target


@dataclass(frozen=True, eq=False, kw_only=True)
class ZarrFolderTarget(Target):
    """An array in a folder. A new one is at `place` until it is complete, then at `path`.

    `path` is empty for an array of the user, which is written in place.
    """

    path: str
    place: str

    @property
    def overwrites(self) -> str:
        """As of every target."""
        return "" if self.path else self.place

    def _prepare(self) -> None:
        if not self.path:
            return
        self._refuse_group()
        create = package("zarr").create_array
        create(self.place, shape=self.shape, dtype=self.dtype, chunks=self.grain)

    def _refuse_group(self) -> None:
        """Only an array is replaced: a group holds more than this result."""
        if os.path.exists(self.path) and os.listdir(self.path):
            try:
                package("zarr").open_array(self.path, mode="r")
            except Exception as error:  # zarr has several
                what = f"{self.path} is there and is no zarr array"
                cure = "name an array in the group, or another folder"
                raise ConfigurationError(message("save_chunks", what, instead=cure)) from error

    def _write(self, box: Box, array: Array) -> None:
        with zarr_arrays.opened(self.place, writes=True) as opened:
            opened[box] = array

    def finish(self) -> None:
        if not self.path:
            return
        handles.drop(self.place)
        handles.drop(self.path)
        former = f"{self.place}.former" if os.path.exists(self.path) else ""
        targets.rename(self.place, self.path, former)
        if former:
            shutil.rmtree(former, ignore_errors=True)

    def abandon(self) -> None:
        if not self.path:
            return
        # tasks of other threads and workers go on: they open it no more, or have it open, and then
        # a block makes the folder anew
        away = targets.partial(self.path)
        with contextlib.suppress(OSError):
            os.rename(self.place, away)
        self.settle()
        for each in (away, self.place):
            shutil.rmtree(each, ignore_errors=True)

    def settle(self) -> None:
        """As of every target."""
        if self.path:
            handles.close(self.place)


@dataclass(frozen=True, eq=False, kw_only=True)
class ZarrArrayTarget(Target):
    """An array of the user in any store that zarr knows, in place."""

    array: Any

    def _write(self, box: Box, array: Array) -> None:
        self.array[box] = array

    def __reduce_ex__(self, protocol: Any) -> Any:
        zarr_arrays.refuse_memory(self.array)
        return object.__reduce_ex__(self, protocol)


def folder(
    path: str, shape: tuple[int, ...], dtype: np.dtype[Any], written: Chunks | None = None
) -> ZarrFolderTarget:
    """A new zarr array."""
    sources.refuse_objects(dtype, f"zarr array {path}")
    named = targets.named(path)
    together = targets.stored(written, shape, dtype)
    grain = tuple(max(1, min(unit, length)) for unit, length in zip(together, shape, strict=True))
    return ZarrFolderTarget(
        **targets.about(f"zarr array {path}", shape, dtype, written, grain),
        path=named,
        place=targets.partial(named),
    )


def of_array(array: Any, written: Chunks | None = None) -> Target:
    """A `zarr.Array` of the user."""
    if array.read_only:
        raise ValueError("output array is read-only")  # NumPy's text
    place = zarr_arrays.local_path(array)
    grain = zarr_arrays.written_together(array)
    what = f"zarr array {place or array.store_path}"
    common = targets.about(what, array.shape, array.dtype, written, grain)
    if place is not None:
        return ZarrFolderTarget(**common, path="", place=place)
    return ZarrArrayTarget(**common, array=array)
