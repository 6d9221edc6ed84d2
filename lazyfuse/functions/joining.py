"""As NumPy's joining, repeating and rolling: `concatenate`, `stack`, `repeat`, `roll`.

A join of a few arrays is a map of indices (moving.py), as is a roll. A join of many, and a repeat,
is one host call, whose shape and dtype are known in advance. Views are the methods of the array;
most other functions of this topic are decomposed (decompositions.py) or in rearranging.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import methods
from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.eager_policy import middling_operands
from lazyfuse.arrays.ndarray import (
    concrete_value,
    gather,
    geometry,
    materialise,
    ndarray,
    wrap,
)
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.recording import host, shape_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.shapes import normalize_axis, size_of
from lazyfuse.functions import decompositions
from lazyfuse.functions.moving import joined, recorded, stretched, turned
from lazyfuse.interop import fallback
from lazyfuse.interop.fallback import records
from lazyfuse.registry import OURS, THEIRS, dress, implements
from lazyfuse.runtime.layout.meta_arrays import Array, joined_order, keep_order
from lazyfuse.runtime.scheduling.eager_rules import small, small_array

# The most arrays that are joined part by part, by the kernels that compute them.
PIECES = 16


def _as_array(x: Any) -> Any:
    """An operand as a lazyfuse array; None for other types, which NumPy joins."""
    kind = type(x)
    if kind is ndarray:
        return x
    if kind is np.ndarray:
        return wrap(x.copy(order="K"))
    if kind in (list, tuple, int, float, bool, complex):
        return wrap(np.asarray(to_numpy(x)))
    return None


@implements(np.concatenate, eager="arrays")
def concatenate(
    arrays: Any,
    /,
    axis: Any = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> Any:
    """As `numpy.concatenate`."""
    if (
        out is None
        and dtype is None
        and type(arrays) in (list, tuple)
        and _is_default_cast(casting)
    ):
        # `tuple(arrays)` reads a list that a finaliser may empty while it takes memory
        joined = _joined((*arrays,), axis)
        if joined is not None:
            return joined
    named = {} if _is_default_cast(casting) else {"casting": casting}
    named.update(fallback.given(out=out, dtype=dtype))
    return fallback.run(np.concatenate, "concatenate", (arrays, axis), named)


def _is_default_cast(casting: Any) -> bool:
    """Whether `casting` is the default; without a dtype it allows every cast of a join."""
    return type(casting) is str and casting == "same_kind"


def _joined(arrays: Any, axis: Any) -> Any:
    if not any(type(x) is ndarray and concrete_value(x) is None for x in arrays):
        return None
    operands = [_as_array(x) for x in arrays]
    if any(x is None or dtype_of(x) not in CANONICAL for x in operands):
        return None
    shapes = [shape_of(x) for x in operands]
    place = _join_axis(axis, shapes)
    if place is None:
        return None
    dtype = CANONICAL[np.result_type(*[dtype_of(x) for x in operands])]
    if place < 0:
        operands, place = [methods.ravel(x) for x in operands], 0
        arrays, shapes = operands, [shape_of(x) for x in operands]
    first = shapes[0]
    length = sum(shape[place] for shape in shapes)
    shape = (*first[:place], length, *first[place + 1 :])
    # the order of the user's NumPy array, not of its copy
    perm = joined_order(
        [x if type(x) is np.ndarray else geometry(y) for x, y in zip(arrays, operands, strict=True)]
    )
    size = size_of(shape)
    if middling_operands(operands, size):
        return fallback.run(np.concatenate, "concatenate", (list(arrays), place), {})
    if len(operands) <= PIECES and size and not small(size):
        return recorded(operands, joined(tuple(shapes), place), dtype, perm)
    return host("concatenate", _Concatenate(place), operands, shape, dtype, perm)


def _join_axis(axis: Any, shapes: list[tuple[int, ...]]) -> int | None:
    """The axis as a number, -1 for None; None if NumPy must raise."""
    if axis is None:
        return -1
    rank = len(shapes[0])
    if not rank or any(len(shape) != rank for shape in shapes):
        return None
    try:
        place = normalize_axis(axis, rank)
    except (TypeError, ValueError):
        return None
    rests = {(*shape[:place], *shape[place + 1 :]) for shape in shapes}
    return place if len(rests) == 1 else None


class _Concatenate:
    """`numpy.concatenate` of any number of arrays along one axis."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def __call__(self, *arrays: Any) -> Any:
        return np.concatenate(arrays, self.axis)


if np.concat is not np.concatenate:
    implements(np.concat, eager="arrays")(concatenate)


@records(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """As `numpy.repeat`; recorded if `repeats` is one number."""
    if type(a) is not ndarray or type(repeats) is not int or repeats < 1:
        return None
    if concrete_value(a) is not None or dtype_of(a) not in CANONICAL or not geometry(a).size:
        return None
    row, axis = (methods.ravel(a), 0) if axis is None else (a, axis)
    shape = shape_of(row)
    try:
        place = normalize_axis(axis, len(shape))
    except (TypeError, ValueError):
        return None
    return recorded((row,), stretched(shape, repeats, place), dtype_of(a))


@records(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """As `numpy.roll`; recorded if shift and axis are integers or tuples of them."""
    if type(a) is ndarray and materialise(a) is None and dtype_of(a) in CANONICAL:
        shown = geometry(a)
        if shown.ndim and shown.size and _is_known(shift) and _is_turned(shown.ndim, shift, axis):
            if small_array(shown):
                return wrap(rolled(gather(a), shift, axis))
            arg = turned(shown.shape, _hashable(shift), _hashable(axis))
            if arg is not None:
                order = None if axis is None else keep_order(shown)
                return recorded((a,), arg, dtype_of(a), order)
    return None


def _hashable(number: Any) -> Any:
    return tuple(number) if type(number) is list else number


def _is_known(number: Any) -> bool:
    """Whether a shift or an axis is an integer or a tuple of integers."""
    if type(number) in (tuple, list):
        return all(type(each) is int for each in number)
    return type(number) is int


def _is_turned(rank: int, shift: Any, axis: Any) -> bool:
    """Whether NumPy accepts these axes."""
    if axis is None:
        return type(shift) is int
    if not _is_known(axis):
        return False
    axes = axis if type(axis) in (tuple, list) else (axis,)
    shifts = shift if type(shift) in (tuple, list) else (shift,)
    if 1 not in (len(axes), len(shifts)) and len(axes) != len(shifts):
        return False
    return all(-rank <= each < rank for each in axes)


_roll: Callable[..., Array] = getattr(np.roll, "_implementation", np.roll)


def rolled(a: Array, shift: Any, axis: Any = None) -> Array:
    """`numpy.roll` of a NumPy array: one axis is two copies, without the search for all others."""
    if type(a) is not np.ndarray or type(shift) is not int or not a.size:
        return _roll(a, shift, axis)
    if axis is None:
        return rolled(a.ravel(), shift, 0).reshape(a.shape)
    if type(axis) is not int or not -a.ndim <= axis < a.ndim:
        return _roll(a, shift, axis)
    result = np.empty_like(a)
    to, source = result.swapaxes(0, axis), a.swapaxes(0, axis)
    shift %= len(to)
    to[shift:] = source[: len(to) - shift]
    to[:shift] = source[len(to) - shift :]
    return result


# ------------------------------------------------------------------------------------------ stacks

_followed = decompositions.stack  # type: ignore[attr-defined]  # NumPy's code, decomposed


def stack(*args: Any, **kwargs: Any) -> Any:
    """As `numpy.stack`."""
    few = len(args) + len(kwargs) <= 2 and kwargs.keys() <= {"axis"}
    if few and args and type(args[0]) in (list, tuple):
        found = _stacked(args[0], kwargs.get("axis", args[1] if len(args) > 1 else 0))
        if found is not None:
            return found
    return _followed(*args, **kwargs)


def _stacked(arrays: Any, axis: Any) -> Any:
    """The stack of pending arrays of one kind; None if NumPy's code is to make it."""
    if type(axis) is not int or not all(type(x) is ndarray for x in arrays):
        return None
    kinds = {(shape_of(x), dtype_of(x)) for x in arrays}
    few = len(kinds) == 1 and len(arrays) <= PIECES
    if not few or all(concrete_value(x) is not None for x in arrays):
        return None
    ((own, dtype),) = kinds
    size, rank = size_of(own) * len(arrays), len(own) + 1
    if not own or not size or small(size) or dtype not in CANONICAL or not -rank <= axis < rank:
        return None
    axis %= rank
    key = (*[slice(None)] * axis, None)
    order = joined_order([geometry(x)[key] for x in arrays])
    return recorded(arrays, joined((own,) * len(arrays), axis, True), dtype, order)


dress(stack, np.stack)
OURS[np.stack] = stack
THEIRS[stack] = np.stack
