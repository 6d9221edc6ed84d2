"""Parts of arrays, compared with NumPy's; also called in other processes."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

from lazyfuse.io import chunks as geometry
from lazyfuse.io.chunks import Box


def boxes(shape: tuple[int, ...], count: int, seed: int = 0) -> list[Box]:
    """Boxes anywhere in an array, empty ones included."""
    rng = np.random.default_rng(seed)
    return [
        tuple(slice(*sorted(rng.integers(0, length + 1, 2).tolist())) for length in shape)
        for _ in range(count)
    ]


def chunk_boxes(chunks: geometry.Chunks) -> Iterator[Box]:
    """The part of the array that each chunk is, in C order."""
    return itertools.product(*map(geometry.spans, chunks))


def bits(array: Any) -> object:
    """What an array holds, to the bit; without the padding of long doubles."""
    packed = np.array(array, order="C", copy=True)
    values = packed.tolist() if packed.dtype.char in "gG" else packed.tobytes()
    return packed.shape, packed.dtype.str, repr(values)


def compare(source: Any, expected: np.ndarray[Any, Any], count: int = 20) -> None:
    """Every chunk and other boxes, of the source and of what other processes get of it."""
    assert source.shape == expected.shape
    assert source.dtype == expected.dtype
    assert tuple(map(sum, source.chunks)) == expected.shape
    for each in (source, pickle.loads(pickle.dumps(source))):
        for box in itertools.chain(chunk_boxes(each.chunks), boxes(each.shape, count)):
            found = each.read(box)
            assert type(found) is np.ndarray
            assert found.flags.c_contiguous
            assert found.flags.writeable
            assert bits(found) == bits(expected[(*box, ...)]), box


def read(source: Any, box: Box) -> bytes:
    """In another process."""
    found: bytes = source.read(box).tobytes()
    return found


def write(target: Any, box: Box, array: Any) -> None:
    """In another process."""
    target.write(box, array)


def fill(target: Any, values: Any, chunks: geometry.Chunks | None = None) -> None:
    """Write all of an array, the first chunk twice."""
    wanted = list(chunk_boxes(chunks or target.chunks))
    target.prepare()
    for box in [*wanted, wanted[0]]:
        target.write(box, values[(*box, ...)])
    target.finish()
