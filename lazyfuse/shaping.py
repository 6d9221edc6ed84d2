"""As NumPy's joining and repeating: `concatenate`, `repeat`, `broadcast_to`, `pad`, `take`.

What joins big arrays is recorded as one host call, because its shape and dtype are known without
looking. Views are the methods of the array; most other functions of this topic are followed
(recipes.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse import fallback
from lazyfuse.array import geometry, ndarray, ready, wrap
from lazyfuse.codegen.shapes import normalize_axis
from lazyfuse.operators import dtype_of
from lazyfuse.recording import host, shape_of
from lazyfuse.registry import implements
from lazyfuse.storage import CANONICAL
from lazyfuse.views import joined_order


def _as_array(x: Any) -> Any:
    """A joined operand as an array of ours or NumPy's; None if it is something special."""
    kind = type(x)
    if kind is ndarray:
        return x
    if kind is np.ndarray:
        return wrap(x.copy(order="K"))
    if kind in (list, tuple, int, float, bool, complex):
        return wrap(np.asarray(fallback.gathered(x)))
    return None


@implements(np.concatenate)
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
    if out is None and dtype is None and type(arrays) in (list, tuple):
        joined = _joined(arrays, axis)
        if joined is not None:
            return joined
    named = {} if casting == "same_kind" else {"casting": casting}
    named.update(fallback.given(out=out, dtype=dtype))
    return fallback.run(np.concatenate, "concatenate", (arrays, axis), named)


def _joined(arrays: Any, axis: Any) -> Any:
    if not any(type(x) is ndarray and ready(x) is None for x in arrays):
        return None
    operands = [_as_array(x) for x in arrays]
    if any(x is None or dtype_of(x) not in CANONICAL for x in operands):
        return None
    shapes = [shape_of(x) for x in operands]
    place = _join_axis(axis, shapes)
    if place is None:
        return None
    dtype = np.result_type(*[dtype_of(x) for x in operands])
    if place < 0:
        total = sum(_size(shape) for shape in shapes)
        return host("concatenate", _Concatenate(None), operands, (total,), dtype)
    first = shapes[0]
    length = sum(shape[place] for shape in shapes)
    shape = (*first[:place], length, *first[place + 1 :])
    # a real array as it lies, not as its copy does
    perm = joined_order(
        [x if type(x) is np.ndarray else geometry(y) for x, y in zip(arrays, operands, strict=True)]
    )
    return host("concatenate", _Concatenate(place), operands, shape, dtype, perm)


def _join_axis(axis: Any, shapes: list[tuple[int, ...]]) -> int | None:
    """The axis as a number, -1 for None; None if NumPy has to refuse."""
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


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


class _Concatenate:
    """`numpy.concatenate` along one axis, of any number of arrays."""

    def __init__(self, axis: int | None) -> None:
        self.axis = axis

    def __call__(self, *arrays: Any) -> Any:
        return np.concatenate(arrays, self.axis)


if np.concat is not np.concatenate:
    implements(np.concat)(concatenate)


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """As `numpy.repeat`; recorded if every element is repeated equally often."""
    if type(a) is ndarray and type(repeats) is int and repeats >= 0 and ready(a) is None:
        result = _repeated(a, repeats, axis)
        if result is not None:
            return result
    return fallback.run(np.repeat, "repeat", (a, repeats, axis), {})


def _repeated(a: ndarray, repeats: int, axis: Any) -> Any:
    shape = shape_of(a)
    dtype = dtype_of(a)
    if dtype not in CANONICAL:
        return None
    if axis is None:
        function = _Repeat(repeats, None)
        return host("repeat", function, (a,), (_size(shape) * repeats,), dtype)
    try:
        place = normalize_axis(axis, len(shape))
    except (TypeError, ValueError):
        return None
    longer = (*shape[:place], shape[place] * repeats, *shape[place + 1 :])
    return host("repeat", _Repeat(repeats, place), (a,), longer, dtype)


class _Repeat:
    """`numpy.repeat` with a plain number."""

    def __init__(self, repeats: int, axis: int | None) -> None:
        self.repeats = repeats
        self.axis = axis

    def __call__(self, value: Any) -> Any:
        return np.repeat(value, self.repeats, self.axis)
