"""HDF5 datasets as sources: `h5py.Dataset`, or `"file.h5::/group/dataset"`.

A dataset is known by its file and its name; each process opens the file once, for reading, and its
threads share it under h5py's lock. A dataset object that the user has opened is used as long as it
is open in this process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from lazyfuse.devices.dataclass import dataclass, replace
from lazyfuse.errors import ConfigurationError, UnsupportedError, message
from lazyfuse.io import chunks as geometry
from lazyfuse.io import handles, sources
from lazyfuse.io.chunks import Box
from lazyfuse.io.packages import package
from lazyfuse.io.sources import Array, Source

MAGIC = b"\x89HDF\r\n\x1a\n"
ENDINGS = (".h5", ".hdf5", ".hdf", ".nc", ".nc4")
SEPARATOR = "::"


@dataclass(frozen=True, eq=False, kw_only=True)
class Hdf5(Source):
    """A dataset by its file and name. `live`: the user's own, in the process that made this."""

    path: str
    name: str
    live: Any
    identity: sources.Identity | None

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        if self.live is not None and self.live:  # a dataset is false when its file is closed
            return self._of(self.live, box, shape)
        if self.identity is not None:
            sources.stay(self.path, self.identity, self.description)
        with opened(self.path) as file:
            return self._of(file[self.name], box, shape)

    def _of(self, dataset: Any, box: Box, shape: tuple[int, ...]) -> Array:
        if dataset.shape != self.shape or dataset.dtype != self.dtype:
            changed = f"{self.description} has changed"
            found = (dataset.shape, str(dataset.dtype))
            expected = f"shape {self.shape} of {self.dtype}"
            raise ConfigurationError(message("from_chunks", changed, expected, found))
        result = sources.empty(shape, self.dtype)
        dataset.read_direct(result, box)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.live is None:
            return object.__reduce_ex__(self, protocol)
        if not self.path or not os.path.exists(self.path):  # it is in memory, or a Python object
            what = "an HDF5 file in memory cannot be used by other processes"
            raise UnsupportedError(message("from_chunks", what, instead="save it, or use threads"))
        return replace(self, live=None).__reduce_ex__(protocol)


@contextlib.contextmanager
def opened(path: str, writes: bool = False) -> Iterator[Any]:
    """The file, kept open in this process.

    One that is open for writing serves readers, too: HDF5 opens a file in one way at a time.
    """
    writing = ("hdf5", path, "r+")
    found = os.stat(path)
    if writes:
        opening = lambda: _open(path, "r+")
        lent = handles.borrow(writing, found.st_ino, opening, _close)
    else:
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        opening = lambda: _open(path, "r")
        lent = handles.borrow(("hdf5", path, "r"), stamp, opening, _close, rather=writing)
    with lent as file:
        yield file


def _open(path: str, mode: str) -> Any:
    if mode != "r":
        handles.close(path)
    try:
        return package("h5py").File(path, mode)
    except OSError as error:
        what = f"{path} cannot be opened ({error})"
        cure = "close it where it is open in another way, or use another file"
        raise UnsupportedError(message("from_chunks", what, instead=cure)) from error


def _close(file: Any) -> None:
    file.close()


def by_name(path: str, name: str, chunks: Any = None, limit: int | str = geometry.LIMIT) -> Source:
    """A dataset by its file and name; without a name, the only one of the file."""
    with opened(path) as file:
        if not name:
            name = _only(file, path)
        if name not in file or not hasattr(file[name], "shape"):
            what = f"{path} has no dataset {name}"
            raise ConfigurationError(message("from_chunks", what, "one of these", _names(file)))
        return of_dataset(file[name], chunks, limit, live=False)


def _only(file: Any, path: str) -> str:
    names = _names(file)
    if len(names) != 1:
        what = f"{path} has several datasets"
        cure = f"name one: {path}{SEPARATOR}{names[0] if names else '/NAME'}"
        raise ConfigurationError(message("from_chunks", what, "one", names, cure))
    return names[0]


def _names(file: Any) -> list[str]:
    found: list[str] = []

    def visit(name: str, item: Any) -> None:
        if hasattr(item, "shape"):
            found.append(f"/{name}")

    file.visititems(visit)
    return found


def of_dataset(
    dataset: Any, chunks: Any = None, limit: int | str = geometry.LIMIT, live: bool = True
) -> Source:
    """An `h5py.Dataset`."""
    path, name = place_of(dataset)
    description = f"HDF5 dataset {path}{SEPARATOR}{name}"
    shape, dtype = dataset.shape, dataset.dtype
    if shape is None:
        raise UnsupportedError(message("from_chunks", f"{description} is empty: it has no shape"))
    return Hdf5(
        **sources.about(description, shape, dtype, chunks, limit, storage=dataset.chunks),
        path=path,
        name=name,
        live=dataset if live else None,
        identity=sources.identity(path) if path else None,
    )


def place_of(dataset: Any) -> tuple[str, str]:
    """File and name of a dataset; no file where there is none with a name."""
    filename = dataset.file.filename
    found = os.path.realpath(filename) if os.path.exists(filename) else ""
    return found, dataset.name
