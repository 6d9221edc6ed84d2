"""Geometry of arrays without memory: meta arrays, layouts, memory orders.

A meta array is a NumPy array with the right shape, strides and dtype whose values mean nothing.
NumPy itself then decides the geometry of every slice, transpose or reshape. Arrays of `meta_array`
start at `ORIGIN`; access to their elements may crash. NumPy may access those of `one_element` when
it raises its errors. Devices with memory of their own make their own (`base.DeviceMemory`).

Owns no state. Must not import arrays or nodes' evaluation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse import bootstrap
from lazyfuse.codegen.graph.node import Layout, Shape
from lazyfuse.codegen.graph.shapes import contiguous_strides
from lazyfuse.devices.caches import cached, memo

Array = np.ndarray[Any, np.dtype[Any]]
DType = np.dtype[Any]
Perm = tuple[int, ...] | None

# One real page, so that a meta array's pointer is valid and aligned. The buffer claims a greater
# length to satisfy NumPy's bounds check; no meta array is ever read.
_PAGE = np.zeros(8192, np.uint8)
_POINTER = ctypes.c_void_p.from_address
_DATA_FIELD = object.__basicsize__  # PyArrayObject: the data pointer follows the object header


def _slow_address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _fast_address(array: Array) -> int:
    # 100 ns; __array_interface__ takes 800 ns
    return _POINTER(id(array) + _DATA_FIELD).value or 0


SILENT = -1  # the stride of an axis that does not influence a memory order

_agrees = all(_fast_address(each) == _slow_address(each) for each in (_PAGE, _PAGE[5:9], _PAGE[:0]))
address = _fast_address if _agrees else _slow_address

ORIGIN = (address(_PAGE) + 4095) // 4096 * 4096
_BUFFER: Any = (ctypes.c_char * (1 << 62)).from_address(ORIGIN)


def meta_array(shape: Shape, dtype: DType, perm: Perm) -> Array:
    """A packed array in memory order `perm` that must never be read or written."""
    if perm is None:
        return np.ndarray(shape, dtype, _BUFFER)
    return np.ndarray(shape, dtype, _BUFFER, 0, byte_strides(shape, perm, dtype.itemsize))


def meta_view(view: Array, origin: int) -> Array:
    """`view`, whose buffer starts at address `origin`, moved to the addresses of meta arrays."""
    return over_buffer(view, _BUFFER, address(view) - origin)


def one_element(shape: Shape, dtype: DType) -> Array:
    """A meta array of a single repeated element, one, on which NumPy raises its errors.

    NumPy checks shapes, dtypes and flags first; operations that it accepts access elements.
    """
    return np.lib.stride_tricks.as_strided(np.ones(1, dtype), shape, (0,) * len(shape))


def over_buffer(view: Array, buffer: Any, offset: int) -> Array:
    """An array with the geometry of `view`, over another buffer at byte `offset`."""
    if view.size == 0:
        offset = 0  # NumPy checks bounds even of empty arrays
        moved: Array = np.ndarray(view.shape, view.dtype, buffer)
        if moved.strides != view.strides:
            moved = np.lib.stride_tricks.as_strided(moved, view.shape, view.strides)
    else:
        moved = np.ndarray(view.shape, view.dtype, buffer, offset, view.strides)
    if not view.flags.writeable:
        moved.flags.writeable = False
    return moved


@cached(4096)
def byte_strides(shape: Shape, perm: Perm, itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a packed array."""
    return tuple([stride * itemsize for stride in contiguous_strides(shape, perm)])


@cached(4096)
def packed_layout(shape: Shape, perm: Perm) -> Layout:
    """The layout of a packed array over its own flat memory."""
    return Layout(0, shape, contiguous_strides(shape, perm))


def layout_of(view: Array, origin: int, itemsize: int) -> Layout:
    """The layout of `view` in a flat buffer of elements of `itemsize` that starts at `origin`."""
    strides = tuple([stride // itemsize for stride in view.strides])
    return Layout((address(view) - origin) // itemsize if view.size else 0, view.shape, strides)


def affine(view: Array) -> bool:
    """Whether every stride is a multiple of the element size."""
    size = view.itemsize
    return size > 0 and not any(stride % size for stride in view.strides)


def packed_order(array: Array) -> tuple[bool, Perm]:
    """Whether the elements fill one block without gaps and with no negative stride; their order."""
    flags = array.flags
    if flags.c_contiguous:
        return True, None
    if flags.f_contiguous:
        return True, tuple(reversed(range(array.ndim)))
    perm = keep_order(array)
    return same_strides(array, byte_strides(array.shape, perm, array.itemsize)), perm


def same_strides(array: Array, strides: Sequence[int]) -> bool:
    """Whether an array has these strides, apart from axes of length 1."""
    if array.strides == strides:
        return True
    sides = zip(array.shape, array.strides, strides, strict=True)
    return all(length == 1 or first == second for length, first, second in sides)


def keep_order(array: Array) -> Perm:
    """The memory order of a copy with order "K": axes by decreasing stride, ties in C order."""
    strides = array.strides
    if falls(strides):
        return None
    flags = array.flags
    if flags.c_contiguous:
        return None
    axes = range(len(strides))
    if flags.f_contiguous:
        return tuple(reversed(axes))
    perm = tuple(sorted(axes, key=lambda axis: -abs(strides[axis])))
    return None if perm == tuple(axes) else perm


def falls(strides: Sequence[int]) -> bool:
    """Whether strides are positive and decrease from axis to axis: C order, gaps allowed."""
    last = strides[0] if strides else 0
    for stride in strides:
        if stride > last or stride < 0:
            return False
        last = stride
    return True


def result_order(shape: Shape, operands: Sequence[Array]) -> Perm:
    """The memory order that NumPy gives to the result of an elementwise operation (order "K").

    It sorts axes as NumPy's iterator does: by insertion. The operands' strides decide each pair;
    where they disagree, C order does.
    """
    rank = len(shape)
    if rank < 2:
        return None
    for array in operands:
        if not falls(array.strides) and not _falls_where_long(array.strides, array.shape):
            return _sorted_order(shape, operands)
    return None


@cached(1024)
def _falls_where_long(strides: tuple[int, ...], shape: Shape) -> bool:
    """As `falls`, for the axes that matter: not those of length one, not repeated ones."""
    sides = zip(strides, shape, strict=True)
    return falls([stride for stride, length in sides if length != 1 and stride])


def _sorted_order(shape: Shape, operands: Sequence[Array]) -> Perm:
    rank = len(shape)
    columns: list[tuple[int, ...]] = []
    plain = fortran = True
    for array in operands:
        flags = array.flags
        plain = plain and flags.c_contiguous
        fortran = fortran and flags.f_contiguous and (array.shape == shape or not array.ndim)
        missing = rank - array.ndim
        sizes = zip(array.strides, array.shape, strict=True)
        steps = tuple(abs(step) if n != 1 and step else SILENT for step, n in sizes)
        columns.append((SILENT,) * missing + steps)
    if plain:
        return None
    return tuple(range(rank - 1, -1, -1)) if fortran else sorted_axes(tuple(columns), rank)


def joined_order(operands: Sequence[Array]) -> Perm:
    """The memory order that NumPy gives to the result of `concatenate`: repeated axes count too."""
    columns = [
        tuple(abs(step) if n != 1 else SILENT for step, n in zip(x.strides, x.shape, strict=True))
        for x in operands
    ]
    order = list(range(operands[0].ndim))
    _insert(order, lambda axis, before: _prefers(columns, before, axis))
    return None if order == sorted(order) else tuple(order)


@cached(4096)
def sorted_axes(columns: tuple[tuple[int, ...], ...], rank: int) -> Perm:
    """NumPy's iteration order (slowest axis first) for operands with these strides (or SILENT)."""
    order = list(range(rank - 1, -1, -1))  # fastest axis first, as in NumPy's source
    _insert(order, lambda axis, before: _prefers(columns, axis, before))
    order.reverse()
    return None if order == list(range(rank)) else tuple(order)


def _insert(order: list[int], swaps: Callable[[int, int], bool | None]) -> None:
    """NumPy's insertion sort of axes; pairs for which `swaps` returns None are skipped."""
    for position in range(1, len(order)):
        axis = order[position]
        target = position
        for other in range(position - 1, -1, -1):
            verdict = swaps(axis, order[other])
            if verdict is None:
                continue
            if not verdict:
                break
            target = other
        order.insert(target, order.pop(position))


def _prefers(columns: Sequence[Sequence[int]], slow: int, fast: int) -> bool | None:
    """Whether `slow` should be the faster axis of the two; None if no operand decides."""
    swap = None
    for strides in columns:
        if strides[slow] != SILENT and strides[fast] != SILENT:
            if strides[fast] <= strides[slow]:
                swap = False
            elif swap is None:
                swap = True
    return swap


def terminal(array: Array) -> Array:
    """The last NumPy array along the chain of bases: the one that holds the memory."""
    base = array.base
    while type(base) is np.ndarray:
        array = base
        base = array.base
    return array


def is_exported(array: Array) -> bool:
    """Whether the base of an array is a `Holder`, which exports its memory."""
    return isinstance(array.base, Holder)


class Holder:
    """Exports memory to NumPy arrays and ends their chain of bases: a buffer of just their bytes.

    NumPy takes the length of a base as the range that strides may reach. A view of a buffer costs a
    fifth of a view by array interface. In C: native/arrays/lend.c.
    """

    keep: Any
    """The object to keep alive as long as the memory is exported."""

    owner: Any = None
    """A weak reference to the storage whose memory other code has; None: lazyfuse's own use."""


# by length: the function that makes a holder at an address
_HOLDERS = memo("runtime.layout.meta_arrays.holders", 1024)


def _holder(start: int, length: int) -> Any:
    """A holder of so many bytes from an address on."""
    found = _HOLDERS.get(length)
    if found is None:
        kind: Any = type("Holder", (Holder, ctypes.c_char * length), {"__module__": __name__})
        found = _HOLDERS[length] = kind.from_address
    return found(start)


if (_native := bootstrap.machine_code()) is not None:
    Holder = _holder = _native.Holder  # type: ignore[misc]


def held(flat: Array, keep: Any) -> Array:
    """An array over the packed memory of `flat` whose base keeps `keep` alive."""
    holder = _holder(address(flat), flat.nbytes)
    holder.keep = keep
    array: Array = np.ndarray(flat.shape, flat.dtype, holder, 0, flat.strides)
    if not flat.flags.writeable:
        array.flags.writeable = False
    return array


def reach(array: Array) -> tuple[int, int]:
    """How far before and behind its first element an array reaches, in bytes; it has elements."""
    low = high = 0
    for length, stride in zip(array.shape, array.strides, strict=True):
        far = (length - 1) * stride
        low, high = (low + far, high) if far < 0 else (low, high + far)
    return low, high


def window(array: Array) -> tuple[Array, int] | None:
    """The flat segment of memory around `array`, and its address; None if not affine."""
    if not affine(array):
        return None
    if array.size == 0 or array.flags.c_contiguous:
        return array.reshape(-1), address(array)
    size = array.itemsize
    low, high = reach(array)
    first = tuple(slice(None, None, -1) if stride < 0 else slice(None) for stride in array.strides)
    ones: Any = (*[slice(0, 1)] * array.ndim, ...)
    corner = array[(*first, ...)][ones].reshape(-1)
    flat = np.lib.stride_tricks.as_strided(corner, ((high - low) // size + 1,), (size,))
    return flat, address(array) + low
