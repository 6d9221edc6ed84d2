"""The functions that Dask calls on workers, and what they note for the client.

Arguments are a recipe, numbers, and the results of other tasks. Nothing here knows a graph.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.devices.caches import register
from lazyfuse.io import sources
from lazyfuse.runtime.chunked.recipe import Extreme, Partial, Recipe, combine, run
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices

Array = np.ndarray[Any, np.dtype[Any]]
Spec = tuple[Any, ...]
"""How a block is made: ("all", dependency, part); ("pieces", shape, pieces); ("read", number of the
source, slices); ("given", dependency); or None."""

_noted: dict[str, list[float]] = {}  # kernel -> tasks, seconds, bytes
_raised: dict[tuple[str, int], int] = {}  # (token of a recipe, instance) -> bits
register(
    "runtime.chunked.tasks.noted", _noted.__len__, None, None, "one for each kernel until asked"
)
register("runtime.chunked.tasks.raised", _raised.__len__, None, None, "until asked; few operations")
_lock = threading.Lock()
_settled = False
sources.empty = devices.empty


def taken() -> tuple[dict[str, list[float]], dict[tuple[str, int], int]]:
    """What tasks of this process have noted since the last call."""
    with _lock:
        noted, raised = dict(_noted), dict(_raised)
        _noted.clear()
        _raised.clear()
    return noted, raised


def _settle() -> None:
    """In a worker of Dask: as many threads for a kernel as Dask gives to the worker."""
    global _settled
    _settled = True
    worker = sys.modules.get("distributed.worker")
    if worker is None:
        return
    try:
        here = worker.get_worker()
    except ValueError:  # no worker: threads of the client
        return
    if getattr(here, "nanny", None) is not None:
        config.options.threads = int(here.state.nthreads)


def block(spec: Spec | None, recipe: Recipe, given: Sequence[Any]) -> Array | None:
    """A block that a task reads, packed in C order."""
    if spec is None:
        return None
    kind = spec[0]
    if kind == "all":
        return _native(_part(given[spec[1]], spec[2]))
    if kind == "read":
        return _native(recipe.sources[spec[1]].read(spec[2]))
    if kind == "given":
        return _native(given[spec[1]])
    _, shape, pieces = spec
    first = _part(given[pieces[0][0]], pieces[0][1])
    made = devices.empty(shape, first.dtype)
    for at, part, there, here in pieces:
        made[here] = _part(given[at], part)[there]
    return _native(made)


def _part(found: Any, part: int | None) -> Any:
    return found if part is None else found[part]


def _native(value: Any) -> Array:
    found = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
    return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def run_block(
    recipe: Recipe, variant: int, specs: Sequence[Spec | None], low: Any, *given: Any
) -> Any:
    """One task of a stage: its result, or a tuple of them."""
    if not _settled:
        _settle()
    began = perf_counter()
    blocks = [block(spec, recipe, given) for spec in specs]
    results, raised = run(recipe, variant, blocks, low)
    with _lock:
        entry = _noted.setdefault(recipe.name, [0, 0.0, 0])
        entry[0] += 1
        entry[1] += perf_counter() - began
        entry[2] += sum([each.nbytes for each in results if isinstance(each, np.ndarray)])
    for at, bits in raised:
        _note(recipe.token, at, bits)
    written: list[Any] = list(results)
    for place, target in recipe.targets.items():
        value, begin = results[place], low[place]
        assert isinstance(value, np.ndarray)
        box = [slice(a, a + size) for a, size in zip(begin, value.shape, strict=True)]
        target.write(tuple(box), value)
        written[place] = None
    return written[0] if len(written) == 1 else tuple(written)


Reduced = tuple[Partial, np.dtype[Any]]


def _note(token: str, at: int, bits: int) -> None:
    """Note floating-point exceptions for the client."""
    if bits:
        with _lock:
            _raised[token, at] = _raised.get((token, at), 0) | bits


def combine_parts(
    token: str, places: Sequence[int | None], reduced: Sequence[Reduced], last: bool, *parts: Any
) -> Any:
    """The reductions of several tasks' parts; the `last` task has no reduced axes any more."""
    results: list[Any] = []
    for at, (place, (partial, dtype)) in enumerate(zip(places, reduced, strict=True)):
        with fp_flags.collecting() as flags:
            found = combine(partial, [_part(each, place) for each in parts])
        _note(token, at, 0 if partial.is_extreme else flags.bits)
        if last:
            value = found.place if isinstance(found, Extreme) else found
            if not partial.arg.keepdims:
                value = value.squeeze(partial.arg.axes)
            found = np.asarray(value, dtype)
        results.append(found)
    return results[0] if len(results) == 1 else tuple(results)


def product(
    loop: Any, ufunc: Any, recipe: Recipe, pairs: Sequence[tuple[Spec, ...]], *given: Any
) -> Array:
    """The sum of products of blocks."""
    total: Array | None = None
    with fp_flags.collecting() as flags:
        for first, second in pairs:
            left, right = block(first, recipe, given), block(second, recipe, given)
            assert left is not None
            assert right is not None
            found = ufunc(
                left.astype(loop.ins[0], copy=False), right.astype(loop.ins[1], copy=False)
            )
            total = np.asarray(found) if total is None else np.add(total, found, out=total)
    _note(recipe.token, 0, flags.bits)
    assert total is not None
    return np.asarray(total)


def add_parts(token: str, *parts: Any) -> Array:
    """The sum of blocks."""
    total = np.array(parts[0])
    with fp_flags.collecting() as flags:
        for other in parts[1:]:
            total = np.add(total, other)
    _note(token, 0, flags.bits)
    return total


def pick(found: Any, part: int) -> Any:
    """One result of a task that has several."""
    return found[part]


def read_block(source: Any, box: tuple[slice, ...]) -> Array:
    """A block of a source."""
    return _native(source.read(box))


def count(mask: Any, part: int | None) -> int:
    """How many elements of a mask's block are true."""
    return int(np.count_nonzero(_part(mask, part)))


def select(block: Any, part: int | None, mask: Any, place: int | None) -> Array:
    """The elements of a block that the block of a mask keeps."""
    found: Array = _native(_part(block, part))[_part(mask, place)]
    return found
