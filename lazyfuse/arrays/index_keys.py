"""Keys of indexing: which give a view, which name one element, and what NumPy gets of them.

Owns also keys with a list of indices that is a progression, as `x[:, [0, -1]]`. They are recorded
as slices where the array is not evaluated, as NumPy would have to see the whole block. Names of
fields are views where the memory is one of ours. Wrong keys are left to NumPy.
"""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any

import numpy as np

from lazyfuse.arrays.assignment import fits, may_not_hold, value_node
from lazyfuse.arrays.conversion import real_operand, to_numpy
from lazyfuse.arrays.ndarray import (
    OURS,
    caller,
    from_node,
    geometry,
    is_part_of_number,
    layout_in,
    ndarray,
    node_of,
    on_storage,
    options,
    pin,
    storage_of,
    write_region,
)
from lazyfuse.arrays.operators import PLAIN, dtype_of, shape_of
from lazyfuse.arrays.storage import CANONICAL, Records, Storage, is_evaluated, leaf
from lazyfuse.codegen.graph import references
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.devices.caches import cached
from lazyfuse.runtime.layout.meta_arrays import (
    ORIGIN,
    Array,
    DType,
    falls,
    is_exported,
    meta_array,
)
from lazyfuse.runtime.scheduling import evaluate

BASIC = frozenset((int, slice, EllipsisType, type(None)))
INTEGERS = frozenset(np.dtype(char).type for char in "bBhHiIlLqQ")
BOUNDS = INTEGERS | {int, type(None)}


def is_basic(key: Any) -> bool:
    """Whether a key gives a view: integers, slices, `...`, None, and tuples of them.

    Such a key runs no code of the user's: the bounds of its slices are whole numbers.
    """
    kind = type(key)
    if kind is int:
        return True
    if kind is tuple:
        for part in key:
            kind = type(part)
            if kind not in BASIC or (kind is slice and not _is_plain(part)):
                return False
        return True
    return kind in BASIC and (kind is not slice or _is_plain(key))


def _is_plain(part: slice[Any, Any, Any]) -> bool:
    return type(part.start) in BOUNDS and type(part.stop) in BOUNDS and type(part.step) in BOUNDS


def real_key(key: Any) -> Any:
    """A key for NumPy: our arrays evaluated, NumPy's integers as Python's."""
    if issubclass(type(key), tuple):
        return tuple([_real_part(part) for part in key])
    return _real_part(key)


def _real_part(part: Any) -> Any:
    kind = type(part)
    if kind is slice:
        if _is_plain(part):
            return part
        return slice(_real_bound(part.start), _real_bound(part.stop), _real_bound(part.step))
    if kind in BASIC:
        return part
    if kind in OURS:
        value = real_operand(part)
        return int(value) if isinstance(value, np.integer) else value
    if kind is np.timedelta64:  # an integer to its class, no index to NumPy
        return part
    if issubclass(kind, np.integer):
        return int(part)
    if kind is list or kind is tuple:
        return to_numpy(part)
    if kind not in PLAIN and kind is not np.ndarray and hasattr(kind, "__array__"):
        return np.asarray(real_operand(part.__array__()))
    return part


def _real_bound(bound: Any) -> Any:
    """A bound of a slice as a whole number; NumPy refuses what is none."""
    if not hasattr(type(bound), "__index__"):
        return bound
    try:
        return operator.index(bound)
    except Exception as error:
        return _Failing(error)


class _Failing:
    """A bound that raises when NumPy asks for it; NumPy may find another mistake first."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __index__(self) -> int:
        raise self.error


def is_pick(key: Any, rank: int) -> bool:
    """Whether a basic key certainly names one element."""
    if type(key) is int:
        return rank == 1
    return type(key) is tuple and len(key) == rank and all(type(part) is int for part in key)


def opened(key: Any) -> Any:
    """A basic key that never reads memory: with `...`, NumPy gives a 0-d view, not a scalar."""
    if type(key) is not tuple:
        return key if key is Ellipsis else (key, ...)
    return key if has_ellipsis(key) else (*key, ...)


def has_ellipsis(key: Any) -> bool:
    """Whether a basic key has `...` in it."""
    return key is Ellipsis or (type(key) is tuple and Ellipsis in key)


# --------------------------------------------------------------------------- lists that are ranges

LONGEST = 16
"""The longest list of indices that is looked at."""


def region(self: ndarray, key: Any) -> tuple[Array, int] | None:
    """The part of a pending block that a key with a list names.

    It is a meta array, its axes in NumPy's order, with the axis of the list; None for other keys
    and arrays.
    """
    storage = self._storage
    node = self._node if storage is None else storage.node
    if node is None or is_evaluated(node) or is_part_of_number(self):
        return None
    if storage is not None and (storage.always_eager or storage.shared()):
        return None
    whole = geometry(self)
    found = as_slices(key, whole.shape)
    if found is None or not falls(whole.strides):
        return None
    try:
        view = whole[opened(found[0])]
    except IndexError:
        return None
    if not view.size:
        return None
    _, own, place = found
    if own != place:
        view = view.transpose(own, *[axis for axis in range(view.ndim) if axis != own])
    return view, place


def read(self: ndarray, key: Any) -> Any:
    """`self[key]` for a key with a list, as a recorded copy; None: NumPy has to do it."""
    found = region(self, key)
    storage = storage_of(self) if found is not None else None
    if found is None or storage is None:
        return None
    view, first = found
    part = node_of(on_storage(storage, view, ORIGIN, None))
    # the list's axis is the slowest in memory, as in NumPy
    perm = (first, *[axis for axis in range(view.ndim) if axis != first]) if first else None
    op = ops.TABLE["copy"]
    keys = (part.dtype,)
    loop = promotion.resolve(op, keys)
    return from_node(Node(op, (part,), loop, view.shape, part.dtype, perm, caller()))


def target(self: ndarray, key: Any, value: Any) -> Array | None:
    """The part that `self[key] = value` writes, a meta array; None: NumPy does or refuses it."""
    found = region(self, key)
    if found is None:
        return None
    view, dtype = found[0], dtype_of(self)
    if not view.flags.writeable or may_not_hold(dtype, value):
        return None
    if type(value) in (int, float):
        return view
    own = shape_of(value)
    alike = type(value) in OURS and dtype_of(value) == dtype and len(own) <= view.ndim
    return view if alike and fits(own, view.shape) else None


def write(self: ndarray, part: Array, value: Any) -> None:
    """Record that `part`, which `target` has found, becomes `value`."""
    storage, node = self._storage, self._node
    holder = storage.node if storage is not None else node
    assert holder is not None
    layout = layout_in(holder, part)
    new = value_node(value, dtype_of(self), part.shape)
    assert new is not None
    del node, holder
    write_region(self, layout, new)


def as_slices(key: Any, shape: tuple[int, ...]) -> tuple[Any, int, int] | None:
    """A basic key equal to `key`, which has one list, a progression; None for all other keys.

    Also the axis of the list in the result of the basic key, and the axis that NumPy gives it: the
    first where integers elsewhere in the key are indices, too.
    """
    parts = key if type(key) is tuple else (key,)
    at = -1
    for place, part in enumerate(parts):
        kind = type(part)
        if kind is list:
            if at >= 0 or not 0 < len(part) <= LONGEST:
                return None
            at = place
        elif kind not in BASIC:
            return None
    if at < 0:
        return None
    numbers = [place for place, part in enumerate(parts) if type(part) is int]
    open_at = parts.index(Ellipsis) if has_ellipsis(parts[:at]) else -1
    if (numbers and has_ellipsis(parts)) or (numbers and None in parts):
        return None
    if open_at < 0:
        axis = at - parts[:at].count(None)
    else:
        axis = len(shape) - (len(parts) - at) + parts[at:].count(None)
    if not 0 <= axis < len(shape):
        return None
    found = _progression(parts[at], shape[axis])
    if found is None:
        return None
    kept = sum(type(each) is not int for each in parts[:at])
    if open_at >= 0:
        kept = at + len(shape) - sum(each is not None and each is not ... for each in parts) - 1
    together = not numbers or max(*numbers, at) - min(*numbers, at) == len(numbers)
    return (*parts[:at], found, *parts[at + 1 :]), kept, kept if together else 0


def _progression(places: list[Any], length: int) -> slice | None:
    """The slice that gives these indices of an axis, in their order."""
    for place in places:
        if type(place) is not int or not -length <= place < length:
            return None
    first = places[0] % length
    step = places[1] % length - first if len(places) > 1 else 1
    stop = first + step * len(places)
    if not step or [place % length for place in places] != list(range(first, stop, step)):
        return None
    return slice(first, stop if stop >= 0 else None, step)


# ---------------------------------------------------------------------------------- names of fields

# Where all fields of a structured array have one dtype, its memory is a block of such elements, and
# a field is a view with a stride. The first field that a program takes makes the memory a storage.
# The array itself then has none of the other states (ndarray.py): `_selection` is its `Records`.
# Whatever else is asked of it makes it an eager array again, and its fields with it.


def field(x: ndarray, name: str) -> ndarray | None:
    """A field of a structured array, to be recorded; None if NumPy makes the view at once."""
    records = _records(x)
    if records is None:
        return None
    view = records.meta[name]
    is_unit = view.dtype == records.storage.node.dtype
    return on_storage(records.storage, view, ORIGIN, x) if is_unit else None


def _records(x: ndarray) -> Records | None:
    found = getattr(x, "_selection", None)
    if found is not None or x._eager is None or not x._may_grow:
        return found if type(found) is Records else None
    with evaluate.quiet:
        if x._eager is None:  # another thread has done it
            return _records(x)  # type: ignore[unreachable]
        unit = _unit(x._eager.dtype) if _is_own(x) else None
        if unit is None or evaluate.chunked is not None:
            return None
        real = x._eager
        records = Records(
            Storage(leaf(real.reshape(-1).view(unit), None)),
            meta_array(real.shape, real.dtype, None),
        )
        x._selection = records  # first: another thread always finds one of them
        x._eager = None
        return records


def _is_own(x: ndarray) -> bool:
    """Whether nothing but an array of ours leads to its memory, which is large and packed."""
    flags = x._eager.flags  # type: ignore[union-attr]  # no name for it: references are counted
    packed = flags.owndata and flags.c_contiguous and flags.aligned and flags.writeable
    del flags  # they hold the array
    return (
        packed
        and x._base is None
        and geometry(x).nbytes >= 8 * options.eager_below
        and not is_exported(geometry(x))
        and references.of(x._eager) <= 1
    )


@cached(64)
def _unit(dtype: DType) -> DType | None:
    """The dtype of all fields, if they have one and lie at multiples of its size; else None."""
    fields = (dtype.fields or {}).values()
    units = {each[0].base for each in fields}
    unit = units.pop() if len(units) == 1 else None
    if unit not in CANONICAL or dtype.itemsize % unit.itemsize:
        return None
    return CANONICAL[unit] if all(each[1] % unit.itemsize == 0 for each in fields) else None


def settle(x: ndarray, records: Records) -> None:
    """Make a structured array eager again, and its fields."""
    pin(records.storage)
    flat = records.storage.memory()
    x._may_grow = True
    x._eager = np.ndarray(records.meta.shape, records.dtype, flat)
    x._selection = None
