"""What chunked arrays are read from: a part of an array in a file, or in memory, as NumPy has it.

A source is small and travels to worker processes with every task, so it names the data and opens
them where it is read. `chunks` are the sizes that it prefers; any box may be read.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import ConfigurationError, UnsupportedError, message
from lazyfuse.io import chunks as geometry
from lazyfuse.io.chunks import Box, Chunks, Sizes

Array = np.ndarray[Any, np.dtype[Any]]

empty: Callable[[tuple[int, ...], np.dtype[Any]], Array] = np.empty
"""Makes the arrays that sources read into. Tasks put the pool of the CPU in its place, since new
pages take as long as a third of reading from the cache of files."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """An array that is read in parts. Several threads and processes may read at once."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sizes: Sizes
    description: str

    literal: ClassVar[bool] = False
    """Whether the values travel with the source; then `read` in the client, and send the part."""

    @property
    def chunks(self) -> Chunks:
        """The sizes of chunks along each axis that suit the storage."""
        return geometry.unpack(self.sizes, self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, box: Box) -> Array:
        """Give a part as a new array in C order, which its owner may write to."""
        shape = checked(box, self.shape, self.description)
        if 0 in shape or not self.dtype.itemsize:
            return np.zeros(shape, self.dtype)
        return self._read(box, shape)

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class Memory(Source):
    """A NumPy array of this process."""

    array: Array

    literal: ClassVar[bool] = True

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        return np.array(self.array[box], order="C", copy=True)


def memory(array: Array, chunks: Any = None, limit: int | str = geometry.LIMIT) -> Memory:
    """An array in memory as a source. What is written to it later shows in what is read later."""
    plain = array.view(np.ndarray)
    what = f"array of shape {plain.shape} in memory"
    order = axes_of(plain)
    return Memory(**about(what, plain.shape, plain.dtype, chunks, limit, order=order), array=plain)


def axes_of(array: Array) -> list[int]:
    """The axes of an array from the one with the largest strides to the one with the smallest."""
    return sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


def about(
    description: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunks: Any,
    limit: int | str,
    storage: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
) -> dict[str, Any]:
    """The fields that every source has. `storage` and `order`: as for `chunks.sizes_of`."""
    refuse_objects(dtype, description)
    sizes = geometry.sizes_of(chunks, shape, dtype, limit, storage, order)
    return {"shape": shape, "dtype": dtype, "sizes": sizes, "description": description}


def checked(box: Box, shape: tuple[int, ...], description: str) -> tuple[int, ...]:
    """The shape of a box, which lies within an array of that shape."""
    fits = len(box) == len(shape) and all(
        0 <= span.start <= span.stop <= length and span.step in (None, 1)
        for span, length in zip(box, shape, strict=True)
    )
    if not fits:
        what = f"part of {description}"
        raise IndexError(message("chunks", what, f"slices within {shape}", box))
    return geometry.shape_of(box)


def refuse_objects(dtype: np.dtype[Any], description: str) -> None:
    """Python objects have no bytes that could be read in parts."""
    if dtype.hasobject:
        what = f"{description} holds Python objects ({dtype})"
        cure = "convert it to a dtype of fixed size, such as 'U16' for texts"
        raise UnsupportedError(message("from_chunks", what, instead=cure))


Identity = tuple[str, int]
"""A machine, and the number of a file or folder there."""


def identity(path: str) -> Identity:
    """What tells whether a name has passed to another file since."""
    return platform.node(), os.stat(path).st_ino


def stay(path: str, known: Identity, description: str) -> None:
    """Refuse to read a file that has taken the place of the one that was meant.

    A memmap would go on to show the old one. Other machines may have copies.
    """
    if known[0] == platform.node() and os.stat(path).st_ino != known[1]:
        what = f"{description} has been replaced by another one since from_chunks"
        raise ConfigurationError(message("from_chunks", what, instead="call from_chunks again"))
