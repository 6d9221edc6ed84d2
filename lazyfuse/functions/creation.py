"""As NumPy's array creation: `array`, `asarray`, `zeros`, `full`, `arange`, `eye` and so on.

Large constant arrays are recorded; conversions of other objects run at once. `asarray` shares the
memory of NumPy arrays as NumPy would. All other creation functions run NumPy's and wrap the result.
In addition they have `device=` for every device that can hold arrays (array API).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from lazyfuse import config
from lazyfuse.arrays.conversion import to_numpy
from lazyfuse.arrays.eager_policy import creation
from lazyfuse.arrays.instance_checks import with_base
from lazyfuse.arrays.ndarray import (
    alone,
    full_node,
    geometry,
    ndarray,
    node_of,
    scalar_node,
    wrap,
    wrap_shared,
)
from lazyfuse.arrays.operators import PLAIN, shape_of
from lazyfuse.arrays.scalars import scalar
from lazyfuse.arrays.storage import CANONICAL
from lazyfuse.codegen.graph.node import Node
from lazyfuse.interop import chunked_api, device_api, fallback, overrides
from lazyfuse.registry import implements
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.layout.meta_arrays import Array, byte_strides, packed_order
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import stand_ins
from lazyfuse.runtime.scheduling.eager_rules import MIDDLING
from lazyfuse.runtime.scheduling.evaluate import note_recorded

F = TypeVar("F", bound=Callable[..., Any])

_NoValue = np._NoValue
POOLED = 1 << 18  # bytes from which a look into the pool is cheaper than new memory
_SCANNED = 256  # NumPy converts longer lists itself, and asks each lazyfuse array for its memory


def _plain_object(value: Any, dtype: Any) -> Any:
    """A list for NumPy, with NumPy arrays instead of lazyfuse arrays.

    An array of objects keeps the lazyfuse arrays, but no lazy scalars.
    """
    kind = type(value)
    if (kind is list or kind is tuple) and len(value) <= _SCANNED:
        if PLAIN.issuperset(map(type, value)):
            return value
        try:
            keeps = dtype is not None and np.dtype(dtype).hasobject
            return _real_items(value, scalar if keeps else ndarray)
        except RecursionError:  # a list that contains itself: NumPy handles it
            return value
    return value


def _real_items(value: Any, kind: type) -> Any:
    """Nested lists with NumPy values instead of lazy scalars; arrays too if `kind` is `ndarray`.

    Other objects are elements of the new array and stay unchanged.
    """
    own = type(value)
    if own is list or own is tuple:
        items = [_real_items(x, kind) for x in value]
        if all(new is old for new, old in zip(items, value, strict=False)):
            return value  # the list may itself be an element
        return items if own is list else tuple(items)
    return to_numpy(value) if own is scalar or own is kind else value


def _finish(value: Any, source: Any) -> Any:
    """NumPy's conversion of `source` as a lazyfuse array: shared if other code has its memory."""
    if type(value) is not np.ndarray:
        return value
    if value is source:
        return wrap_shared(value)
    return wrap(value) if value.base is None else with_base(wrap_shared(value), value.base)


def _foreign(like: Any) -> dict[str, Any]:
    """The keyword `like` for NumPy, unless it is a lazyfuse array or scalar."""
    return {} if like is None or type(like) in (ndarray, scalar) else {"like": like}


def _overrides(like: Any) -> bool:
    """Whether the class of `like` overrides array creation (NEP 35)."""
    return like is not None and overrides.of_functions(type(like))


@implements(np.array)
def array(
    object: Any,  # NumPy's name
    dtype: Any = None,
    *,
    copy: Any = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: Any = _NoValue,
    like: Any = None,
) -> Any:
    """As `numpy.array`."""
    usual = copy is True and order == "K" and not ndmin and like is None and not subok
    if usual and type(object) is list and ndmax is _NoValue and len(object) <= _SCANNED:
        return wrap(fallback.call(np.array, [_plain_object(object, dtype), dtype], {}))
    if _overrides(like):
        named = {"copy": copy, "order": order, "subok": subok, "ndmin": ndmin, "like": like}
        return overrides.call_function(np.array, (object, dtype), named)
    kind = type(object)
    lazy = (kind is ndarray and object._eager is None) or kind is scalar
    if lazy and copy in (True, None) and ndmax is _NoValue and like is None:
        return _converted(object, dtype, order, bool(copy), ndmin)
    named = {"copy": copy, "order": order, "subok": subok, "ndmin": ndmin, **_foreign(like)}
    if ndmax is not _NoValue:
        named["ndmax"] = ndmax
    if kind is ndarray or kind is scalar:
        return fallback.run(np.array, "array", (object, dtype), named)
    return _finish(fallback.call(np.array, [_plain_object(object, dtype), dtype], named), object)


def _converted(x: Any, dtype: Any, order: Any, copy: bool, ndmin: int) -> Any:
    if type(x) is scalar:
        if dtype is not None and np.dtype(dtype) not in CANONICAL:
            return wrap(np.array(to_numpy(x), dtype, copy=copy, order=order, ndmin=ndmin))
        x = alone(node_of(x))
    result = x
    if copy or dtype is not None or order not in (None, "K"):
        result = x.astype(x.dtype if dtype is None else dtype, order=order or "K", copy=copy)
    if ndmin > result.ndim:
        return result.reshape((1,) * (ndmin - result.ndim) + result.shape)
    return result


_STORED = ("h5py", "zarr")
"""Packages whose arrays lie in files: those larger than `chunk_memory` are read in chunks."""


def _conversion(theirs: Any) -> Callable[..., Any]:
    """`asarray` or `asanyarray`: it returns an array of ours itself, and shares NumPy's memory."""

    @implements(theirs)
    def convert(
        a: Any,
        dtype: Any = None,
        order: Any = None,
        *,
        device: Any = None,
        copy: Any = None,
        like: Any = None,
    ) -> Any:
        kind = type(a)
        as_it_is = dtype is None and order is None and not copy
        if kind is ndarray and as_it_is and device is None:
            return a
        if device is not None and device_api.is_elsewhere(device):
            return device_api.placed(convert, device, a, dtype, order, copy=copy, like=like)
        is_stored = as_it_is and like is None and kind.__module__.partition(".")[0] in _STORED
        if is_stored and getattr(a, "nbytes", 0) > config.options.chunk_memory:
            return chunked_api.from_chunks(a)
        named = {"device": device, "copy": copy}
        if _overrides(like):
            return overrides.call_function(theirs, (a, dtype, order), {**named, "like": like})
        named.update(_foreign(like))
        if kind is ndarray or kind is scalar:
            if getattr(a, "_eager", None) is None and copy is not False and device in (None, "cpu"):
                return _converted(a, dtype, order, bool(copy), 0)
            return fallback.run(theirs, "asarray", (a, dtype, order), named)
        return _finish(fallback.call(theirs, [_plain_object(a, dtype), dtype, order], named), a)

    return convert


asarray = _conversion(np.asarray)
asanyarray = _conversion(np.asanyarray)


@implements(np.ascontiguousarray)
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """As `numpy.ascontiguousarray`."""
    if _overrides(like):
        return overrides.call_function(np.ascontiguousarray, (a, dtype), {"like": like})
    return _at_least_1d(asarray(a, dtype, "C", like=like))


@implements(np.asfortranarray)
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """As `numpy.asfortranarray`."""
    if _overrides(like):
        return overrides.call_function(np.asfortranarray, (a, dtype), {"like": like})
    return _at_least_1d(asarray(a, dtype, "F", like=like))


def _at_least_1d(x: Any) -> Any:
    is_bare = type(x) is ndarray and not shape_of(x)
    return x.reshape(1) if is_bare else x


@implements(np.copy)
def copy(a: Any, order: Any = "K", subok: bool = False) -> Any:
    """As `numpy.copy`."""
    if overrides.of_functions(type(a)):
        return overrides.call_function(np.copy, (a, order, subok), {})
    return array(a, order=order, subok=subok, copy=True)


# --------------------------------------------------------------- constant arrays


def _recorded(model: Any, value: Node) -> Any:
    """A recorded constant array, with the shape and memory order of the empty array `model`."""
    dtype = CANONICAL[model.dtype]
    perm = packed_order(model)[1]
    if perm is None and not _has_c_strides(model):
        perm = tuple(reversed(range(model.ndim)))
    node = full_node(value, model.shape, dtype, perm)
    note_recorded(node)
    return alone(node)


def _has_c_strides(model: Array) -> bool:
    """Whether a packed array has the strides of C order.

    With an axis of length 1 both orders can be the same; NumPy gives the strides of the requested
    one.
    """
    return model.strides == byte_strides(model.shape, None, model.itemsize)


def _filled(model: Any, number: Any) -> Any:
    """The empty array `model`, filled with a number that every dtype can hold."""
    if not creation(model):
        return _recorded(model, scalar_node(number, CANONICAL[model.dtype]))
    np.copyto(model, number, casting="unsafe")
    return wrap(model)


def _creates(theirs: Any, eager: str = "", by: str = "like") -> Callable[[F], F]:
    """Decorator: the function below makes what NumPy's `theirs` makes, on the host.

    A device that `device=` names gets what it makes; a class that overrides the function gets the
    call. `by` is the argument that is asked whether it does: `like`, or the first one.
    """

    def register(ours: F) -> F:
        ours.__qualname__ = theirs.__name__  # in the texts of errors

        @implements(theirs, eager=eager)
        def create(*args: Any, **kwargs: Any) -> Any:
            if _overrides(args[0] if args and by != "like" else kwargs.get(by)):
                return overrides.call_function(theirs, args, kwargs)
            device = kwargs.get("device")
            if device is not None and device_api.is_elsewhere(device):
                del kwargs["device"]
                return device_api.placed(create, device, *args, **kwargs)
            return ours(*args, **kwargs)

        return create  # type: ignore[return-value]

    return register


def _shaped(shape: Any, dtype: Any, order: Any, device: Any, like: Any) -> Array:
    """The uninitialised array of these arguments."""
    return np.empty(to_numpy(shape), dtype, order, device=device, **_foreign(like))


@_creates(np.empty, "created")
def empty(
    shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None
) -> Any:
    """As `numpy.empty`."""
    return _unwritten(_shaped(shape, dtype, order, device, like))


def _unwritten(found: Array) -> Any:
    """An uninitialised array; if it is large, in pooled memory, whose pages already exist."""
    if creation(found) or not found.flags.c_contiguous:
        return wrap(found)
    if not _has_c_strides(found):
        return _filled(found, 0)
    if found.size <= MIDDLING * config.options.eager_below:
        numpy_calls.note_done()  # the next ones are made without a call of Python's
    if found.nbytes < POOLED:
        return wrap(found)
    return wrap(devices.empty(found.shape, found.dtype))


@_creates(np.zeros, "created")
def zeros(
    shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None
) -> Any:
    """As `numpy.zeros`."""
    model = np.zeros(to_numpy(shape), dtype, order, device=device, **_foreign(like))
    return wrap(model) if creation(model) else _filled(model, 0)


@_creates(np.ones, "created")
def ones(
    shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None
) -> Any:
    """As `numpy.ones`."""
    return _filled(_shaped(shape, dtype, order, device, like), 1)


@_creates(np.full, "created")
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Any:
    """As `numpy.full`."""
    if dtype is None:
        fill_value = asarray(fill_value)
        dtype = fill_value.dtype
    return _filled_with(_shaped(shape, dtype, order, device, like), fill_value)


def _filled_with(model: Any, value: Any) -> Any:
    records = not creation(model)
    if records and type(value) in (ndarray, scalar):
        if value.ndim:
            made = _unwritten(model)
            made[...] = value
            return made
        if value.dtype in CANONICAL:
            return _recorded(model, node_of(asarray(value).astype(model.dtype)))
    real = to_numpy(value)
    if records and np.ndim(real) == 0:
        number = np.empty((), model.dtype)
        stand_ins.speak_of(real, model.dtype)
        np.copyto(number, real, casting="unsafe")
        return _recorded(model, scalar_node(number, CANONICAL[model.dtype]))
    np.copyto(model, real, casting="unsafe")
    return wrap(model)


@_creates(np.empty_like, "arrays", "prototype")
def empty_like(
    prototype: Any,
    /,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    """As `numpy.empty_like`."""
    return _unwritten(_model(prototype, dtype, order, subok, shape, device))


def _model(a: Any, dtype: Any, order: Any, subok: bool, shape: Any, device: Any) -> Any:
    """An empty array as NumPy's `*_like` functions would make it, without evaluation."""
    if type(a) is ndarray:
        a = geometry(a)
    return np.empty_like(to_numpy(a), dtype, order, subok, to_numpy(shape), device=device)


def _alike(theirs: Any, number: Callable[[Any], Any]) -> Callable[..., Any]:
    """`zeros_like` or `ones_like`; `number` of the dtype is what the array is full of."""

    @_creates(theirs, "arrays", "a")
    def create(
        a: Any,
        dtype: Any = None,
        order: Any = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
    ) -> Any:
        model = _model(a, dtype, order, subok, shape, device)
        return _filled(model, number(model.dtype))

    return create


zeros_like = _alike(np.zeros_like, lambda dtype: np.zeros(1, dtype)[0])
ones_like = _alike(np.ones_like, lambda dtype: 1)


@_creates(np.full_like, "arrays", "a")
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    """As `numpy.full_like`."""
    return _filled_with(_model(a, dtype, order, subok, shape, device), fill_value)


# ------------------------------------------------------------------------------------------ ranges


def _in_chunks_too(theirs: Any) -> None:
    """Register NumPy's function, which makes arrays in chunks where the user has chosen them."""
    name = theirs.__name__

    @_creates(theirs)
    def create(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is None and device_api.selects_chunks():
            found = chunked_api.created(name, args, kwargs)
            if found is not None:
                return found
        return fallback.run(theirs, name, args, kwargs)


for _theirs in (np.arange, np.eye, np.linspace):
    _in_chunks_too(_theirs)


@implements(np.from_dlpack)
def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Any:
    """As `numpy.from_dlpack`; a lazyfuse array stays on its device unless the user names one."""
    if device is None and type(x) is ndarray and device_api.place_of(x) != device_api.HOST:
        device = device_api.place_of(x)
    if device is not None and device_api.is_elsewhere(device):
        return device_api.placed(from_dlpack, device, x, device=device_api.HOST, copy=copy)
    return fallback.run(np.from_dlpack, "from_dlpack", (x,), {"device": device, "copy": copy})


@_creates(np.astype)
def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    """As `numpy.astype`; recorded arrays use their own method."""
    if type(x) is ndarray and x._eager is None and device in (None, device_api.HOST):
        return x.astype(dtype, copy=copy)  # type: ignore[attr-defined]
    return fallback.run(np.astype, "astype", (x, dtype), {"copy": copy, "device": device})
