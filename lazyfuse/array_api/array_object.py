"""The array of `lazyfuse.array_api`, which follows the standard in every operation.

Owns `array`, which wraps an array of the main namespace (that array has the memory, the recorded
work and the kernels), and the conversions between the two: `plain` and `given`. An operation of an
array of the standard with arrays of the main namespace or of NumPy gives an array of the standard.
Importing this module completes the class.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lazyfuse import registry
from lazyfuse.array_api import floor_division
from lazyfuse.arrays.ndarray import alone, direct, export, ndarray, node_of, wrap
from lazyfuse.arrays.operators import PLAIN
from lazyfuse.arrays.scalars import scalar
from lazyfuse.errors import message
from lazyfuse.interop import device_api
from lazyfuse.namespace import protocols


class array:  # noqa: N801  # the standard's spelling
    """An array as the standard describes it."""

    __slots__ = ("__weakref__", "_array")

    _array: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse: functions make arrays."""
        raise TypeError(message("array", "call", "a function", "the class", "use asarray"))

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The namespace of a version of the standard; None: the latest."""
        return sys.modules[__package__]._at(api_version)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """An array with the same values in the memory of a device."""
        moved = device_api.moved(self._array, device, stream)
        return self if moved is self._array else given(moved)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The evaluated memory on the host as a DLPack capsule."""
        asked = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        return self._array.__dlpack__(stream=stream, **asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host, whose memory DLPack exports."""
        found: tuple[int, int] = self._array.__dlpack_device__()
        return found

    def to_numpy(self) -> Any:
        """The values as a `numpy.ndarray`: see `to_numpy` of the main namespace's arrays."""
        return export(self._array)

    # -- Python's protocols ------------------------------------------------------------------

    def __getitem__(self, key: Any, /) -> Any:
        return given(self._array[plain_key(key)])

    def __setitem__(self, key: Any, value: Any, /) -> None:
        self._array[plain_key(key)] = plain(value)

    def __iter__(self) -> Iterator[Any]:
        return map(given, iter(self._array))

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return repr(self._array)

    def __str__(self) -> str:
        return str(self._array)

    def __format__(self, spec: str) -> str:
        return format(self._array, spec)

    def __copy__(self) -> Any:
        return given(self._array.copy("K"))

    def __deepcopy__(self, memo: Any) -> Any:
        return given(self._array.copy("K"))

    def __reduce__(self) -> Any:
        return given, (self._array,)

    __hash__ = None  # type: ignore[assignment]

    # -- protocols of NumPy and the main namespace -----------------------------------------------

    def __array__(self, dtype: Any = None, *, copy: Any = None) -> Any:
        return self._array.__array__(dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """A ufunc of either namespace, or of NumPy, with arrays of the standard as operands."""
        out = kwargs.get("out", ())
        named = plain(kwargs)
        if ufunc.__name__ == "floor_divide" and method == "__call__" and not kwargs:
            return given(floor_division.floor_divide(*plain(inputs)))
        result = protocols.array_ufunc(self._array, ufunc, method, *plain(inputs), **named)
        found = out if type(out) is tuple else (out,)
        if found and not any(each is None or each is ... for each in found):
            return found if len(found) > 1 else found[0]
        return given(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A function of either namespace, or of NumPy."""
        others = [each for each in types if each is not array]
        out = kwargs.get("out")
        theirs = registry.THEIRS.get(func, func)
        result = protocols.array_function(self._array, theirs, others, plain(args), plain(kwargs))
        return given(result) if out is None else out


def plain(value: Any) -> Any:
    """`value` with the standard's arrays replaced by those of the main namespace."""
    kind = type(value)
    if kind is array:
        return value._array
    if kind is tuple or kind is list:
        return kind([plain(each) for each in value])
    if kind is dict:
        return {name: plain(each) for name, each in value.items()}
    return value


def plain_key(key: Any) -> Any:
    """An index with the standard's arrays replaced by those of the main namespace."""
    kind = type(key)
    return plain(key) if kind is array or kind is tuple else key


def given(value: Any) -> Any:
    """`value` with the main namespace's arrays and scalars replaced by arrays of the standard."""
    kind = type(value)
    if kind is ndarray:
        x: array = object.__new__(array)
        x._array = value
        return x
    if kind is scalar:
        return given(alone(node_of(value)))
    if issubclass(kind, np.generic):
        return given(direct(np.asarray(value)))
    if kind is np.ndarray:
        return given(wrap(value))
    if kind is tuple or kind is list:
        return kind([given(each) for each in value])
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*[given(each) for each in value])
    return value


# ---------------------------------------------------------------------------------- operators

_OPERANDS = frozenset((*PLAIN, ndarray, scalar, np.ndarray))

_ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_COMPARISONS = "eq ne lt le gt ge".split()
_UNARY = "abs neg pos invert".split()
_CONVERSIONS: dict[str, Callable[..., Any]] = {
    "__bool__": bool,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": operator.index,
}


def _function(word: str) -> Callable[..., Any]:
    """Python's operator; for `//` the standard's."""
    if word == "floordiv":
        return floor_division.floor_divide
    found: Callable[..., Any] = getattr(operator, f"__{word}__")
    return found


def _binary(function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def method(self: array, other: Any, /) -> Any:
        if type(other) is array:
            other = other._array
        elif type(other) not in _OPERANDS:
            return NotImplemented
        first, second = (other, self._array) if swapped else (self._array, other)
        return given(function(first, second))

    return method


def _inplace(word: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(operator, f"__i{word}__")
    if word == "floordiv":
        function = floor_division.floor_divide_in_place

    def method(self: array, other: Any, /) -> Any:
        if type(other) is array:
            other = other._array
        elif type(other) not in _OPERANDS:
            return NotImplemented
        self._array = function(self._array, other)
        return self

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: given(function(self._array))


def _converted(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: function(self._array)


def _transposed(self: array) -> Any:
    if len(self._array.shape) != 2:
        rank = len(self._array.shape)
        raise ValueError(message("T", "rank", "2", rank, "use mT or permute_dims"))
    return given(self._array.T)


_PROPERTIES: dict[str, Callable[[array], Any]] = {
    "dtype": lambda self: self._array.dtype,
    "device": lambda self: device_api.place_of(self._array),
    "mT": lambda self: given(self._array.mT),
    "ndim": lambda self: len(self._array.shape),
    "shape": lambda self: self._array.shape,
    "size": lambda self: self._array.size,
    "T": _transposed,
}


def _install() -> None:
    methods: dict[str, Callable[..., Any]] = {}
    for word in _ARITHMETIC:
        methods[f"__{word}__"] = _binary(_function(word), False)
        methods[f"__r{word}__"] = _binary(_function(word), True)
        methods[f"__i{word}__"] = _inplace(word)
    for word in _COMPARISONS:
        methods[f"__{word}__"] = _binary(_function(word), False)
    methods |= {f"__{word}__": _unary(_function(word)) for word in _UNARY}
    methods |= {name: _converted(function) for name, function in _CONVERSIONS.items()}
    for name, method in methods.items():
        method.__name__ = name
        method.__qualname__ = f"array.{name}"
        setattr(array, name, method)
    for name, read in _PROPERTIES.items():
        setattr(array, name, property(read, doc=f"As `{name}` of an array in the standard."))


array.__module__ = "lazyfuse.array_api"
_install()
