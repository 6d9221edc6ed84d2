"""Protocols of our arrays for NumPy and other libraries: NEP 13 and 18, DLPack, buffers, pickles.

Importing this module completes the array type.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import Any

import numpy as np

from lazyfuse.arrays import exported_memory, methods
from lazyfuse.arrays.attributes import become, refuse
from lazyfuse.arrays.base import COMPILED, NATIVE
from lazyfuse.arrays.conversion import EXPORT, from_numpy, to_numpy, wrap_maybe_shared
from lazyfuse.arrays.eager_ufunc import UfuncCore
from lazyfuse.arrays.ndarray import export, gather, ndarray, wrap
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.interop import chunked_api, device_api, overrides
from lazyfuse.namespace import numpy_modules, subclasses
from lazyfuse.registry import OURS
from lazyfuse.runtime.numerics import errstate


def array_ufunc(self: ndarray, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Run our ufunc for NumPy's, which was called with an array of ours (NEP 13)."""
    if issubclass(type(self), np.ndarray):
        return subclasses.call_ufunc(self, ufunc, method, *inputs, **kwargs)
    out = kwargs.get("out", ())
    asked = (*inputs, *(out if type(out) is tuple else (out,)), kwargs.get("where"))
    if found := overrides.of_ufuncs.find(asked):
        return overrides.ask_again(found, ufunc, method, inputs, kwargs)
    if type(out) is tuple and len(out) == 1 and (method != "__call__" or out[0] is ...):
        kwargs["out"] = out[0]
    if isinstance(ufunc, np.ufunc):
        ufunc = ufunc_of(ufunc)
    elif not isinstance(ufunc, UfuncCore):
        return _run_theirs(getattr(ufunc, method), inputs, kwargs)
    return getattr(ufunc, method)(*inputs, **kwargs)


def _run_theirs(call: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call what another library calls a ufunc, numba's `vectorize` say, with NumPy's arrays."""
    result = call(*to_numpy(inputs, EXPORT), **to_numpy(kwargs, EXPORT))
    out = kwargs.get("out")
    return from_numpy(result, made=wrap_maybe_shared) if out is None else out


def array_function(self: ndarray, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run our function for NumPy's, which was called with an array of ours (NEP 18)."""
    if issubclass(type(self), np.ndarray):
        return subclasses.call_function(self, func, types, args, kwargs)
    if type(args) is not tuple:
        raise TypeError("args must be a tuple")
    if type(kwargs) is not dict:
        raise TypeError("kwargs must be a dict")
    asked = [kind for kind in types if overrides.of_functions(kind)]
    if asked:  # they left it to us: NumPy asks its own subclasses no more
        known = all(issubclass(kind, np.ndarray) for kind in asked)
        real = np.empty(0)
        return (
            subclasses.call_function(real, func, types, args, kwargs) if known else NotImplemented
        )
    ours = OURS.get(func)
    if ours is None:
        ours = numpy_modules.called(func)
    return ours(*args, **kwargs)


def array(self: ndarray, dtype: Any = None, *, copy: Any = None) -> Any:
    """The values as a NumPy array: the memory itself unless a conversion is requested."""
    _raise_lost(self)
    if copy:
        return np.array(gather(self), dtype=dtype, copy=True)
    if dtype is not None and np.dtype(dtype) != self.dtype:  # type: ignore[attr-defined]
        return np.array(gather(self), dtype=dtype, copy=copy)
    return export(self)


def array_wrap(self: ndarray, arr: Any, context: Any = None, return_scalar: bool = False, /) -> Any:
    """Wrap a result that another library computed as an array of ours."""
    if return_scalar and np.ndim(arr) == 0:
        return to_numpy(arr)[()]
    return arr if isinstance(arr, ndarray) else wrap(arr)


def array_namespace(self: ndarray, *, api_version: Any = None) -> Any:
    """The module lazyfuse (array API)."""
    if api_version != sys.modules["lazyfuse"].__array_api_version__:
        np.empty(0).__array_namespace__(api_version=api_version)  # raises NumPy's errors
    return sys.modules["lazyfuse"]


def dlpack(self: ndarray, **kwargs: Any) -> Any:
    """As `numpy.ndarray.__dlpack__`."""
    return export(self).__dlpack__(**kwargs)


def dlpack_device(self: ndarray) -> Any:
    """The CPU."""
    return np.empty(0).__dlpack_device__()


def buffer(self: ndarray, flags: int, /) -> memoryview:
    """The memory, for `memoryview` and other users of buffers (Python 3.12)."""
    return memoryview(_buffer(self))


def _is_unmarked(dtype: Any) -> bool:
    """Whether a dtype has no metadata, which neither buffers nor interfaces can express."""
    if dtype.metadata:
        return False
    if dtype.subdtype is not None:
        return _is_unmarked(dtype.base)
    return all(_is_unmarked(field[0]) for field in (dtype.fields or {}).values())


def _read_back(dtype: Any) -> Any:
    """The dtype that NumPy reads from the format of a buffer; None if no buffer can express it."""
    try:
        view: Any = memoryview(np.empty(0, dtype))  # type: ignore[arg-type]  # before Python 3.12
    except (ValueError, BufferError):
        return None
    try:
        return np.asarray(view).dtype
    except (ValueError, TypeError, RuntimeError):
        return np.dtype("V")


def _is_pending(self: ndarray) -> bool:
    node = self._node if self._storage is None else self._storage.node
    return node is not None and node.value is None


def _buffer(self: ndarray) -> Any:
    """The memory, unless NumPy, which prefers buffers, would misread its dtype."""
    if _is_pending(self) and errstate.must_run_at_once():
        # before Python 3.12 an error would be lost here; NumPy looks up `__array_struct__` next
        raise BufferError("[buffer] values: expected evaluated ones, got pending ones; look first")
    dtype = dtype_of(self)
    if dtype.kind not in "biufc" or dtype.metadata:
        found = _read_back(dtype)
        if found is not None and (found != dtype or not _is_unmarked(dtype)):
            raise BufferError(
                "[buffer] dtype: expected one that the format of a buffer can tell, "
                f"got {dtype}; use numpy.asarray first"
            )
    lost = exported_memory.lost
    try:
        found = export(self)
        lost.found = None
        return found
    except BaseException as error:
        lost.found = self, error
        raise


def _raise_lost(self: ndarray) -> None:
    """Raise the error that was lost. Called when NumPy looks for a protocol after buffers."""
    lost = exported_memory.lost
    found, lost.found = lost.found, None
    if found is not None and found[0] is self:
        raise found[1]


def _array_struct(self: ndarray) -> Any:
    _raise_lost(self)
    # NumPy looks for this before `__array__`, and misreads strings and records through it
    dtype = dtype_of(self)
    if dtype.kind not in "biufcO" or dtype.metadata:
        raise AttributeError("__array_struct__")
    return export(self).__array_struct__


def _array_interface(self: ndarray) -> Any:
    _raise_lost(self)
    interface = export(self).__array_interface__
    dtype = dtype_of(self)
    described = interface["descr"]
    plain = described == [("", interface["typestr"])]
    try:
        told = np.dtype(interface["typestr"] if plain else described)
    except (TypeError, ValueError):
        told = None
    told_right = told == dtype or (dtype.kind == "V" and _read_back(dtype) == dtype)
    if not told_right or not _is_unmarked(dtype):
        raise AttributeError("__array_interface__")  # so that NumPy calls `__array__`
    return interface


def rebuild(value: Any) -> Any:
    """Unpickle: wrap NumPy's array."""
    return wrap(value)


def arrow_array(self: ndarray, type: Any = None) -> Any:
    """The values as an array of Arrow, for `pyarrow.array` and all that calls it."""
    return sys.modules["pyarrow"].array(export(self), type=type)


def jax_array(self: ndarray) -> Any:
    """The values as an array of JAX, for the functions of `jax.numpy`."""
    return sys.modules["jax.numpy"].asarray(export(self))


def reduce(self: ndarray) -> Any:
    """Pickle as NumPy's array."""
    return rebuild, (gather(self),)


def reduce_ex(self: ndarray, protocol: Any, /) -> Any:
    """Pickle as NumPy's array, whose protocol 5 can share buffers."""
    return rebuild, (export(self) if operator.index(protocol) >= 5 else gather(self),)


def setstate(self: ndarray, state: Any, /) -> None:
    """As `numpy.ndarray.__setstate__`."""
    value = np.empty(0)
    value.__setstate__(state)
    become(self, wrap(value))


def array_finalize(self: ndarray, obj: Any, /) -> None:
    """As `numpy.ndarray.__array_finalize__`: nothing to do."""


def to_device(self: ndarray, device: Any, /, *, stream: Any = None) -> Any:
    """As `numpy.ndarray.to_device`, for every device in `lazyfuse.devices()`."""
    return device_api.moved(self, device, stream)


def to_dask(self: ndarray, /) -> Any:
    """The dask array with the same chunks and tasks; nothing is computed, nothing is copied."""
    return chunked_api.to_dask(self)


def _refuse_as_dtype(self: ndarray) -> Any:
    """What NumPy (from 2.4 on) asks first of an object given for a dtype: arrays are none."""
    raise TypeError("Cannot construct a dtype from an array")


def _dir(self: ndarray) -> list[str]:
    """What `inspect.getmembers` may read: all but what raises."""
    return [name for name in object.__dir__(self) if name != "__numpy_dtype__"]


_view = ndarray.view  # type: ignore[attr-defined]


def view(self: ndarray, *args: Any, **kwargs: Any) -> Any:
    """As `numpy.ndarray.view`; `x.view(y.__class__)` gives an array of ours."""
    if any(x is np.ndarray for x in args) or kwargs.get("type") is np.ndarray:
        args = tuple([ndarray if x is np.ndarray else x for x in args])
        kwargs = {name: ndarray if x is np.ndarray else x for name, x in kwargs.items()}
    return _view(self, *args, **kwargs)


METHODS: dict[str, Any] = {
    "__array_finalize__": array_finalize,
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "__array__": array,
    "__array_wrap__": array_wrap,
    "__array_namespace__": array_namespace,
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__buffer__": buffer,
    "__dir__": _dir,
    "__arrow_array__": arrow_array,
    "__jax_array__": jax_array,
    "__reduce__": reduce,
    "__reduce_ex__": reduce_ex,
    "__setstate__": setstate,
    "to_dask": to_dask,
    "to_dask_array": to_dask,
    "to_device": to_device,
    "view": view,
}

methods.install(METHODS)
if COMPILED:  # C does what is an operator; ours the rest
    NATIVE.bind("array_ufunc", array_ufunc)
    ndarray.__array_ufunc__ = NATIVE.override(ndarray)  # type: ignore[attr-defined]
ndarray.device = property(  # type: ignore[attr-defined]
    device_api.place_of, functools.partial(refuse, "device")
)
ndarray.__array_interface__ = property(_array_interface)  # type: ignore[attr-defined]
ndarray.__numpy_dtype__ = property(_refuse_as_dtype)  # type: ignore[attr-defined]
ndarray.__array_struct__ = property(_array_struct)  # type: ignore[attr-defined]
for _name, _method in vars(ndarray).items():
    if isinstance(_method, types.FunctionType) and hasattr(np.ndarray, _name):
        _method.__wrapped__ = getattr(np.ndarray, _name)  # type: ignore[attr-defined]  # signature
exported_memory.install(ndarray, _buffer)
ndarray.__array_priority__ = 0.0  # type: ignore[attr-defined]
