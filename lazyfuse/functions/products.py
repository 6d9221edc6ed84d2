"""As NumPy's products of arrays: `matmul`, `dot`, `inner`, `vdot`, `einsum`.

Recorded where shapes and dtypes determine the result; evaluation runs NumPy's (BLAS's) function.
Owns `@`.

`einsum`: by default NumPy sums over all indices at once. If that costs many multiplications, this
module looks for a better order (`numpy.einsum_path`), so that pairs of operands go to matrix
products. NumPy chooses the pairs. Integer results stay the same. Floats are summed in another
order, within the bound of matrix products: k * n * eps * sum(|products|) for sums of n products of
k factors.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.eager_policy import small_product
from lazyfuse.arrays.ndarray import (
    caller,
    concrete_value,
    from_node,
    gather,
    geometry,
    ndarray,
    node_of,
    wrap,
)
from lazyfuse.arrays.operators import dtype_of, set_matmul
from lazyfuse.arrays.recording import host, may_record, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph import interpret
from lazyfuse.codegen.graph.node import Node, Shape
from lazyfuse.codegen.graph.shapes import broadcast, broadcast_all, size_of
from lazyfuse.codegen.table import promotion
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.devices.caches import cached
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.interop import fallback
from lazyfuse.interop.fallback import records
from lazyfuse.registry import with_globals
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.events.decisions import EXPORTED, Rule
from lazyfuse.runtime.execution import matmul
from lazyfuse.runtime.layout.meta_arrays import packed_order, result_order

_MATMUL = TABLE["matmul"]


def taken(operands: Sequence[Any], big: bool = False) -> list[ndarray] | None:
    """The operands, if their product is recorded: one is large, all have supported dtypes."""
    found = []
    for x in operands:
        if type(x) in (list, tuple, np.ndarray):
            x = wrap(np.array(to_numpy(x)))
        if type(x) is not ndarray or dtype_of(x) not in CANONICAL:
            return None
        big = big or concrete_value(x) is None
        found.append(x)
    return found if big and may_record() else None


def _at_once(operands: Sequence[ndarray], shape: Shape) -> Rule | None:
    """The rule by which NumPy computes a product now, if any. Either the result is small, and so
    are operands that have to be computed first; or other code may change an operand's memory, and
    copying it for later would take longer than most products with it (a matrix and a vector).
    """
    if rule := small_product(operands, [shape_of(x) for x in operands], shape):
        return rule
    if not any(_is_shared(x) for x in operands):
        return None
    first, second = operands
    ours = matmul.is_ours(shape_of(first), shape_of(second), [dtype_of(x) for x in operands])
    return None if ours else EXPORTED


def _done(function: Any, operands: Sequence[ndarray]) -> Any:
    """A product of values, now: NumPy's, unless it is large enough for our tiles."""
    first, second = operands
    if not matmul.is_ours(shape_of(first), shape_of(second), [dtype_of(x) for x in operands]):
        numpy_calls.note_done()
    return wrap(fallback.call(function, [gather(first), gather(second)], {}))


def _is_shared(x: ndarray) -> bool:
    """Whether a recorded read of an array copies it, since other code has its memory."""
    return (
        x._node is None
        and concrete_value(x) is None
        and x._storage is not None
        and x._storage.shared()
    )


def _matmul_shape(first: Shape, second: Shape) -> Shape | None:
    if not first or not second:
        return None
    rows, inner = (first[-2:-1], first[-1])
    columns = second[-1:] if len(second) > 1 else ()
    if inner != (second[-2] if len(second) > 1 else second[-1]):
        return None
    try:
        stack = broadcast(first[:-2], second[:-2])
    except ValueError:
        return None
    return (*stack, *rows, *columns)


def _is_stacked_in_order(operands: Sequence[ndarray], shape: Shape) -> bool:
    """Whether NumPy stacks the matrices of a product in C order, as recorded products are."""
    if len(shape) < 4 or any(0 in shape_of(x) for x in operands):
        return True
    stacks = [geometry(x)[..., 0, 0] for x in operands]
    return result_order(broadcast_all([x.shape for x in stacks]), stacks) is None


def _recorded_matmul(first: Any, second: Any) -> Any:
    operands = taken((first, second))
    if operands is None:
        return None
    left, right = operands
    shape = _matmul_shape(shape_of(left), shape_of(right))
    if shape is None or not _is_stacked_in_order(operands, shape):
        return None
    if _at_once(operands, shape):
        return _done(matmul.matmul, operands)
    try:
        loop = promotion.resolve(_MATMUL, (dtype_of(left), dtype_of(right)))
    except TypeError:
        return None
    if loop.out not in CANONICAL:
        return None
    nodes = (node_of(left), node_of(right))
    matmul.foresee(*nodes, loop.ins)
    return from_node(Node(_MATMUL, nodes, loop, shape, loop.out, None, caller()))


def _matmul(first: Any, second: Any) -> Any:
    """The result of `first @ second`."""
    if type(first) is ndarray and type(second) is ndarray:
        left, right = first._eager, second._eager
        if left is not None and right is not None:
            return wrap(fallback.call(np.matmul, [left, right], {}))
    result = _recorded_matmul(first, second)
    return _THEIR_MATMUL.now(first, second) if result is None else result


def _dot_shape(first: Shape, second: Shape) -> Shape | None:
    if not first or not second:
        return None
    if first[-1] != (second[-2] if len(second) > 1 else second[-1]):
        return None
    return (*first[:-1], *second[:-2], *(second[-1:] if len(second) > 1 else ()))


def _inner_shape(first: Shape, second: Shape) -> Shape | None:
    if not first or not second or first[-1] != second[-1]:
        return None
    return (*first[:-1], *second[:-1])


def _vdot_shape(first: Shape, second: Shape) -> Shape | None:
    sizes = np.prod(first, dtype=np.intp), np.prod(second, dtype=np.intp)
    return () if sizes[0] == sizes[1] else None


def _product(
    theirs: Any, shape_rule: Callable[[Shape, Shape], Shape | None], first: Any, second: Any
) -> Any:
    """A product as a host node; None if NumPy should run or refuse it now."""
    operands = taken((first, second))
    if operands is None:
        return None
    left, right = operands
    shape = shape_rule(shape_of(left), shape_of(right))
    if shape is None:
        return None
    if _at_once(operands, shape):
        return _done(matmul.dot if theirs is np.dot else theirs, operands)
    dtype = np.result_type(dtype_of(left), dtype_of(right))
    return host(theirs.__name__, theirs, operands, shape, dtype)


@records(np.dot, eager="arrays")
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """As `numpy.dot`."""
    return None if out is not None else _product(np.dot, _dot_shape, a, b)


@records(np.inner, eager="arrays")
def inner(a: Any, b: Any, /) -> Any:
    """As `numpy.inner`."""
    return _product(np.inner, _inner_shape, a, b)


@records(np.vdot, eager="arrays")
def vdot(a: Any, b: Any, /) -> Any:
    """As `numpy.vdot`."""
    return _product(np.vdot, _vdot_shape, a, b)


_THEIR_MATMUL = ufunc_of(np.matmul)
_THEIR_MATMUL.recorder = _recorded_matmul
set_matmul(_matmul)


# ------------------------------------------------------------------------------------------ einsum

# Multiplications from which a search for an order pays. The order depends on sizes alone, so that
# a contraction gives the same bits at every call.
WORTH_A_PATH = 1 << 20


@records(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """As `numpy.einsum`; large contractions take a cheaper order."""
    if out is None and not kwargs and len(operands) > 2 and type(operands[0]) is str:
        return _recorded(operands[0], operands[1:], optimize)
    return None


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
        given = tuple([(x.shape, x.dtype, _order(x)) for x in shown])
        sample, sizes, is_number = _sample(subscripts, given, optimize)
    except (ValueError, TypeError, IndexError):
        return None  # NumPy raises its error
    shape, dtype, perm = sample
    if dtype not in CANONICAL:
        return None
    shape = tuple([sizes[size] for size in shape])
    path = optimize or _work(subscripts, shown) >= WORTH_A_PATH
    function = functools.partial(_contracted, subscripts) if path else _plain(subscripts)
    if small_product(arrays, [x.shape for x in shown], shape):
        if not path:
            numpy_calls.note_done()
        found = fallback.call(function, [gather(x) for x in arrays], {})
        found = interpret.packed_copy(np.asarray(found), shape, dtype, perm, ())
        return found[()] if is_number else wrap(found)
    found = host("einsum", function, arrays, shape, dtype, perm)
    return found if shape or is_number else wrap(np.asarray(to_numpy(found)))


def _size(operands: Sequence[Any]) -> int:
    """An upper bound of the multiplications in a contraction."""
    return size_of(tuple([size_of(shape_of(x)) for x in operands]))


def _plain(subscripts: str) -> Any:
    return functools.partial(np.einsum, subscripts)


def _contracted(subscripts: str, *arrays: Any) -> Any:
    shapes = tuple([x.shape for x in arrays])
    pair, einsum = _by_pairs()
    with np.errstate(all="ignore"):  # einsum reports no floating-point exceptions
        if pair is not None and _IS_PAIR.fullmatch(subscripts):  # the pair function makes no copies
            return pair(subscripts, *arrays)
        return einsum(subscripts, *arrays, optimize=_path(subscripts, shapes))


_IS_PAIR = re.compile(r"[A-Za-z]+,[A-Za-z]+->[A-Za-z]+")


@cached(1)
def _by_pairs() -> tuple[Any, Any]:
    """NumPy's contraction of a pair, if it has one, and its `einsum`, with lazyfuse's `matmul`."""
    theirs: Any = getattr(np.einsum, "__wrapped__", None)
    scope = getattr(theirs, "__globals__", {})
    pair = scope.get("bmm_einsum")  # NumPy 2.4 and later
    if pair is None or "matmul" not in scope or "matmul" not in pair.__code__.co_names:
        return None, np.einsum
    pair = with_globals(pair, {**scope, "matmul": _einsum_matmul})
    return pair, with_globals(theirs, {**scope, "bmm_einsum": pair})


def _einsum_matmul(first: Any, second: Any, out: Any = None) -> Any:
    return matmul.matmul(first, second) if out is None else np.matmul(first, second, out)


@cached(256)
def _path(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """The order of contraction for these sizes."""
    shown = [np.broadcast_to(np.zeros(()), shape) for shape in shapes]
    return np.einsum_path(subscripts, *shown, optimize="greedy")[0]


def _order(x: Any) -> Any:
    """The memory order of an array, apart from gaps; None for C order."""
    return packed_order(x)[1]


@cached(256)
def _sample(
    subscripts: str, operands: tuple[Any, ...], optimize: bool
) -> tuple[Any, dict[int, int], bool]:
    """Shape (in sample sizes), dtype and memory order of the result; and the real size of each.

    NumPy computes a small sample, of arrays in the same memory orders: pair by pair, as for the
    real sizes, if the user asked for that. Last: whether NumPy gives a number, not an array.
    """
    path = optimize and _path(subscripts, tuple([shape for shape, _, _ in operands]))
    small: dict[int, int] = {0: 0, 1: 1}
    arrays = []
    for shape, dtype, perm in operands:
        sizes = [small.setdefault(size, len(small)) for size in shape]
        dense = sizes if perm is None else [sizes[axis] for axis in perm]
        array = np.zeros(dense, dtype)
        arrays.append(array if perm is None else array.transpose(np.argsort(perm)))
    found = np.einsum(subscripts, *arrays, optimize=path)
    result = np.asarray(found)
    packed, perm = packed_order(result)
    if not packed:
        raise ValueError(subscripts)
    meaning = {number: size for size, number in small.items()}
    return (result.shape, result.dtype, perm), meaning, isinstance(found, np.generic)


def _work(subscripts: str, arrays: Sequence[Any]) -> int:
    """Multiplications of a single sum over all indices."""
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
