"""The attributes of arrays: geometry without evaluation, memory with it.

Owns the properties of `ndarray`, `Flags` and `flatiter`. Importing this module installs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.base import COMPILED, NATIVE
from lazyfuse.arrays.conversion import base_view, derive, real_operand
from lazyfuse.arrays.ndarray import (
    changing,
    direct,
    export,
    gather,
    geometry,
    materialise,
    ndarray,
    pin,
    root_of,
    storage_of,
    wrap,
    wrap_shared,
    writable,
)
from lazyfuse.arrays.operators import dtype_of, shape_of
from lazyfuse.codegen.graph import references
from lazyfuse.runtime.layout.meta_arrays import Array
from lazyfuse.versions import ASSIGNS_PARTS


def materialise_view(self: ndarray) -> Array:
    """The NumPy array of `self`, on which everything runs at once from now on."""
    small = materialise(self)
    if small is not None:
        return small
    storage = storage_of(self)
    if storage is not None:
        pin(storage)
    value = materialise(self)
    assert value is not None
    return value


def become(self: ndarray, other: ndarray) -> None:
    """Move the state of `other` to `self`; only the caller refers to `other`."""
    self._selection = None
    self._eager = other._eager
    self._node = other._node
    self._storage = other._storage
    self._base = other._base
    if other._eager is not None:
        self._may_grow = other._may_grow
    elif other._storage is not None:
        self._view, self._layout, self._reals = other._view, other._layout, None


def own_view(self: ndarray) -> Array:
    """The numpy array whose flags are those of `self`."""
    base_view(self)
    small = self._eager
    if small is not None:
        return small
    self._reals = None  # the kept NumPy array has the old flags
    return self._view


def check_base(self: ndarray) -> None:
    """Refuse, as NumPy does, to make an array writeable whose memory is not."""
    storage = self._storage
    if storage is None:
        return  # NumPy checks it itself
    flat = storage.memory()
    base = self._base
    if (flat is not None and not flat.flags.writeable) or (
        base is not None and not own_view(base).flags.writeable
    ):
        raise ValueError("cannot set WRITEABLE flag to True of this array")


class Flags:
    """As `numpy.ndarray.flags`, for an array that is not eager."""

    __slots__ = ("_array",)

    def __init__(self, owner: ndarray) -> None:
        object.__setattr__(self, "_array", owner)

    def _real(self) -> Any:
        return geometry(self._array).flags

    def __getattr__(self, name: str) -> Any:
        if name == "owndata":
            return _get_base(self._array) is None
        return getattr(self._real(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        view = own_view(self._array)
        if name == "writeable" and value and not view.flags.writeable:
            check_base(self._array)
        setattr(view.flags, name, value)

    def __getitem__(self, name: str) -> Any:
        return self.owndata if name in ("OWNDATA", "O") else self._real()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        names = {"WRITEABLE": "writeable", "W": "writeable", "ALIGNED": "aligned", "A": "aligned"}
        if name not in names:
            flags: Any = np.empty(1).flags
            flags[name] = value  # raises
        setattr(self, names[name], value)

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        text = repr(self._real())
        return text.replace("OWNDATA : False", "OWNDATA : True") if self.owndata else text


class flatiter:  # noqa: N801  # NumPy's spelling
    """As `numpy.flatiter`: the elements of an array in C order, for reading and writing."""

    __slots__ = ("_array", "_at")

    def __init__(self, owner: ndarray) -> None:
        self._array = owner
        self._at = 0

    @property
    def base(self) -> ndarray:
        """The array that is iterated over."""
        return self._array

    @property
    def index(self) -> int:
        """The flat index of the next element."""
        return self._at

    @property
    def coords(self) -> tuple[int, ...]:
        """The index of the next element."""
        shape = shape_of(self._array)
        size = int(np.prod(shape, dtype=np.intp))
        if self._at < size:
            return tuple(int(i) for i in np.unravel_index(self._at, shape))
        return (shape[0], *[0] * (len(shape) - 1)) if shape else ()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        real = gather(self._array)
        if self._at >= real.size:
            raise StopIteration
        self._at += 1
        return real.flat[self._at - 1]

    def __len__(self) -> int:
        return geometry(self._array).size

    def __getitem__(self, key: Any) -> Any:
        return wrap(gather(self._array).flat[real_operand(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        with changing(self._array):
            # before `real_operand`: a value that views this memory must view the written block
            real = writable(self._array)
            real.flat[real_operand(key)] = real_operand(value)

    def __delitem__(self, key: Any) -> None:
        raise TypeError("Cannot delete iterator elements")

    def __array__(self, dtype: Any = None, /, *, copy: Any = None) -> Array:
        flat = export(self._array).flat.__array__()
        return flat if dtype is None else flat.astype(dtype)

    def copy(self, /) -> Any:
        """A flat copy of the array."""
        return self._array.flatten()  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]


def document(ours: type, theirs: type) -> None:
    """Give the attributes and methods of our class the documentation of NumPy's class."""
    for name, found in list(vars(ours).items()):
        if name.startswith("_") or not hasattr(theirs, name):
            continue
        text = getattr(theirs, name).__doc__
        if isinstance(found, property):
            setattr(ours, name, property(found.fget, found.fset, found.fdel, text))
        else:
            found.__doc__ = text


def _compared(name: str) -> Callable[..., Any]:
    return lambda self, other: getattr(self.copy(), name)(other)


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(flatiter, _name, _compared(_name))
document(flatiter, np.flatiter)

# ------------------------------------------------------------------------------------ geometry


def _set_shape(self: ndarray, shape: Any) -> None:
    shape = real_operand(shape)
    reform(self, lambda view: setattr(view, "shape", shape))


def reform(self: ndarray, change: Callable[[Any], object]) -> None:
    """Give an array the shape that `change` gives to a numpy array, in the same memory."""
    base_view(self)
    if self._eager is not None and references.of(self._eager) == 1:
        change(self._eager)
        _set_view(self, self._eager)
    else:
        view = geometry(self)[...]
        change(view)
        _set_view(self, view)


def _set_shape_unwarned(self: ndarray, shape: Any) -> None:
    """Set the shape without the deprecation warning, as NumPy's own code does."""
    shape = real_operand(shape)
    reform(self, lambda view: view._set_shape(shape))


def _reread(self: ndarray, change: Callable[[Any], object]) -> None:
    """Give an array the dtype or strides that `change` gives to a view of its memory."""
    view = materialise_view(self)[...]
    change(view)
    _set_view(self, view)


def _set_dtype_unwarned(self: ndarray, dtype: Any) -> None:
    """Set the dtype without the deprecation warning."""
    _reread(self, lambda view: view._set_dtype(dtype))


def _set_view(self: ndarray, view: Array) -> None:
    if self._eager is not None:
        self._eager = view
        self._may_grow = array.may_grow(view)
    else:
        self._view = view
        self._layout = self._reals = None


def _set_dtype(self: ndarray, dtype: Any) -> None:
    _reread(self, lambda view: setattr(view, "dtype", dtype))


def _get_strides(self: ndarray) -> tuple[int, ...]:
    return geometry(self).strides


def _set_strides(self: ndarray, strides: Any) -> None:
    _reread(self, lambda view: setattr(view, "strides", strides))


def get_real(self: ndarray) -> Any:
    """The real part, a view if NumPy's is one."""
    if dtype_of(self).kind != "c" and dtype_of(self).kind != "O":
        return self
    return _part(self, "real")


def get_imag(self: ndarray) -> Any:
    """The imaginary part, a view if NumPy's is one."""
    return _part(self, "imag")


def _part(self: ndarray, name: str) -> Any:
    view = base_view(self)
    if self._eager is not None:
        part = getattr(view, name)
        return direct(part, root_of(self)) if part.base is not None else wrap(part)
    if view.dtype.kind != "c":  # real numbers: zeros that cannot be written
        zeros = np.zeros(view.shape, view.dtype, "F" if view.flags.fnc else "C")
        zeros.flags.writeable = False
        return wrap_shared(zeros)
    return derive(self, getattr(view, name))


def _set_real(self: ndarray, value: Any) -> None:
    get_real(self)[...] = _as_array(value)


def _set_imag(self: ndarray, value: Any) -> None:
    if dtype_of(self).kind != "c" and dtype_of(self).kind != "O":
        np.empty(1).imag = value  # raises
    if dtype_of(self).kind == "O":
        materialise_view(self).imag = real_operand(value)
    else:
        get_imag(self)[...] = _as_array(value)


def _as_array(value: Any) -> Any:
    """Numbers and lists as arrays, which NumPy converts where it refuses a Python number."""
    if ASSIGNS_PARTS:
        return value
    return value if isinstance(value, ndarray) else np.asarray(real_operand(value))


def _get_base(self: ndarray) -> Any:
    if self._base is not None:
        return self._base
    small = self._eager
    storage = self._storage
    base = None
    if small is not None:
        base = small.base
    elif storage is not None and storage.shared() and storage.exports is not None:
        # memory that other code owns for good: a buffer, a file
        base = next((root.array.base for root in storage.exports if root.own < 0), None)
    return wrap_shared(base) if type(base) is np.ndarray else base


def _set_flat(self: ndarray, value: Any) -> None:
    value = real_operand(value)
    with changing(self):
        real: Any = writable(self)
        real.flat = value


def transposed(self: ndarray) -> Any:
    """The transpose of an array."""
    return derive(self, base_view(self).T)


def _matrix_transposed(self: ndarray) -> Any:
    return derive(self, base_view(self).mT)


class _Pointed(np.ndarray[Any, Any]):
    """The object that `ctypes` pointers keep alive: the NumPy array, and the array of ours."""

    owner: Any = None


def _get_ctypes(self: ndarray) -> Any:
    pointed = export(self).view(_Pointed)
    pointed.owner = self
    return pointed.ctypes


def _get_flat(self: ndarray) -> flatiter:
    if len(shape_of(self)) > 32:
        np.empty((1,) * len(shape_of(self))).flat  # noqa: B018  # raises
    return flatiter(self)


def _removed(name: str, self: ndarray) -> Any:
    return getattr(geometry(self), name)  # raises


def refuse(name: str, self: Any, value: Any) -> None:
    """Raise NumPy's error for an attribute that is only read."""
    raise AttributeError(f"attribute {name!r} of 'numpy.ndarray' objects is not writable")


def _set_data(self: ndarray, value: Any) -> None:
    raise AttributeError(
        "[data] assignment: memory of an array cannot be exchanged; use a[...] = b"
    )


def _get_dtype(self: ndarray) -> Any:
    small = self._eager
    return dtype_of(self) if small is None else small.dtype


def _core(name: str, general: Callable[..., Any]) -> Callable[..., Any]:
    """The getter of that name in the native extension, where it is built, else the general one."""
    found: Callable[..., Any] = getattr(NATIVE, name) if COMPILED else general
    return found


PROPERTIES: dict[str, property] = {
    "T": property(_core("get_transposed", transposed)),
    "mT": property(_matrix_transposed),
    "base": property(_get_base),
    "ctypes": property(_get_ctypes),
    "data": property(lambda self: export(self).data, _set_data),
    "dtype": property(_core("get_dtype", _get_dtype), _set_dtype),
    "flags": property(lambda self: Flags(self) if materialise(self) is None else self._eager.flags),
    "flat": property(_get_flat, _set_flat),
    "imag": property(_core("get_imag", get_imag), _set_imag),
    "itemsize": property(lambda self: self.dtype.itemsize),
    "nbytes": property(lambda self: geometry(self).nbytes),
    "ndim": property(_core("get_ndim", lambda self: len(shape_of(self)))),
    "real": property(_core("get_real", get_real), _set_real),
    "shape": property(_core("get_shape", shape_of), _set_shape),
    "size": property(_core("get_size", lambda self: geometry(self).size)),
    "strides": property(_get_strides, _set_strides),
    "__array_interface__": property(lambda self: export(self).__array_interface__),
    "__array_struct__": property(lambda self: export(self).__array_struct__),
}


def _documented(name: str, found: property) -> property:
    doc = getattr(getattr(np.ndarray, name), "__doc__", None)
    return property(found.fget, found.fset or functools.partial(refuse, name), found.fdel, doc)


for _name, _property in PROPERTIES.items():
    setattr(ndarray, _name, _documented(_name, _property))
for _name in ("itemset", "newbyteorder", "ptp"):
    if hasattr(np.ndarray, _name):  # until 2.3: they raise and name what to use instead
        setattr(ndarray, _name, property(functools.partial(_removed, _name)))
for _name, _setter in (("_set_shape", _set_shape_unwarned), ("_set_dtype", _set_dtype_unwarned)):
    if hasattr(np.ndarray, _name):  # from 2.5 on
        setattr(ndarray, _name, _setter)
