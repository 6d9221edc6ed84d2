"""As `numpy.einsum`: recorded, and contracted in the cheapest order with BLAS.

NumPy sums over all indices at once unless it is told to look for a better order. Where that costs
many multiplications the order is looked for here (`numpy.einsum_path`): pairs of operands then go
to matrix products. Integers come out the same; floats are summed in another order, within the bound
that holds for matrix products: k * n * eps * sum(|products|) for sums of n products of k factors.
Owns what `einsum` does; what the pairs are is NumPy's own choice.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import gather, geometry, options, wrap
from lazyfuse.arrays.recording import host, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.interpret import settled
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.functions.products import is_there, taken
from lazyfuse.interop import fallback
from lazyfuse.registry import implements
from lazyfuse.runtime.execution import matmul
from lazyfuse.runtime.layout.meta_arrays import packed_order

# Multiplications from which looking for an order pays; it depends on sizes alone, so that a
# contraction gives the same bits at every call.
WORTH_A_PATH = 1 << 20


@implements(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """As `numpy.einsum`; with the option `contraction_paths`, in the order that costs least."""
    result = None
    if out is None and not kwargs and len(operands) > 2 and type(operands[0]) is str:
        result = _recorded(operands[0], operands[1:], optimize)
    if result is not None:
        return result
    named = fallback.given(out=out) | kwargs
    if optimize is not False:
        named["optimize"] = optimize
    return fallback.run(np.einsum, "einsum", operands, named)


def _recorded(subscripts: str, operands: Sequence[Any], optimize: Any) -> Any:
    """A contraction as a host node; None if NumPy should run or refuse it now."""
    if not (optimize is False or optimize is True):
        return None
    arrays = taken(operands, big=_size(operands) >= WORTH_A_PATH)
    if arrays is None:
        return None
    shown = [geometry(x) for x in arrays]
    if any(x.dtype.kind not in "iufc" or x.dtype.char in "egG" for x in shown):
        return None
    try:
        sample, sizes = _sample(subscripts, tuple([(x.shape, x.dtype, _order(x)) for x in shown]))
    except (ValueError, TypeError, IndexError):
        return None  # NumPy refuses it in its own words
    shape, dtype, perm = sample
    if dtype not in CANONICAL:
        return None
    shape = tuple([sizes[size] for size in shape])
    path = optimize or (options.contraction_paths and _work(subscripts, shown) >= WORTH_A_PATH)
    function = functools.partial(_contracted, subscripts) if path else _plain(subscripts)
    if size_of(shape) < options.eager_below and all(is_there(x) for x in arrays):
        found = fallback.call(function, [gather(x) for x in arrays], {})
        return wrap(settled(np.asarray(found), shape, dtype, perm, ()))
    return host("einsum", function, arrays, shape, dtype, perm)


def _size(operands: Sequence[Any]) -> int:
    """More than the multiplications that a contraction can take."""
    return size_of(tuple([size_of(shape_of(x)) for x in operands]))


def _plain(subscripts: str) -> Any:
    return functools.partial(np.einsum, subscripts)


def _contracted(subscripts: str, *arrays: Any) -> Any:
    shapes = tuple([x.shape for x in arrays])
    pair, einsum = _by_pairs()
    with np.errstate(all="ignore"):  # einsum tells of no conditions, matrix products do
        if pair is not None and _IS_PAIR.fullmatch(subscripts):  # in this order: no copies then
            return pair(subscripts, *arrays)
        return einsum(subscripts, *arrays, optimize=_path(subscripts, shapes))


_IS_PAIR = re.compile(r"[A-Za-z]+,[A-Za-z]+->[A-Za-z]+")


@functools.lru_cache(maxsize=1)
def _by_pairs() -> tuple[Any, Any]:
    """NumPy's contraction of a pair, if it has one, and its `einsum`: large products are ours."""
    theirs: Any = getattr(np.einsum, "__wrapped__", None)
    scope = getattr(theirs, "__globals__", {})
    pair = scope.get("bmm_einsum")  # NumPy 2.4 and later
    if pair is None or "matmul" not in scope or "matmul" not in pair.__code__.co_names:
        return None, np.einsum
    pair = _rebound(pair, {**scope, "matmul": _matmul})
    return pair, _rebound(theirs, {**scope, "bmm_einsum": pair})


def _rebound(function: Any, scope: dict[str, Any]) -> Any:
    copy = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _matmul(first: Any, second: Any, out: Any = None) -> Any:
    return matmul.matmul(first, second) if out is None else np.matmul(first, second, out)


@functools.lru_cache(maxsize=256)
def _path(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """The order of contraction for these sizes."""
    shown = [np.broadcast_to(np.zeros(()), shape) for shape in shapes]
    return np.einsum_path(subscripts, *shown, optimize="greedy")[0]


def _order(x: Any) -> Any:
    """The memory order of an array that fills its memory; None for C order and for gaps."""
    return packed_order(x)[1]


@functools.lru_cache(maxsize=256)
def _sample(subscripts: str, operands: tuple[Any, ...]) -> tuple[Any, dict[int, int]]:
    """Shape (in sizes of a small example), dtype and memory order of the result; what sizes mean.

    NumPy itself says it, of arrays in the same order with small sizes.
    """
    small: dict[int, int] = {0: 0, 1: 1}
    arrays = []
    for shape, dtype, perm in operands:
        sizes = [small.setdefault(size, len(small)) for size in shape]
        dense = sizes if perm is None else [sizes[axis] for axis in perm]
        array = np.zeros(dense, dtype)
        arrays.append(array if perm is None else array.transpose(np.argsort(perm)))
    result = np.asarray(np.einsum(subscripts, *arrays))
    packed, perm = packed_order(result)
    if not packed:
        raise ValueError(subscripts)
    meaning = {number: size for size, number in small.items()}
    return (result.shape, result.dtype, perm), meaning


def _work(subscripts: str, arrays: Sequence[Any]) -> int:
    """Multiplications of the plain sum over all indices."""
    terms = subscripts.split("->")[0].replace(" ", "").split(",")
    sizes: dict[str, int] = {}
    for term, array in zip(terms, arrays, strict=False):
        before, dots, after = term.partition("...")
        named = [*zip(before, array.shape, strict=False)]
        named += zip(reversed(after), reversed(array.shape), strict=False)
        for letter, size in named:
            sizes[letter] = max(size, sizes.get(letter, 0))
        if dots:
            middle = array.shape[len(before) : len(array.shape) - len(after)]
            sizes["..."] = max(size_of(middle), sizes.get("...", 0))
    return size_of(tuple(sizes.values()))
