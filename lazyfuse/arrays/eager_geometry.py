"""Shapes, dtypes and other shapes of arrays: for the properties and methods that ask for them.

Attributes.py and methods.py make them so.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.arrays.base import COMPILED, NATIVE, SLOW, Core, direct, new


def reshaped(self: Core, shape: tuple[Any, ...]) -> Any:
    """A direct array with another shape, a view if NumPy makes one; None for what is not quick."""
    small = self._small
    if small is None:
        return None
    for length in shape:
        if type(length) is not int and type(length) is not tuple:
            return None
    value = small.reshape(shape[0] if len(shape) == 1 else shape)
    base = value.base
    if base is None or (base is not small and base is not small.base):
        return None if self._thin else direct(value)  # a copy
    owner = self._base
    return direct(value, self if owner is None else owner)


def get_transposed(self: Core) -> Any:
    """The transpose of an array."""
    small = self._small
    if small is None:
        return SLOW.transposed(self)
    x = new(SLOW.array)
    x._small = small.T
    x._node = None
    x._storage = None
    base = self._base
    x._base = self if base is None else base
    x._thin = self._thin
    return x


def get_shape(self: Core) -> Any:
    """The shape of an array; like those below, for its property."""
    small = self._small
    if small is not None:
        return small.shape
    node = self._node
    return node.shape if node is not None else SLOW.shape(self)


def get_ndim(self: Core) -> Any:
    """How many axes an array has."""
    small = self._small
    return small.ndim if small is not None else len(get_shape(self))


def get_dtype(self: Core) -> Any:
    """The dtype of an array."""
    small = self._small
    if small is not None:
        return small.dtype
    node = self._node
    return node.dtype if node is not None else SLOW.dtype(self)


def get_size(self: Core) -> Any:
    """How many elements an array has."""
    small = self._small
    return small.size if small is not None else SLOW.geometry(self).size


if COMPILED:
    _names = ("get_dtype", "get_ndim", "get_shape", "get_size", "get_transposed")
    globals().update({each: getattr(NATIVE, each) for each in _names})
