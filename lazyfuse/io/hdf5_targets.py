"""HDF5 datasets as targets: one process writes at a time.

A new file is written beside its place. A new dataset in a file that is there has another name until
it is complete; a process that is killed as it writes can leave that file damaged, since HDF5 keeps
no journal: results that matter belong in a file of their own. Between two writes the file is
closed, so that the process that writes the next block can open it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import Any, ClassVar

import numpy as np

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import UnsupportedError, message
from lazyfuse.io import handles, hdf5, sources, targets
from lazyfuse.io.chunks import Box, Chunks
from lazyfuse.io.packages import package
from lazyfuse.io.sources import Array
from lazyfuse.io.targets import Target


@dataclass(frozen=True, eq=False, kw_only=True)
class Hdf5Target(Target):
    """A new dataset `name` of file `path`.

    `place`: the file that is written to, another one if `path` was not there; `under`: the name of
    the dataset until it is complete.
    """

    path: str
    name: str
    place: str
    under: str

    serial: ClassVar[bool] = True

    def _prepare(self) -> None:
        if self.place != self.path:
            package("h5py").File(self.place, "x").close()
        with _written(self.place) as file:
            file.create_dataset(self.under, self.shape, self.dtype)

    def _write(self, box: Box, array: Array) -> None:
        with _written(self.place) as file:
            file[self.under][box] = array

    def finish(self) -> None:
        if self.place != self.path:
            handles.close(self.place)
            targets.rename(self.place, self.path)
            return
        targets.sync(self.place)
        with _written(self.place) as file:
            complete = file[self.under]
            if self.name in file:
                del file[self.name]
            file.move(complete.name, self.name)

    def abandon(self) -> None:
        if self.place != self.path:
            handles.close(self.place)
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.place)
            return
        with contextlib.suppress(UnsupportedError), _written(self.place) as file:
            if self.under in file:
                del file[self.under]


@contextlib.contextmanager
def _written(path: str) -> Any:
    try:
        with hdf5.opened(path, writes=True) as file:
            yield file
    finally:
        handles.drop(path)


@dataclass(frozen=True, eq=False, kw_only=True)
class DatasetTarget(Target):
    """A dataset that the user has open, in place."""

    dataset: Any

    serial: ClassVar[bool] = True

    @property
    def overwrites(self) -> str:
        """As of every target."""
        return str(self.dataset.file.filename)

    def _write(self, box: Box, array: Array) -> None:
        self.dataset[box] = array

    def finish(self) -> None:
        self.dataset.file.flush()

    def __reduce_ex__(self, protocol: Any) -> Any:
        what = "a dataset that is open here cannot be written to by other processes"
        cure = 'give its name, "file.h5::/dataset", or use threads'
        raise UnsupportedError(message("save_chunks", what, instead=cure))


def by_name(
    path: str,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    written: Chunks | None = None,
) -> Hdf5Target:
    """A new dataset."""
    description = f"HDF5 dataset {path}{hdf5.SEPARATOR}{name}"
    sources.refuse_objects(dtype, description)
    named = targets.named(path)
    there = os.path.exists(named)
    return Hdf5Target(
        **targets.about(description, shape, dtype, written),
        path=named,
        name=name,
        place=named if there else targets.partial(named),
        under=f"{name}.{uuid.uuid4().hex[:12]}.partial" if there else name,
    )


def of_dataset(dataset: Any, written: Chunks | None = None) -> DatasetTarget:
    """An `h5py.Dataset` of the user."""
    if dataset.file.mode == "r":
        raise ValueError("output array is read-only")  # NumPy's text
    path, name = hdf5.place_of(dataset)
    what = f"HDF5 dataset {path}{hdf5.SEPARATOR}{name}"
    return DatasetTarget(
        **targets.about(what, dataset.shape, dataset.dtype, written, dataset.chunks),
        dataset=dataset,
    )
