"""The methods of arrays: views, copies, conversions, and the sinks that Python itself calls.

Owns the methods of `numpy.ndarray` that record nothing; modules above install the others (`sum`,
`sort`, ...) with `install`. Importing this module installs the methods.
"""

from __future__ import annotations

import contextlib
import copy as copying
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import getweakrefcount, ref

import numpy as np

from lazyfuse.arrays import base, conversion, instance_checks
from lazyfuse.arrays.attributes import (
    become,
    check_base,
    materialise_view,
    own_view,
    reform,
)
from lazyfuse.arrays.conversion import EXPORT, base_view, derive, real_operand
from lazyfuse.arrays.ndarray import (
    CANONICAL,
    OURS,
    alone,
    caller,
    changing,
    direct,
    export,
    gather,
    geometry,
    materialise,
    ndarray,
    node_of,
    root_of,
    wrap,
    writable,
)
from lazyfuse.arrays.nodes import lies_in_numpys_memory
from lazyfuse.arrays.operators import dtype_of, shape_of
from lazyfuse.arrays.recording import may_record
from lazyfuse.arrays.storage import EXPORTED, is_evaluated
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.runtime.layout.meta_arrays import Array, Perm, keep_order, meta_array, packed_order
from lazyfuse.runtime.scheduling import evaluate, stand_ins

Method = Callable[..., Any]

# --------------------------------------------------------------------------------------- views


def transpose(self: ndarray, /, *axes: Any) -> Any:
    """As `numpy.ndarray.transpose`."""
    return derive(self, base_view(self).transpose(*conversion.to_numpy(axes)))


def swapaxes(self: ndarray, /, axis1: Any, axis2: Any) -> Any:
    """As `numpy.ndarray.swapaxes`."""
    return derive(self, base_view(self).swapaxes(axis1, axis2))


def squeeze(self: ndarray, /, axis: Any = None) -> Any:
    """As `numpy.ndarray.squeeze`."""
    view = base_view(self)
    found = view.squeeze(axis)
    return self if found is view else derive(self, found)  # NumPy returns the array itself, too


def diagonal(self: ndarray, /, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
    """As `numpy.ndarray.diagonal`."""
    return derive(self, base_view(self).diagonal(offset, axis1, axis2))


def reshape(self: ndarray, /, *shape: Any, order: Any = "C", copy: Any = None) -> Any:
    """As `numpy.ndarray.reshape`."""
    small = self._eager
    if small is not None:
        shape = conversion.to_numpy(shape)
        return _viewed(self, small, small.reshape(*shape, order=order, copy=copy))
    shape = conversion.to_numpy(shape)
    plain = meta_array(shape_of(self), np.dtype(np.bool_), None)
    target = plain.reshape(*shape, order="C" if order == "A" else order).shape
    if order == "A":
        view = geometry(self)
        order = "F" if view.flags.f_contiguous and not view.flags.c_contiguous else "C"
    if copy is not True:
        try:
            return derive(self, base_view(self).reshape(target, order=order, copy=False))
        except ValueError:
            if copy is False:
                raise
    rank = len(shape_of(self))
    perm = tuple(reversed(range(rank))) if order == "F" and rank > 1 else None
    fresh = alone(_copied(self, perm))
    return derive(fresh, base_view(fresh).reshape(target, order=order, copy=False))


def _viewed(self: ndarray, /, small: Array, result: Array) -> Any:
    """NumPy's result for an eager array, as ours: a view of it, or a new array."""
    if result.base is not None and (result.base is small or result.base is small.base):
        return direct(result, root_of(self))
    return wrap(result)


def _copied(self: ndarray, /, perm: Perm) -> Node:
    """The values of `self` as a node in memory order `perm` whose memory may be overwritten."""
    node = node_of(self)
    if node.perm == perm and not lies_in_numpys_memory(node):
        return node
    op = ops.TABLE["copy"]
    loop = promotion.resolve(op, (node.dtype,))
    return Node(op, (node,), loop, node.shape, node.dtype, perm, caller())


def ravel(self: ndarray, /, order: Any = "C") -> Any:
    """As `numpy.ndarray.ravel`."""
    small = materialise(self)
    if small is not None:
        return _viewed(self, small, small.ravel(order))
    view = base_view(self)
    perm = _ordered(self, order)
    flags = view.flags
    if packed_order(view)[0] and (
        order in ("K", "k", None) or (flags.c_contiguous if perm is None else flags.f_contiguous)
    ):
        turned = self if perm is None else derive(self, view.transpose(perm))
        return reshape(turned, -1)
    fresh = alone(_copied(self, perm))
    flat = base_view(fresh) if perm is None else base_view(fresh).transpose(perm)
    result = derive(fresh, flat.reshape(-1))
    result._base = None  # no other array refers to the copy
    return result


def flatten(self: ndarray, /, order: Any = "C") -> Any:
    """As `numpy.ndarray.flatten`."""
    small = materialise(self)
    if small is not None:
        return wrap(small.flatten(order))
    return ravel(self, order).copy()


def view(self: ndarray, /, *args: Any, **kwargs: Any) -> Any:
    """As `numpy.ndarray.view`."""
    if not args and not kwargs:
        return derive(self, base_view(self).view())
    kind = kwargs.pop("type", None)
    dtype = kwargs.pop("dtype", args[0] if args else None)
    if len(args) > 1:
        kind = args[1]
    if isinstance(dtype, type) and (dtype is ndarray or issubclass(dtype, np.ndarray)):
        kind, dtype = dtype, None
    if kwargs:
        np.empty(1).view(**kwargs)  # raises
    result = self if dtype is None else _view_dtype(self, np.dtype(dtype))
    if kind is None:
        return result if dtype is not None else view(self)
    if kind is ndarray:
        return view(result)
    return instance_checks.own(export(result), result).view(kind)


def _view_dtype(self: ndarray, /, dtype: Any) -> Any:
    if dtype == dtype_of(self) and dtype in CANONICAL:
        return view(self)
    real = materialise(self)
    if real is None:
        # NumPy refuses it before the storage becomes always eager
        base_view(self).view(dtype)
        real = materialise_view(self)
    return direct(real.view(dtype), root_of(self))


def getfield(self: ndarray, /, dtype: Any, offset: Any = 0) -> Any:
    """As `numpy.ndarray.getfield`."""
    return direct(materialise_view(self).getfield(dtype, offset), root_of(self))


def setfield(self: ndarray, /, val: Any, dtype: Any, offset: Any = 0) -> None:
    """As `numpy.ndarray.setfield`."""
    materialise_view(self).setfield(real_operand(val), dtype, offset)


# -------------------------------------------------------------------------------------- copies


def copy(self: ndarray, /, order: Any = "C") -> Any:
    """As `numpy.ndarray.copy`."""
    small = materialise(self)
    if small is not None:
        return wrap(small.copy(order))
    return alone(_noted(_copied(self, _ordered(self, order))))


def _noted(node: Node) -> Node:
    evaluate.note_recorded(node)
    return node


def _ordered(self: ndarray, order: Any) -> Perm:
    """The memory order of a copy of `self`, by NumPy's letter for it."""
    letter = "K" if order is None else order if order in ("C", "F", "A", "K") else _letter(order)
    rank = len(shape_of(self))
    if rank < 2 or letter == "C":
        return None
    if letter == "F":
        return tuple(reversed(range(rank)))
    own = geometry(self)
    if letter == "K":
        return keep_order(own)
    return tuple(reversed(range(rank))) if own.flags.fnc else None


def _letter(order: Any) -> str:
    """How NumPy reads an unusual spelling of an order."""
    np.empty(1).copy(order)  # raises
    return "CFAK"[order + 0] if isinstance(order, int) else str(order).upper()[0]


def astype(
    self: ndarray,
    /,
    dtype: Any,
    order: Any = "K",
    casting: Any = "unsafe",
    subok: Any = True,
    copy: Any = True,
) -> Any:
    """As `numpy.ndarray.astype`."""
    small = materialise(self)
    if small is not None:
        result = small.astype(dtype, order, casting, subok, copy)
        return self if result is small else wrap(result)
    target = np.dtype(dtype)
    source = dtype_of(self)
    if isinstance(copy, np._CopyMode):
        np.empty(0).astype(target, copy=copy)  # raises
    if target not in CANONICAL or casting == "same_value":  # the latter depends on the values
        return wrap(gather(self).astype(dtype, order, casting, subok, copy))
    if casting != "unsafe" or (source.kind == "c" and target.kind != "c"):
        some = np.ones((1,) * min(1, len(shape_of(self))), source)
        stand_ins.speak()
        some.astype(target, casting=casting)  # raises or warns
    if target != source and not may_record():
        return wrap(gather(self).astype(dtype, order, casting, subok, copy))
    target = CANONICAL[target]
    perm = _ordered(self, order)
    if target == source:
        if not copy and _is_in_order(self, order):
            return self
        return alone(_noted(_copied(self, perm)))
    node = node_of(self)
    loop = promotion.cast_loop(node.dtype, target)
    cast = Node(ops.TABLE["cast"], (node,), loop, node.shape, target, perm, caller())
    return alone(_noted(cast))


def _is_in_order(self: ndarray, /, order: Any) -> bool:
    """Whether NumPy would return the array itself for this memory order."""
    letter = str(order).upper()[:1] if order is not None else "K"
    flags = geometry(self).flags
    known = {"K": True, "A": flags.forc, "C": flags.c_contiguous, "F": flags.f_contiguous}
    return bool(known.get(letter, False))


def byteswap(self: ndarray, /, inplace: Any = False) -> Any:
    """As `numpy.ndarray.byteswap`."""
    if inplace:
        with changing(self):
            writable(self).byteswap(True)
        return self
    return wrap(gather(self).byteswap())


def resize(self: ndarray, /, *shape: Any, refcheck: Any = True, **wrong: Any) -> None:
    """As `numpy.ndarray.resize`."""
    np.empty(0).resize(0, refcheck=refcheck, **wrong)  # raises
    watched = getweakrefcount(self) - sum(ref() is self for ref in EXPORTED.valuerefs())
    # the arguments of `ndarray.resize(x, shape)` refer to it once more (namespace/subclasses.py)
    unbound = str(sys._getframe(1).f_globals.get("__name__")).endswith("namespace.subclasses")
    held = references.of(self) > references.in_method + unbound or _is_exported(self)
    shape = conversion.to_numpy(shape)

    def refit(value: Any) -> None:
        value[...].resize(*shape)  # a view: as many elements as before, or it raises
        value.resize(*shape)

    try:
        reform(self, refit)
    except ValueError:
        if self.base is not None:  # type: ignore[attr-defined]
            raise
    else:
        return
    value = gather(self).copy("K")  # referred to as `self` is, for NumPy to judge
    others = [value] * 3 if held else []
    watcher = ref(value) if watched else None
    value.resize(*shape, refcheck=bool(refcheck and others))
    del others, watcher
    become(self, wrap(value))


def _is_exported(self: ndarray) -> bool:
    """Whether a numpy array or a buffer is a view of the memory."""
    if self._eager is not None:
        return references.of(self._eager) > 1
    return self._storage is not None and self._storage.shared()


def fill(self: ndarray, /, value: Any) -> None:
    """As `numpy.ndarray.fill`."""
    value = real_operand(value)
    small = materialise(self)
    if small is not None:
        small.fill(value)
    else:
        one = np.empty((), dtype_of(self))
        one.flags.writeable = geometry(self).flags.writeable
        stand_ins.speak()
        one.fill(value)  # raises or warns; a list is one value: of booleans its truth
        self[...] = one[()]


def setflags(self: ndarray, /, write: Any = None, align: Any = None, uic: Any = None) -> None:
    """As `numpy.ndarray.setflags`."""
    view = own_view(self)
    if write and not view.flags.writeable:
        check_base(self)
    set_flags: Callable[..., None] = view.setflags
    set_flags(write, align, uic)


def __deepcopy__(self: ndarray, /, memo: Any) -> Any:
    small = materialise(self)
    if small is not None and small.dtype.hasobject:
        return direct(copying.deepcopy(small, memo))
    return copy(self, "K")


def __copy__(self: ndarray, /) -> Any:
    return copy(self, "K")


# ------------------------------------------------------------------------------------- Python


def __len__(self: ndarray, /) -> int:
    small = self._eager
    if small is not None:
        return len(small)
    shape = shape_of(self)
    if not shape:
        raise TypeError("len() of unsized object")
    return shape[0]


def _converter(function: Callable[[Any], Any], many: bool) -> Method:
    def convert(self: ndarray, /) -> Any:
        small = self._eager
        if small is None:
            size = geometry(self).size
            if size > 1 or (size == 0 and many):
                return function(np.empty(size if size < 2 else 2, dtype_of(self)))  # raises
            small = gather(self)
        return function(small)

    return convert


def __iter__(self: ndarray, /) -> Iterator[Any]:
    small = materialise(self)
    shape = shape_of(self)
    if not shape:
        raise TypeError("iteration over a 0-d array")
    if small is not None and len(shape) == 1:
        return iter(small)
    if base.COMPILED:
        there = small is not None or _is_there(self)
        return _items(self) if there else _items_of_pending(self)
    return _rows(self, shape[0])


def _items(self: ndarray) -> Iterator[Any]:
    items: Iterator[Any] = base.NATIVE.items(self)
    return items


def _items_of_pending(self: ndarray) -> Iterator[Any]:
    gather(self)  # when the first is asked for
    yield from _items(self)


def _is_there(self: ndarray) -> bool:
    """Whether an array has values, of which its rows are views."""
    storage = self._storage
    node = self._node if storage is None else storage.node
    return node is not None and is_evaluated(node)


def _rows(self: ndarray, /, count: int) -> Iterator[Any]:
    if not _is_there(self):
        gather(self)
    for index in range(count):
        yield self[index]


def to_numpy(self: ndarray, /) -> Array:
    """The values as a `numpy.ndarray`, evaluated. Shares memory with the array, as a view does."""
    return export(self)


def __contains__(self: ndarray, /, item: Any) -> bool:
    equal: Any = self == item
    return bool(real_operand(equal.any()))


def __repr__(self: ndarray, /) -> str:
    return repr(gather(self))


def __str__(self: ndarray, /) -> str:
    return str(gather(self))


def __format__(self: ndarray, /, spec: str) -> str:
    return format(gather(self), spec)


def __sizeof__(self: ndarray, /) -> int:
    own = self._base is None and (self._eager is None or self._eager.base is None)
    view = geometry(self)
    return object.__sizeof__(self) + 16 * view.ndim + (view.nbytes if own else 0)


def __delitem__(self: ndarray, /, key: Any) -> None:
    real: Any = np.empty(1, float)  # without a dtype NumPy leaks a reference
    del real[key]  # raises


# -------------------------------------------------------------------------------- computations


def _delegate(name: str) -> Method:
    """The method in NumPy, at once, on evaluated arrays."""
    theirs = getattr(np.ndarray, name)

    def method(self: ndarray, /, *args: Any, **kwargs: Any) -> Any:
        real = gather(self)
        out = kwargs.get("out")
        named = {key: conversion.to_numpy(value) for key, value in kwargs.items() if key != "out"}
        if out is not None and type(out) in OURS:
            with changing(out):
                theirs(real, *conversion.to_numpy(args), out=writable(out), **named)
            return out
        if out is not None:
            named["out"] = out
        result = theirs(real, *conversion.to_numpy(args), **named)
        if type(result) is tuple:
            return tuple([wrap(each) for each in result])
        return _viewed(self, real, result) if type(result) is np.ndarray else result

    return method


def _written(name: str) -> Method:
    """A method that changes the array itself."""
    theirs = getattr(np.ndarray, name)

    def method(self: ndarray, /, *args: Any, **kwargs: Any) -> Any:
        args = conversion.to_numpy(args)
        named = {key: conversion.to_numpy(value) for key, value in kwargs.items()}
        with changing(self):
            return theirs(writable(self), *args, **named)

    return method


COMPUTED = "argpartition choose dump dumps item take tobytes tofile tolist trace".split()

WRITTEN = ("partition", "put")

_VIEWS = (transpose, swapaxes, squeeze, diagonal, reshape, ravel, flatten, view, getfield, setfield)
_COPIES = (copy, astype, byteswap, resize, fill, setflags, __deepcopy__, __copy__)
_PYTHON = (__len__, __iter__, __contains__, __repr__, __str__, __format__, __delitem__, __sizeof__)


_OF_CORE = ("__len__", "__iter__", "__delitem__", "to_numpy")
"""Methods that `Core` has in C; it calls ours where its eager path does not apply."""


def install(functions: Mapping[str, Method]) -> None:
    """Make functions, whose first parameter is the array, its methods under these names."""
    for name, function in functions.items():
        theirs = getattr(np.ndarray, name, None)
        with contextlib.suppress(AttributeError):  # builtins keep their own
            _named(name, function)
            function.__doc__ = getattr(theirs, "__doc__", None) or function.__doc__
        if not (base.COMPILED and name in _OF_CORE):
            setattr(ndarray, name, function)


def _named(name: str, function: Method) -> Method:
    function.__name__ = name
    function.__qualname__ = f"ndarray.{name}"
    return function


def _make(cls: type, *args: Any, **kwargs: Any) -> Any:
    """As `numpy.ndarray(shape, dtype, buffer, offset, strides, order)`."""
    args, kwargs = conversion.to_numpy(args, EXPORT), conversion.to_numpy(kwargs, EXPORT)
    kind = np.ndarray if cls is ndarray else cls  # a class that was derived from either
    value: Any = np.ndarray.__new__(kind, *args, **kwargs)
    return conversion.wrap_maybe_shared(value) if kind is np.ndarray else value


def _install() -> None:
    install({name: _delegate(name) for name in COMPUTED})
    install({name: _written(name) for name in WRITTEN})
    install({each.__name__: each for each in (*_VIEWS, *_COPIES, *_PYTHON, to_numpy)})
    install(
        {
            "__bool__": _converter(bool, False),
            "__int__": _converter(int, True),
            "__float__": _converter(float, True),
            "__complex__": _converter(complex, True),
            "__index__": _converter(operator.index, True),
        }
    )
    ndarray.__new__ = _named("__new__", _make)  # type: ignore[method-assign]
    ndarray.__init__ = lambda self, *args, **kwargs: None  # type: ignore[method-assign]
    ndarray.__class_getitem__ = classmethod(types.GenericAlias)  # type: ignore[attr-defined]


_install()
