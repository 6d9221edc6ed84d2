"""As NumPy's functions that return views or ask for shapes, dtypes and flags.

NumPy computes the geometry on meta arrays; nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib import stride_tricks

from lazyfuse.arrays import methods
from lazyfuse.arrays.attributes import materialise_view
from lazyfuse.arrays.conversion import base_view, derive, from_numpy, to_numpy
from lazyfuse.arrays.ndarray import geometry, ndarray, writable
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.scalars import scalar
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.functions.creation import asarray
from lazyfuse.interop import fallback, overrides
from lazyfuse.interop.fallback import records
from lazyfuse.registry import implements
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.layout.meta_arrays import affine
from lazyfuse.runtime.scheduling.eager_rules import small

VIEWS = (
    "array_split broadcast_to diagonal dsplit expand_dims flip fliplr flipud hsplit "
    "matrix_transpose moveaxis permute_dims rollaxis rot90 split squeeze swapaxes transpose "
    "vsplit"
).split()
"""Functions of the main namespace that always return views."""


def _as_views(owner: ndarray, result: Any, whole: Any) -> Any:
    if result is whole:
        return owner
    if isinstance(result, (list, tuple)):
        return type(result)([_as_views(owner, item, whole) for item in result])
    return derive(owner, result)


def view_function(theirs: Any, eager: str = "") -> Callable[..., Any]:
    """The lazyfuse version of a function that returns views of its first argument."""
    name = numpy_calls.name_of(theirs)

    @implements(theirs, eager)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is ndarray:
            whole = base_view(args[0])
            rest = to_numpy(args[1:])
            result = theirs(whole, *rest, **to_numpy(kwargs))
            if not isinstance(
                result, (np.ndarray, list, tuple)
            ):  # an element, perhaps of a meta array
                return args[0][()]
            if type(result) is np.ndarray and not affine(result) and args[0]._eager is None:
                materialise_view(args[0])  # a view of parts of elements: no node can describe it
                return call(*args, **kwargs)
            if type(result) is not np.ndarray or result.dtype == whole.dtype:
                return _as_views(args[0], result, whole)
        return fallback.run(theirs, name, args, kwargs)

    return call


@records(np.reshape)
def reshape(a: Any, /, *args: Any, **kwargs: Any) -> Any:
    """As `numpy.reshape`: a view where possible, which the method of the array decides."""
    if type(a) is ndarray and 0 < len(args) < 3 and kwargs.keys() <= {"order", "copy"}:
        if len(args) == 1:
            return methods.reshape(a, *args, **kwargs)
        if "order" not in kwargs:
            return methods.reshape(a, args[0], order=args[1], **kwargs)
    return None


@records(np.ravel)
def ravel(a: Any, order: Any = "C") -> Any:
    """As `numpy.ravel`: a view where possible, which the method of the array decides."""
    return methods.ravel(a, order) if type(a) is ndarray else None


@records(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """As `numpy.unstack`; an array with one axis gives scalars."""
    if type(x) is ndarray and base_view(x).ndim:
        rows: Any = np.moveaxis(x, axis, 0)  # type: ignore[type-var]
        return tuple(rows)
    return None


@records(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """As `numpy.broadcast_arrays`."""
    ours = [x for x in args if type(x) is ndarray]
    big = any(x._eager is None for x in ours) or (bool(ours) and _is_large(args))
    if not big or any(isinstance(x, np.ndarray) and type(x) is not np.ndarray for x in args):
        return None
    arrays = [asarray(x) for x in args]
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    return tuple([x if x.shape == shape else _widened(x, shape) for x in arrays])


def _is_large(arrays: Sequence[Any]) -> bool:
    """Whether arrays broadcast to so many elements that lazyfuse arrays are recorded."""
    try:
        return not small(size_of(np.broadcast_shapes(*map(np.shape, arrays))))
    except ValueError:
        return False


def _widened(x: ndarray, shape: tuple[int, ...]) -> ndarray:
    """A broadcast view that may be written to, as NumPy's `broadcast_arrays` still allows."""
    whole = base_view(x)
    strides = np.broadcast_to(whole, shape).strides
    return derive(x, stride_tricks.as_strided(whole, shape, strides))


def sharing_function(theirs: Any) -> Callable[..., Any]:
    """The lazyfuse version of `shares_memory` and `may_share_memory`.

    Equal arrays that were computed together may use the same memory until one is written to. The
    user must not see that, so each array gets its own memory first.
    """

    @implements(theirs)
    def call(a: Any, b: Any, max_work: Any = None) -> Any:
        if overrides.of_functions.find((a, b)):
            return overrides.call_function(theirs, (a, b, max_work), {})
        first = writable(a) if type(a) is ndarray else a
        second = writable(b) if type(b) is ndarray and b is not a else b
        real = (first, first if b is a else second)
        return fallback.run(theirs, theirs.__name__, (*real, max_work), {})

    return call


for _function in (np.shares_memory, np.may_share_memory):
    sharing_function(_function)
for _name in VIEWS:
    globals()[_name] = view_function(getattr(np, _name), "views")
for _theirs in (
    np.linalg.diagonal,
    np.linalg.matrix_transpose,
    stride_tricks.as_strided,
    stride_tricks.sliding_window_view,
):
    view_function(_theirs)


# --------------------------------------------------------------------------- questions of metadata

QUESTIONS = (
    "can_cast common_type diag_indices_from iscomplexobj isfortran isrealobj iterable "
    "ndim result_type shape size tril_indices_from triu_indices_from"
).split()


def _shown(value: Any) -> Any:
    """An array or scalar with an argument's shape and dtype; its elements must not be read."""
    kind = type(value)
    if kind is ndarray:
        return geometry(value)
    return dtype_of(value).type() if kind is scalar else to_numpy(value)


def inquiry(theirs: Any) -> None:
    """Register the lazyfuse version of a function that reads no elements."""
    name = theirs.__name__

    @implements(theirs, "arrays")
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(type(x) is ndarray or type(x) is scalar for x in (*args, *kwargs.values())):
            return fallback.run(theirs, name, args, kwargs)
        named = {key: _shown(value) for key, value in kwargs.items()}
        return from_numpy(theirs(*[_shown(value) for value in args], **named))


@implements(np.isscalar)
def isscalar(element: Any) -> Any:
    """As `numpy.isscalar`."""
    kind = type(element)
    return kind is scalar or (kind is not ndarray and np.isscalar(element))


for _name in QUESTIONS:
    inquiry(getattr(np, _name))
