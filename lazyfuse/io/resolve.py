"""What `from_chunks` and `save_chunks` take: paths, and objects that hold data or take it."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np

from lazyfuse.errors import ConfigurationError, UnsupportedError, message
from lazyfuse.io import chunks as geometry
from lazyfuse.io import (
    hdf5,
    hdf5_targets,
    plain_files,
    plain_targets,
    zarr_arrays,
    zarr_targets,
)
from lazyfuse.io.packages import is_one, package
from lazyfuse.io.sources import Source
from lazyfuse.io.targets import Target


def resolve(data: Any, chunks: Any = None, limit: int | str = geometry.LIMIT) -> Any:
    """The source of data that a user gave; `NotImplemented` for arrays of dask and xarray.

    `chunks`: in any form that Dask takes; without it they suit the storage, about `limit` bytes
    each.
    """
    if isinstance(data, (str, os.PathLike)):
        return _by_path(os.fspath(data), chunks, limit)
    if isinstance(data, np.ndarray):
        return plain_files.mapped(data, chunks, limit)
    if is_one(data, "zarr", "Array"):
        return zarr_arrays.of_array(data, chunks, limit)
    if is_one(data, "h5py", "Dataset"):
        return hdf5.of_dataset(data, chunks, limit)
    if is_one(data, "dask.array", "Array") or any(
        is_one(data, "xarray", kind) for kind in ("Variable", "DataArray")
    ):
        return NotImplemented
    kind = type(data)
    what = f"{kind.__module__}.{kind.__qualname__} is not read in chunks"
    cure = "give a path, a zarr array, an HDF5 dataset, a memmap or a NumPy or dask array"
    raise UnsupportedError(message("from_chunks", what, instead=cure))


def _by_path(path: Any, chunks: Any, limit: int | str) -> Source:
    if not isinstance(path, str):
        path = os.fsdecode(path)
    if "://" in path:
        return zarr_arrays.stored(path, chunks, limit)
    file, separator, name = path.partition(hdf5.SEPARATOR)
    if separator and os.path.isdir(file):
        file = os.path.join(file, name.strip("/"))
        name = ""
    if os.path.isdir(file):
        if zarr_arrays.is_folder(file):
            return zarr_arrays.stored(os.path.abspath(file), chunks, limit)
        raise _unknown(file, "this folder is no zarr array")
    if not os.path.exists(file):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
    with open(file, "rb") as opened:
        start = opened.read(8)
    if start.startswith(plain_files.MAGIC):
        return plain_files.npy(file, chunks, limit)
    if start == hdf5.MAGIC or file.endswith(hdf5.ENDINGS):
        return hdf5.by_name(os.path.realpath(file), name, chunks, limit)
    if start.startswith(b"PK") and file.endswith(".zip"):
        return zarr_arrays.stored(package("zarr").storage.ZipStore(file, mode="r"), chunks, limit)
    raise _unknown(file, "the format of this file is not known")


def _unknown(path: str, why: str) -> ConfigurationError:
    cure = "for plain bytes give a numpy.memmap of them"
    expected = "a zarr folder, an .npy file or an HDF5 file with ::/dataset"
    return ConfigurationError(message("from_chunks", why, expected, path, cure))


def target(
    data: Any, shape: tuple[int, ...], dtype: np.dtype[Any], written: geometry.Chunks | None = None
) -> Target:
    """Where an array of that shape and dtype is written to: a path, or what the user has opened.

    `written`: the chunks that will be written; a new array is stored in pieces of them.
    """
    if isinstance(data, (str, os.PathLike)):
        return _target_by_path(data, tuple(shape), np.dtype(dtype), written)
    found: Target
    if isinstance(data, np.ndarray):
        found = plain_targets.mapped(data, written)
    elif is_one(data, "zarr", "Array"):
        found = zarr_targets.of_array(data, written)
    elif is_one(data, "h5py", "Dataset"):
        found = hdf5_targets.of_dataset(data, written)
    else:
        kind = type(data)
        what = f"{kind.__module__}.{kind.__qualname__} is not written in chunks"
        cure = "give a path, a zarr array, an HDF5 dataset, a memmap or a NumPy array"
        raise UnsupportedError(message("save_chunks", what, instead=cure))
    if found.shape != tuple(shape):
        what = f"{found.description}, which is to be written"
        raise ValueError(message("save_chunks", what, f"shape {tuple(shape)}", found.shape))
    return found


def _target_by_path(
    data: Any, shape: tuple[int, ...], dtype: np.dtype[Any], written: Any
) -> Target:
    path = os.fsdecode(os.fspath(data))
    file, separator, name = path.partition(hdf5.SEPARATOR)
    if file.endswith(hdf5.ENDINGS) and not os.path.isdir(file):
        if not name:
            what = f"{path} names no dataset"
            cure = f"write {path}{hdf5.SEPARATOR}/NAME"
            raise ConfigurationError(message("save_chunks", what, instead=cure))
        return hdf5_targets.by_name(file, name, shape, dtype, written)
    if "://" not in path and path.endswith(".npy"):
        return plain_targets.npy(path, shape, dtype, written)
    inside = separator or any(part.endswith(".zarr") for part in path.split(os.sep))
    if "://" not in path and inside:
        whole = os.path.join(file, name.strip("/")) if separator else path
        return zarr_targets.folder(whole, shape, dtype, written)
    expected = "NAME.zarr, NAME.npy or NAME.h5::/DATASET"
    cure = "for other stores give a zarr.Array that you made"
    raise ConfigurationError(message("save_chunks", "where to write", expected, path, cure))
