"""As NumPy's functions that show elements of an array again or elsewhere: `pad`, `tile`, `insert`,
`delete`, `resize`, `diag`, `gradient`.

Each is a map of indices, made of segments along its axes (moving.py). What they do not take goes to
NumPy's own code, whose steps are recorded (decompositions.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import methods
from lazyfuse.arrays.ndarray import concrete_value, geometry, ndarray
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.shapes import normalize_axes, normalize_axis, size_of
from lazyfuse.functions import decompositions, elementwise
from lazyfuse.functions.creation import asarray
from lazyfuse.functions.moving import MOST_PIECES, again, padded, parted, recorded, sides
from lazyfuse.interop import fallback
from lazyfuse.registry import OURS, THEIRS, dress
from lazyfuse.runtime.layout.meta_arrays import keep_order
from lazyfuse.runtime.scheduling.compound_calls import as_one

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
FEW_WEIGHTS = 11  # of a convolution: more are products of NumPy's BLAS
WIDE = 1024  # a wider border is NumPy's: its places are found one by one
_WHOLE = (int, np.integer)
_NUMBERS = (int, float, complex, np.number, np.bool_)


def _numpys(theirs: Any) -> Callable[..., Any]:
    """NumPy's function on values."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fallback.run(theirs, theirs.__name__, args, kwargs)

    return call


def _replaces(
    theirs: Any, rest: Callable[[Any], Callable[..., Any]] = _numpys
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function below serves what it can, and returns None for the rest.

    `rest` says who does that: NumPy, or NumPy's code, decomposed.
    """
    followed = rest(theirs)

    def register(serve: Callable[..., Any]) -> Callable[..., Any]:
        serve = as_one(serve)

        def call(*args: Any, **kwargs: Any) -> Any:
            a = args[0] if args else None
            if type(a) is ndarray and _is_worth_it(a):
                try:
                    found = serve(*args, **kwargs)
                except TypeError:  # NumPy says what is wrong with the arguments
                    found = None
                if found is not None:
                    return found
            return followed(*args, **kwargs)

        dress(call, theirs)
        OURS[theirs] = call
        THEIRS[call] = theirs
        return call

    return register


def _is_worth_it(a: ndarray) -> bool:
    """Whether an array is recorded, of numbers, and large."""
    if concrete_value(a) is not None or dtype_of(a) not in CANONICAL:
        return False
    shown = geometry(a)
    return shown.ndim > 0 and shown.size > 0


def _order(shown: Any) -> tuple[int, ...] | None:
    """The memory order of new arrays of NumPy's: Fortran's for arrays in that order alone."""
    return tuple(reversed(range(shown.ndim))) if shown.flags.fnc else None


@_replaces(np.pad, decompositions.decompose)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """As `numpy.pad`."""
    if not isinstance(mode, str) or mode not in MODES or isinstance(pad_width, dict):
        return None
    number = kwargs.pop("constant_values", 0) if mode == "constant" else 0
    if kwargs or not isinstance(number, _NUMBERS):
        return None
    if isinstance(number, (complex, np.complexfloating)) and dtype_of(array).kind != "c":
        return None  # NumPy warns of it for each side
    shown = geometry(array)
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (shown.ndim, 2))
    except ValueError:
        return None
    if widths.dtype.kind not in "iu" or widths.min() < 0:
        return None
    if widths.max() > WIDE:
        return None
    arg = padded(shown.shape, tuple(map(tuple, widths.tolist())), mode)
    sources = (array,) if mode != "constant" else (array, _number(number, dtype_of(array)))
    return None if arg is None else recorded(sources, arg, dtype_of(array), _order(shown))


def _number(value: Any, dtype: Any) -> Any:
    """A number as an element, with the warnings and errors of NumPy's assignment."""
    found = np.empty(1, dtype)
    found[...] = value
    return found.reshape(())


@_replaces(np.tile, decompositions.decompose)
def tile(A: Any, reps: Any) -> Any:  # noqa: N803  # NumPy's name
    """As `numpy.tile`."""
    times = (reps,) if isinstance(reps, _WHOLE) else tuple(reps)
    if not all(isinstance(each, _WHOLE) for each in times) or min(times, default=0) < 1:
        return None
    shown = geometry(A)
    if len(times) > shown.ndim:
        A = methods.reshape(A, (1,) * (len(times) - shown.ndim) + shown.shape)  # noqa: N806
        shown = geometry(A)
    turns = (1,) * (shown.ndim - len(times)) + tuple([int(each) for each in times])
    wanted = tuple([n * count for n, count in zip(shown.shape, turns, strict=True)])
    arg = again(shown.shape, wanted) if max(turns) > 1 else None
    return None if arg is None else recorded((A,), arg, dtype_of(A))


def _places(obj: Any, length: int) -> list[int] | None:
    """The few places that an argument names, not negative; None where NumPy is to look at it."""
    if isinstance(obj, slice):
        found = list(range(*obj.indices(length))[: MOST_PIECES + 1])
    elif isinstance(obj, _WHOLE) and not isinstance(obj, bool):
        found = [int(obj)]
    elif type(obj) is list and all(type(each) is int for each in obj):
        found = obj
    else:
        return None
    few = 0 < len(found) < MOST_PIECES and all(-length <= each < length for each in found)
    return [each % length for each in found] if few else None


def _one_axis(arr: Any, axis: Any) -> tuple[Any, int]:
    """The array and its axis that `insert` and `delete` work on."""
    rank = geometry(arr).ndim
    if axis is None:
        return arr if rank == 1 else methods.ravel(arr), 0
    return arr, normalize_axis(axis, rank)


@_replaces(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """As `numpy.delete`."""
    arr, axis = _one_axis(arr, axis)
    shown = geometry(arr)
    places = _places(obj, shown.shape[axis])
    if places is None:
        return None
    arg = parted(shown.shape, axis, tuple(sorted(set(places))), False)
    return None if arg is None else recorded((arr,), arg, dtype_of(arr), _order(shown))


@_replaces(np.diag, decompositions.decompose)
def diag(v: Any, k: Any = 0) -> Any:
    """As `numpy.diag`."""
    shown = geometry(v)
    if shown.ndim != 1 or not isinstance(k, _WHOLE):
        return None
    k, size = int(k), shown.size + abs(int(k))
    before = max(-k, 0)
    arg = padded(shown.shape, ((before, size - before - shown.size),), "constant")
    zero = np.zeros((), dtype_of(v))
    assert arg is not None, "three pieces"
    column = recorded((v, zero), arg, dtype_of(v))
    place = np.arange(size, dtype=np.int32)
    return elementwise.where(asarray(place[:, None] + k) == place, column[:, None], zero)


@_replaces(np.gradient, decompositions.decompose)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: Any = 1) -> Any:
    """As `numpy.gradient`: by one formula, whose neighbours are the elements themselves at ends."""
    if dtype_of(f).kind in "iu":
        f = methods.astype(f, np.float64)
    shown, dtype = geometry(f), dtype_of(f)
    if dtype.kind not in "fc" or edge_order != 1 or min(shown.shape) < 2:
        return None
    axes = normalize_axes(axis, shown.ndim) if axis is None or isinstance(axis, int) else ()
    steps = varargs * len(axes) if len(varargs) == 1 else varargs or (1.0,) * len(axes)
    if len(steps) != len(axes) or not axes or not {*map(type, steps)} <= {int, float}:
        return None
    found = []
    for at, step in zip(axes, steps, strict=True):
        after, before, over = sides(shown.shape, at)
        order = keep_order(shown)
        rise = recorded((f,), after, dtype, order) - recorded((f,), before, dtype, order)
        widths = np.array([step, 2.0 * step], np.float64).astype(dtype)
        found.append(rise / recorded((widths[0], widths[1]), over, dtype))
    return found[0] if len(found) == 1 else tuple(found)


@_replaces(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """As `numpy.ediff1d`."""
    if to_end is not None or to_begin is not None:
        return None
    flat = methods.ravel(ary)
    return flat[1:] - flat[:-1]


@_replaces(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """As `numpy.insert`."""
    if not isinstance(values, _NUMBERS):
        return None
    arr, axis = _one_axis(arr, axis)
    shown, dtype = geometry(arr), dtype_of(arr)
    length = shown.shape[axis]
    places = [length] if type(obj) is int and obj == length else _places(obj, length)
    if places is None:
        return None
    places = [place + at for at, place in enumerate(sorted(places))]
    arg = parted(shown.shape, axis, tuple(places), True)
    return (
        None if arg is None else recorded((arr, _number(values, dtype)), arg, dtype, _order(shown))
    )


@_replaces(np.resize, decompositions.decompose)
def resize(a: Any, new_shape: Any) -> Any:
    """As `numpy.resize`."""
    shape = (new_shape,) if isinstance(new_shape, _WHOLE) else tuple(new_shape)
    shape = tuple([int(n) for n in shape])
    if min(shape, default=0) < 1:
        return None
    arg = again((geometry(a).size,), (size_of(shape),))
    if arg is None:
        return None
    return methods.reshape(recorded((methods.ravel(a),), arg, dtype_of(a)), shape)


# ------------------------------------------------------------------------------ small convolutions


@_replaces(np.convolve)
def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    """As `numpy.convolve`."""
    weights = _weights(v)
    return None if weights is None else _slid(a, weights[::-1], mode)


@_replaces(np.correlate)
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """As `numpy.correlate`."""
    weights = _weights(v)
    return None if weights is None else _slid(a, weights, mode)


def _weights(v: Any) -> Any:
    """A few known numbers as a row; None for what NumPy adds in an order of its own."""
    real = concrete_value(v) if type(v) is ndarray else v
    if not isinstance(real, (np.ndarray, list, tuple)) or len(real) > FEW_WEIGHTS:
        return None
    found = np.array(real)
    return found if found.ndim == 1 and found.size and found.dtype in CANONICAL else None


def _slid(a: Any, weights: Any, mode: Any) -> Any:
    """Sums of products along a row: shifted views of it, added in NumPy's order.

    Sums at the ends, which lack products, are recorded for integers alone: of floats NumPy has BLAS
    add them, which may round in another way.
    """
    dtype = np.result_type(dtype_of(a), weights.dtype)
    n, k = geometry(a).size, len(weights)
    if geometry(a).ndim != 1 or n < k or dtype.kind not in "iuf" or dtype.char in "eg":
        return None
    before = {"full": k - 1, "same": k // 2, "valid": 0}.get(mode if type(mode) is str else "")
    if before is None or (before and dtype.kind == "f"):
        return None
    row, weights = methods.astype(a, dtype, copy=False), weights.astype(dtype)
    if before:
        after = k - 1 if mode == "full" else k - 1 - before
        row, n = pad(row, (before, after)), n + before + after
    found = dtype.type(0)
    with np.errstate(all="ignore"):  # NumPy tells of nothing here
        for at, weight in enumerate(weights):
            found = found + row[at : at + n - k + 1] * weight
    return found
