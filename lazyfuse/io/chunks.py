"""How an array is divided into chunks: geometry alone.

Users describe chunks as Dask's users do: a number of elements for every axis (`1000`), one for each
axis (`(1000, -1)`), bytes (`"128MB"`), `"auto"`, a dict of axes, or all sizes (`((3, 2), (5,))`).
`normalise` makes the last form of each of them. Where the user leaves the choice to us, trailing
axes stay whole and leading ones are divided, since that is how memory and files lie; `"auto"` makes
squares. Both give multiples of what storage keeps together, and chunks of nearly one size.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.errors import ConfigurationError, message

Chunks = tuple[tuple[int, ...], ...]
"""The sizes of the chunks along each axis."""

Sizes = tuple[int | tuple[int, ...], ...]
"""The same in short: one number for an axis whose chunks have one size, but for the last."""

Box = tuple[slice, ...]
"""A part of an array: a slice with a start, a stop and step 1 for each axis."""

LIMIT = 128_000_000
"""Bytes of a chunk, about, where the user says nothing."""

_UNITS = {
    prefix + tail: base**power
    for base, infix in ((1000, ""), (1024, "i"))
    for power, letter in enumerate(("", "k", "m", "g", "t", "p"))
    for prefix in ([letter + infix] if letter or not infix else [])
    for tail in ("", "b")
}
_BYTES = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(text: str | int | float) -> int:
    """Bytes of a text: `"128MB"`, `"1.5 GiB"`, `"4096"`; a number is itself."""
    if isinstance(text, str):
        match = _BYTES.fullmatch(text)
        unit = _UNITS.get(match[2].lower()) if match else None
        try:
            if match is not None and unit is not None:
                return int(float(match[1]) * unit)
        except ValueError:
            pass
    elif math.isfinite(text) and text >= 0:
        return int(text)
    raise ConfigurationError(message("chunks", "bytes", 'a size such as "128MB" or "1GiB"', text))


def normalise(
    chunks: Any,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    limit: int | str = LIMIT,
) -> Chunks:
    """Give the sizes of chunks along each axis, from any form that a user may write."""
    return unpack(sizes_of(chunks, shape, dtype, limit), shape)


def sizes_of(
    chunks: Any,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    limit: int | str = LIMIT,
    storage: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
) -> Sizes:
    """The same in short.

    `storage`: what storage keeps together, per axis. `order`: axes from the one with the largest
    distances in memory or on disk to the one with the smallest; C order if it is missing.
    """
    shape = tuple(shape)
    limit = parse_bytes(limit)
    itemsize = max(1, np.dtype(dtype).itemsize)
    grain = tuple(max(1, unit) for unit in storage) if storage else (1,) * len(shape)
    if isinstance(chunks, str) and chunks != "auto":
        chunks, limit = None, parse_bytes(chunks)
    if chunks is None:
        return rows(shape, itemsize, limit, grain, order)
    return _sizes(_per_axis(chunks, shape), shape, itemsize, limit, grain)


def rows(
    shape: tuple[int, ...],
    itemsize: int,
    limit: int,
    grain: tuple[int, ...],
    order: Sequence[int] | None = None,
) -> Sizes:
    """Sizes of chunks of about `limit` bytes whose fast axes are whole as far as possible."""
    sizes = [min(unit, length) for unit, length in zip(grain, shape, strict=True)]
    for axis in reversed(range(len(shape)) if order is None else order):
        others = itemsize * math.prod(max(1, size) for at, size in enumerate(sizes) if at != axis)
        most = max(1, limit // (others * grain[axis])) * grain[axis]
        sizes[axis] = _even(shape[axis], most, grain[axis])
        if sizes[axis] < shape[axis]:
            break
    return tuple(sizes)


def _even(length: int, most: int, grain: int) -> int:
    """A size of at most `most`, a multiple of `grain`, that leaves no small rest."""
    if length <= most:
        return length
    count = -(-length // most)
    units = -(-length // grain)
    return -(-units // count) * grain


def _per_axis(chunks: Any, shape: tuple[int, ...]) -> list[Any]:
    """One description for each axis."""
    ndim = len(shape)
    if isinstance(chunks, dict):
        found: list[Any] = [None] * ndim
        for axis, size in chunks.items():
            if not isinstance(axis, int) or not -ndim <= axis < ndim:
                raise _wrong(chunks, shape, f"axes from 0 to {ndim - 1}")
            found[axis] = size
        return found
    if isinstance(chunks, str) or not isinstance(chunks, (Sequence, np.ndarray)):
        return [chunks] * ndim
    found = list(chunks)
    if ndim == 1 and len(found) > 1 and all(_is_integer(size) for size in found):
        return [tuple(found)]
    if len(found) != ndim:
        raise _wrong(chunks, shape, f"one size for each of {ndim} axes")
    return found


def _is_integer(size: object) -> bool:
    return isinstance(size, (int, np.integer)) and not isinstance(size, bool)


def _sizes(
    wanted: list[Any], shape: tuple[int, ...], itemsize: int, limit: int, grain: tuple[int, ...]
) -> Sizes:
    sizes: list[int | tuple[int, ...]] = []
    free = []
    for axis, (size, length) in enumerate(zip(wanted, shape, strict=True)):
        if isinstance(size, str):
            limit = limit if size == "auto" else min(limit, parse_bytes(size))
            free.append(axis)
            sizes.append(1)
        elif size is None or (_is_integer(size) and size == -1):
            sizes.append(length)
        elif _is_integer(size) and size > 0:
            sizes.append(min(operator.index(size), length))
        elif isinstance(size, (Sequence, np.ndarray)):
            sizes.append(_regular(_listed(size, length, wanted, shape)))
        else:
            raise _wrong(wanted, shape, "sizes above 0, or -1 for a whole axis")
    widest = [size if isinstance(size, int) else max(size, default=1) for size in sizes]
    budget = limit / (itemsize * math.prod(max(1, size) for size in widest))
    while free:
        side = max(1.0, budget ** (1 / len(free)))
        # those that storage makes longer leave less for the others, whole ones leave more
        fixed = [axis for axis in free if min(grain[axis], shape[axis]) > side]
        fixed = fixed or [axis for axis in free if shape[axis] <= side] or free
        for axis in fixed:
            most = max(1, int(side) // grain[axis]) * grain[axis]
            sizes[axis] = size = _even(shape[axis], most, grain[axis])
            budget /= max(1, size)
        free = [axis for axis in free if axis not in fixed]
    return tuple(sizes)


def _listed(size: Any, length: int, wanted: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that a user has listed for an axis."""
    if not all(_is_integer(each) and each >= 0 for each in size):
        raise _wrong(wanted, shape, "whole numbers as sizes")
    found = tuple(map(operator.index, size))
    if sum(found) != length or not found:
        raise _wrong(wanted, shape, f"sizes that add up to {length}")
    return found


def _wrong(chunks: Any, shape: tuple[int, ...], expected: str) -> ConfigurationError:
    what = f"chunks of an array of shape {shape}"
    cure = 'write a size for each axis, -1 for a whole one, or "128MB" for all'
    return ConfigurationError(message("chunks", what, expected, chunks, cure))


def pack(chunks: Chunks) -> Sizes:
    """Sizes in short, so that 100,000 chunks are one number."""
    return tuple(_regular(sizes) for sizes in chunks)


def _regular(sizes: tuple[int, ...]) -> int | tuple[int, ...]:
    first = sizes[0]
    one_size = all(size == first for size in sizes[:-1]) and sizes[-1] <= first
    return first if one_size and (sizes[-1] > 0 or len(sizes) == 1) else sizes


def unpack(sizes: Sizes, shape: Sequence[int]) -> Chunks:
    """Write out what `pack` has made short."""
    return tuple(map(_written_out, sizes, shape))


def _written_out(size: int | tuple[int, ...], length: int) -> tuple[int, ...]:
    if isinstance(size, tuple):
        return size
    if length == 0:
        return (0,)
    rest = length % size
    return (size,) * (length // size) + ((rest,) if rest else ())


def spans(sizes: Sequence[int]) -> list[slice]:
    """The chunks of one axis."""
    ends = list(itertools.accumulate(sizes))
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def shape_of(box: Box) -> tuple[int, ...]:
    """The shape of a part."""
    return tuple(max(0, span.stop - span.start) for span in box)


def is_aligned(chunks: Chunks, storage: Sequence[int]) -> bool:
    """Whether no two chunks have a part in what storage keeps together."""
    for sizes, unit in zip(chunks, storage, strict=True):
        if any(end % unit for end in itertools.accumulate(sizes[:-1])):
            return False
    return True
