"""Replacements of NumPy's objects that are neither functions nor ufuncs: index tricks, classes.

Owns REPLACEMENTS: (NumPy module, name) -> a function that makes lazyfuse's replacement.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays.attributes import document, flatiter
from lazyfuse.arrays.conversion import from_numpy, to_numpy
from lazyfuse.arrays.ndarray import geometry, ndarray, wrap, wrap_shared
from lazyfuse.functions.creation import POOLED, asanyarray, empty
from lazyfuse.interop import fallback
from lazyfuse.namespace import namespace_info
from lazyfuse.registry import implements
from lazyfuse.runtime.numerics.errstate import errstate

__all__ = ["REPLACEMENTS", "IndexTrick", "NpzFile", "Operation", "vectorize", "wrap_shared"]


class IndexTrick:
    """As `numpy.r_`, `numpy.c_`, `numpy.mgrid`, `numpy.ogrid`: indexing makes an array."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self.__doc__ = theirs.__doc__

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str and hasattr(self._theirs, "makemat"):  # names of the caller's arrays
            frame = sys._getframe(1)
            return bmat(key, frame.f_locals, frame.f_globals)
        if self._theirs is np.mgrid and type(key) is tuple and _is_large(key):
            return _grid(key)
        return fallback.run(self._theirs.__getitem__, type(self._theirs).__name__, (key,), {})

    def __len__(self) -> int:
        return len(self._theirs)

    def __getattr__(self, name: str) -> Any:
        if name == "_theirs":  # asked for while unpickling
            raise AttributeError(name)
        return getattr(self._theirs, name)


def _is_large(key: tuple[Any, ...]) -> bool:
    """Whether `numpy.mgrid[key]` is a large array, given by slices of Python's real numbers."""
    size = 8.0 * len(key)
    for each in key:
        if type(each) is not slice:
            return False
        start, stop, step = each.start or 0, each.stop, each.step or 1
        if not {type(start), type(stop), type(step)} <= {int, float}:
            return False
        size *= max((stop - start) / step, 0.0)
    return size >= POOLED


def _grid(key: tuple[slice, ...]) -> Any:
    """As `numpy.mgrid[key]`, in one pass: makes each axis once, then repeats it over the others."""
    axes = np.ogrid[key]
    found = empty((len(axes), *[axis.size for axis in axes]), axes[0].dtype)
    for part, axis in zip(found, axes, strict=True):
        part[...] = axis
    return found


class Operation:
    """A callable object of `numpy.ma` with methods (`reduce`, `outer`, ...), for our arrays."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self.__doc__ = theirs.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return fallback.run(self._theirs, str(self._theirs), args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_theirs":
            raise AttributeError(name)
        found = getattr(self._theirs, name)
        return Operation(found) if callable(found) and not isinstance(found, type) else found

    def __repr__(self) -> str:
        return repr(self._theirs)

    def __str__(self) -> str:
        return str(self._theirs)


class vectorize(np.vectorize):  # noqa: N801  # NumPy's spelling
    """As `numpy.vectorize`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return from_numpy(super().__call__(*args, **kwargs))


class broadcast:  # noqa: N801  # NumPy's spelling
    """As `numpy.broadcast`: how arrays broadcast; only iteration evaluates them."""

    def __init__(self, *arrays: Any, **kwargs: Any) -> None:
        if kwargs:
            np.broadcast(**kwargs)  # raises NumPy's error
        parts = [arg._args if isinstance(arg, broadcast) else (arg,) for arg in arrays]
        self._args: tuple[Any, ...] = tuple([x for part in parts for x in part])
        self._geometry = np.broadcast(
            *[geometry(x) if type(x) is ndarray else to_numpy(x) for x in self._args]
        )
        self._real: Any = None

    def _iterator(self) -> Any:
        if self._real is None:
            self._real = np.broadcast(*to_numpy(self._args))
        return self._real

    @property
    def iters(self) -> Any:
        """One flat iterator per array."""
        return tuple([flatiter(asanyarray(x)) for x in self._args])

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self._iterator())

    def reset(self, /) -> None:
        """As `numpy.broadcast.reset`."""
        self._iterator().reset()

    @property
    def index(self) -> int:
        """As `numpy.broadcast.index`."""
        return 0 if self._real is None else int(self._real.index)


def _of_geometry(name: str) -> property:
    return property(lambda self: getattr(self._geometry, name))


for _name in ("nd", "ndim", "numiter", "shape", "size"):
    setattr(broadcast, _name, _of_geometry(_name))


class _Signature:
    """The signature of NumPy's class, read from its text when it is asked for."""

    def __get__(self, instance: object, kind: type) -> inspect.Signature:
        try:
            return inspect.signature(np.broadcast)
        except ValueError as error:  # before NumPy 2.4, and under python -OO
            raise AttributeError("__signature__") from error


broadcast.__signature__ = _Signature()  # type: ignore[attr-defined]
document(broadcast, np.broadcast)


class NpzFile(np.lib.npyio.NpzFile):
    """As `numpy.lib.npyio.NpzFile`, with our arrays."""

    def __getitem__(self, key: str) -> Any:
        return from_numpy(super().__getitem__(key))


@implements(np.bmat)
def bmat(obj: Any, ldict: Any = None, gdict: Any = None) -> Any:
    """As `numpy.bmat`, which looks names up in the caller's frame."""
    if isinstance(obj, str) and gdict is None:
        frame = sys._getframe(1)
        ldict, gdict = frame.f_locals, frame.f_globals
    return fallback.run(np.bmat, "bmat", (obj, ldict, gdict), {})


@implements(np.load)
def load(*args: Any, **kwargs: Any) -> Any:
    """As `numpy.load`, with our arrays, also in archives and in files mapped for reading."""
    result = np.load(*args, **kwargs)
    if type(result) is np.lib.npyio.NpzFile:
        result.__class__ = NpzFile
        return result
    if isinstance(result, np.memmap) and result.mode != "r":
        return result  # a memmap whose changes go to the file: programs call its `flush`
    return wrap(result)


def _index_trick(name: str) -> Callable[[], Any]:
    return lambda: IndexTrick(getattr(np, name))


REPLACEMENTS: dict[tuple[str, str], Callable[[], Any]] = {
    ("numpy", "r_"): _index_trick("r_"),
    ("numpy", "c_"): _index_trick("c_"),
    ("numpy", "mgrid"): _index_trick("mgrid"),
    ("numpy", "ogrid"): _index_trick("ogrid"),
    ("numpy", "vectorize"): lambda: vectorize,
    ("numpy", "broadcast"): lambda: broadcast,
    ("numpy", "flatiter"): lambda: flatiter,
    ("numpy", "__array_namespace_info__"): lambda: namespace_info.Information,
    ("numpy", "errstate"): lambda: errstate,
    ("numpy.lib.npyio", "NpzFile"): lambda: NpzFile,
}
