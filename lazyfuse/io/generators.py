"""Sources that are computed where they are read: ranges and random numbers.

Every part has the bits that NumPy's function gives there. Random numbers are the exception: each
chunk has a stream of its own, the child that `numpy.random.Generator.spawn` gives.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import UnsupportedError, message
from lazyfuse.io import chunks as geometry
from lazyfuse.io import sources
from lazyfuse.io.chunks import Box, Sizes
from lazyfuse.io.sources import Array, Source


@dataclass(frozen=True, eq=False, kw_only=True)
class Arange(Source):
    """`numpy.arange`: element `i` is `first + i * (second - first)`, computed in the dtype."""

    pair: Array

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        (span,) = box
        native = self.dtype.newbyteorder("=")
        pair = self.pair.astype(native)
        result = _steps(pair, span.start, span.stop)
        for at in range(span.start, min(2, span.stop)):
            result[at - span.start] = pair[at]  # these two are given, not computed
        return result.astype(self.dtype, copy=False)


def _steps(pair: Array, start: int, stop: int) -> Array:
    """`pair[0] + i * (pair[1] - pair[0])` for each `i`, as NumPy's loops of each dtype have it."""
    dtype = pair.dtype
    count = np.arange(start, stop)
    with np.errstate(all="ignore"):
        if dtype.kind == "c":
            result = np.empty(len(count), dtype)
            result.real = _filled(pair.real.copy(), count)
            result.imag = _filled(pair.imag.copy(), count)
            return result
        if dtype == np.float16:
            return _filled(pair.astype(np.float32), count).astype(np.float16)
        return _filled(pair, count)


def _filled(pair: Array, count: Array) -> Array:
    result = count.astype(pair.dtype)
    result *= pair[1] - pair[0]
    result += pair[0]
    return result


def arange(
    start: Any,
    stop: Any,
    step: Any = 1,
    dtype: Any = None,
    chunks: Any = None,
    limit: int | str = geometry.LIMIT,
) -> Source:
    """A source as `numpy.arange(start, stop, step, dtype)`.

    Dates, and what NumPy refuses, are NumPy's own: such an array is made at once.
    """
    plan = _plan(start, stop, step, dtype)
    if plan is None:
        named = {} if dtype is None else {"dtype": dtype}
        return sources.memory(np.arange(start, stop, step, **named), chunks, limit)
    length, wanted = plan
    pair = np.zeros(2, wanted)
    pair[0] = start
    pair[1] = start + step
    what = f"arange of shape ({length},)"
    return Arange(**sources.about(what, (length,), wanted, chunks, limit), pair=pair)


def _plan(start: Any, stop: Any, step: Any, dtype: Any) -> tuple[int, np.dtype[Any]] | None:
    """Length and dtype of a range of plain numbers, by NumPy's rules."""
    numbers = (start, stop, step)
    if not all(isinstance(each, (int, float, np.integer, np.floating)) for each in numbers):
        return None
    if any(isinstance(each, int) and abs(each) >= 1 << 63 for each in numbers):
        return None
    if not step or not all(map(np.isfinite, numbers)):
        return None
    ratio = float((stop - start) / step)
    if not abs(ratio) < 1 << 62 or (ratio == 0 and stop != start):
        return None
    wanted = np.arange(0 * start, 0 * stop, step).dtype if dtype is None else np.dtype(dtype)
    if wanted.kind not in "iufc":
        return None
    return max(0, math.ceil(ratio)), wanted


@dataclass(frozen=True, eq=False, kw_only=True)
class Linspace(Source):
    """`numpy.linspace` between two numbers."""

    start: Any
    stop: Any
    endpoint: bool
    inner: np.dtype[Any]

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        (span,) = box
        (num,) = self.shape
        count = num - 1 if self.endpoint else num
        start, stop = np.asarray(self.start), np.asarray(self.stop)
        delta = np.subtract(stop, start, dtype=type(self.inner))
        values = np.arange(span.start, span.stop).astype(self.inner)
        step = delta / count if count else delta
        if count and step == 0:
            values /= count  # denormal numbers
            values *= delta
        else:
            values *= step
        values += start
        if self.endpoint and num > 1 and span.stop == num:
            values[-1] = stop
        if np.issubdtype(self.dtype, np.integer):
            np.floor(values, out=values)
        return values.astype(self.dtype, copy=False)


def linspace(
    start: Any,
    stop: Any,
    num: int,
    endpoint: bool = True,
    dtype: Any = None,
    chunks: Any = None,
    limit: int | str = geometry.LIMIT,
) -> Linspace:
    """`numpy.linspace(start, stop, num, endpoint, dtype=dtype)` between two numbers."""
    if np.ndim(start) or np.ndim(stop):
        what = "linspace between arrays"
        cure = "write start + step * np.arange(num)[:, None]"
        raise UnsupportedError(message("linspace", what, instead=cure))
    start, stop = (each[()] if isinstance(each, np.ndarray) else each for each in (start, stop))
    inner = np.linspace(start, stop, 0).dtype
    wanted = np.linspace(start, stop, 0, dtype=dtype).dtype
    return Linspace(
        **sources.about(f"linspace of shape ({num},)", (num,), wanted, chunks, limit),
        start=start,
        stop=stop,
        endpoint=endpoint,
        inner=inner,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Random(Source):
    """Random numbers: chunk `k` of `grid` (in C order) is the method of child `k`.

    A box of another shape is cut from whole chunks, so that its numbers do not depend on it.
    """

    grid: Sizes
    bits: str
    entropy: Any
    spawn_key: tuple[int, ...]
    pool_size: int
    first: int
    method: str
    args: tuple[Any, ...]
    keywords: dict[str, Any]

    def _read(self, box: Box, shape: tuple[int, ...]) -> Array:
        axes = [geometry.spans(sizes) for sizes in geometry.unpack(self.grid, self.shape)]
        counts = [len(spans) for spans in axes]
        met = [
            [at for at, span in enumerate(spans) if span.start < cut.stop and cut.start < span.stop]
            for spans, cut in zip(axes, box, strict=True)
        ]
        result = np.empty(shape, self.dtype)
        for place in itertools.product(*met):
            chunk = tuple(spans[at] for spans, at in zip(axes, place, strict=True))
            number = 0
            for at, count in zip(place, counts, strict=True):
                number = number * count + at
            values = self._chunk(number, geometry.shape_of(chunk))
            if values.shape == shape and len(met) == sum(map(len, met)):
                return values  # the box is this chunk
            result[_shared(box, chunk)] = values[_shared(chunk, box)]
        return result

    def _chunk(self, number: int, shape: tuple[int, ...]) -> Array:
        child = np.random.SeedSequence(
            self.entropy,
            spawn_key=(*self.spawn_key, self.first + number),
            pool_size=self.pool_size,
        )
        generator = np.random.Generator(getattr(np.random, self.bits)(child))
        values = getattr(generator, self.method)(*self.args, size=shape, **self.keywords)
        return np.asarray(values, self.dtype)


def _shared(box: Box, other: Box) -> Box:
    """What two boxes have in common, as a part of the first one."""
    return tuple(
        slice(max(a.start, b.start) - a.start, min(a.stop, b.stop) - a.start)
        for a, b in zip(box, other, strict=True)
    )


_BITS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_NOT_BY_CHUNKS = ("bytes", "permutation", "permuted", "shuffle", "spawn")


def random(
    generator: np.random.Generator,
    method: str,
    shape: tuple[int, ...],
    *args: Any,
    chunks: Any = None,
    limit: int | str = geometry.LIMIT,
    **keywords: Any,
) -> Random:
    """Random numbers of a method of a generator, with a child of it for each chunk.

    Chunk `k` is `children[k].method(*args, size=...)` with `children = generator.spawn(n)`, which
    is done here: the next array of this generator has other children.
    """
    bits = generator.bit_generator
    seeds = bits.seed_seq
    kind = type(bits).__name__
    if kind not in _BITS or type(seeds) is not np.random.SeedSequence:
        raise _no_streams(f"a generator of {kind} without a seed sequence")
    if method in _NOT_BY_CHUNKS or not _is_elementwise(method, args, keywords):
        raise _no_streams(f"random.{method} with these arguments")
    # an own stream: the user's generator must not move
    probe = np.random.Generator(getattr(np.random, kind)(np.random.SeedSequence(0)))
    one = np.asarray(getattr(probe, method)(*args, size=(0,), **keywords))
    if one.shape != (0,):
        raise _no_streams(f"random.{method}, which gives more than a number each time")
    known = sources.about(f"random.{method} of shape {shape}", shape, one.dtype, chunks, limit)
    sizes = known["sizes"]
    count = math.prod(map(len, geometry.unpack(sizes, shape)))
    first = seeds.n_children_spawned
    seeds.spawn(count)
    return Random(
        **known,
        grid=sizes,
        bits=kind,
        entropy=seeds.entropy,
        spawn_key=tuple(seeds.spawn_key),
        pool_size=seeds.pool_size,
        first=first,
        method=method,
        args=args,
        keywords=keywords,
    )


def _is_elementwise(method: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether each number is drawn by itself, from the same distribution."""
    if {"size", "out", "axis"} & keywords.keys():
        return False
    if method == "choice":  # of a list, with replacement; it goes with every task
        plain = not args[1:] and not keywords.keys() - {"p"}
        return plain and all(np.size(each) < 1000 for each in (*args, *keywords.values()))
    return not any(np.ndim(each) for each in (*args, *keywords.values()))


def _no_streams(what: str) -> UnsupportedError:
    cure = "draw it at once with NumPy, and divide it with to_device"
    return UnsupportedError(message("random", f"{what} has no streams for chunks", instead=cure))
