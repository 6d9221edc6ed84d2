"""Values on their way into NumPy and back: ours become NumPy's, NumPy's become ours, also nested.

Owns `to_numpy` and `from_numpy`, each with a policy for arrays, and the views that get the geometry
of NumPy's (`base_view`, `derive`). Must not import the modules of operators, indexing and methods.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Final

import numpy as np

from lazyfuse.arrays.base import REAL
from lazyfuse.arrays.ndarray import (
    OURS,
    direct,
    export,
    gather,
    is_part,
    materialise,
    ndarray,
    on_storage,
    options,
    root_of,
    storage_of,
    wrap,
    wrap_shared,
)
from lazyfuse.arrays.nodes import PLAIN
from lazyfuse.devices.caches import register
from lazyfuse.registry import THEIRS, builtin
from lazyfuse.runtime.layout.meta_arrays import ORIGIN, Array, address, meta_view

# -------------------------------------------------------------------------------- ours to NumPy's

Kept = tuple[list[Any], list[Any]]
"""The arrays that NumPy gets in one call, and the source of each: an array of ours; None for
NumPy's own; `FOREIGN`."""

EXPORT: Final[Any] = ()
"""Instead of `Kept`: code that is not NumPy's gets arrays, and may keep them and write to them."""

FOREIGN: Final = object()
"""The source, in `Kept`, of an object with its own `__array_function__`."""

_Seen = dict[int, Any]
_Convert = Callable[[Any, Any, "_Seen | None", int], Any]

_NO_MEMORY = np.empty(0)
_DEEPEST = 64  # NumPy's arrays have no more axes
_CLASSES = 1000  # of the classes beyond these, each value is classified anew


def to_numpy(value: Any, kept: Any = None, seen: _Seen | None = None, depth: int = 0) -> Any:
    """`value` with NumPy's arrays, numbers and functions instead of ours, at any depth.

    NumPy reads the memory of our arrays during one call; `kept`, if given, lists them. With
    `EXPORT` they are exported.
    """
    kind = type(value)
    if kind is ndarray:
        if kept is EXPORT:
            return export(value)
        real = value._eager
        if real is None:
            real = gather(value)
        if kept:
            kept[0].append(real)
            kept[1].append(value)
        return real
    if kind is REAL:
        if kept:
            kept[0].append(value)
            kept[1].append(None)
        return value
    try:
        if kind in _ORDINARY:
            return value
        if (kind is list or kind is tuple) and _ORDINARY.issuperset(map(type, value)):
            return value
        convert = _CONVERT.get(kind) or _classify(kind)
    except Exception:  # the metaclass raises when its class is looked up
        convert = _container if kind is tuple or kind is list else _unchanged
    return convert(value, kept, seen, depth)


def real_operand(x: Any) -> Any:
    """The value that NumPy gets for one operand; containers stay as they are."""
    if type(x) in OURS:
        value = gather(x)
        return value if type(x) is ndarray else value[()]
    return x


def _unchanged(value: Any, kept: Any, seen: _Seen | None, depth: int) -> Any:
    return value


def _container(value: Any, kept: Any, seen: _Seen | None, depth: int) -> Any:
    """A container with its items converted; `seen` has those met before, also around this one."""
    if seen is None:
        seen = {}
    elif id(value) in seen:
        return seen[id(value)]
    if depth > _DEEPEST:
        return value
    seen[id(value)] = value
    kind = type(value)
    if kind is slice:
        there = value.start, value.stop, value.step
    else:  # a finaliser or another thread may change it meanwhile
        here = dict(value) if kind is dict else value
        there = tuple(here.values() if kind is dict else here)
    items = [to_numpy(item, kept, seen, depth + 1) for item in there]
    if not all(map(operator.is_, items, there)):
        if kind is slice:
            seen[id(value)] = slice(*items)
        else:
            seen[id(value)] = kind(zip(here, items, strict=True) if kind is dict else items)
    return seen[id(value)]


def _scalar(value: Any, kept: Any, seen: _Seen | None, depth: int) -> Any:
    return gather(value)[()]


def _paired(value: Any, kept: Any, seen: _Seen | None, depth: int) -> Any:
    return THEIRS.get(value, value)


def _foreign(value: Any, kept: Any, seen: _Seen | None, depth: int) -> Any:
    if kept:
        kept[0].append(_NO_MEMORY)
        kept[1].append(FOREIGN)
    return value


def _classify(kind: type) -> _Convert:
    """The conversion for values of a new class."""
    default = np.ndarray.__array_function__
    if kind in OURS:
        return _CONVERT.setdefault(kind, _scalar)
    if getattr(kind, "__array_function__", default) is not default:
        return _CONVERT.setdefault(kind, _foreign)
    if len(_ORDINARY) < _CLASSES:
        _ORDINARY.add(kind)
    return _unchanged


_ORDINARY: set[type] = {*PLAIN, type(None), str}
register("arrays.conversion.ordinary", _ORDINARY.__len__, _CLASSES, _ORDINARY.clear)
_CONVERT: dict[type, _Convert] = {
    list: _container,
    tuple: _container,
    dict: _container,
    slice: _container,
    type: _paired,
    type(ndarray): _paired,
    FunctionType: _paired,
    builtin: _paired,
}


def register_paired(kind: type, convert: Callable[[Any], Any] | None = None) -> None:
    """Convert objects of type `kind` to NumPy's, by the registry or by `convert`."""
    if convert is None:
        _CONVERT[kind] = _paired
    else:
        _CONVERT[kind] = lambda value, kept, seen, depth: convert(value)


def suspect_types() -> frozenset[type]:
    """The types whose values `to_numpy` may change."""
    return frozenset((*OURS, *(kind for kind, done in _CONVERT.items() if done is not _foreign)))


# -------------------------------------------------------------------------------- NumPy's to ours


def from_numpy(
    value: Any,
    reals: Sequence[Any] = (),
    ours: Sequence[Any] = (),
    made: Callable[[Any], Any] = wrap,
) -> Any:
    """`value` with our arrays instead of NumPy's, at any depth.

    `reals` went into NumPy for `ours`: one of them becomes its array of ours again, a view of one
    becomes a view of ours. `made` makes all other arrays: `wrap` where NumPy has made them,
    `wrap_maybe_shared` where they may come from other code, `direct` for memory that is written
    through at once.
    """
    kind = type(value)
    if kind is REAL:
        base = value.base
        near = -1
        for at, real in enumerate(reals):
            if real is value:
                own = ours[at]
                return own if own is real or type(own) is ndarray else wrap_shared(value)
            if base is not None and (real is base or real.base is base):
                near = at
        if near >= 0:
            own, real = ours[near], reals[near]
            # an eager array may be a view itself: the base of NumPy's views is the memory's owner
            if real is base or (type(own) is ndarray and own._eager is real):
                return _part_of(own, real, value)
        if base is not None:
            for at, real in enumerate(reals):
                if np.may_share_memory(value, real):
                    return _part_of(ours[at], real, value)
        if made is wrap and value.size < options.eager_below:
            return direct(value)
        return made(value)
    if kind is tuple:
        return tuple([from_numpy(item, reals, ours, made) for item in value])
    if kind is list:
        if _SEARCHED.isdisjoint(map(type, value)):
            return value
        return [from_numpy(item, reals, ours, made) for item in value]
    if kind is dict:
        if _SEARCHED.isdisjoint(map(type, value.values())):
            return value
        return {key: from_numpy(item, reals, ours, made) for key, item in value.items()}
    if kind in _RESULTS:
        return _RESULTS[kind](value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[from_numpy(item, reals, ours, made) for item in value])
    return value


_RESULTS: dict[type, Callable[[Any], Any]] = {}
_SEARCHED: set[type] = {np.ndarray, list, tuple, dict}


def register_result(kind: type, convert: Callable[[Any], Any]) -> None:
    """Register how results of type `kind` become ours."""
    _RESULTS[kind] = convert
    _SEARCHED.add(kind)


def wrap_maybe_shared(value: Array) -> Any:
    """An array of ours for a numpy array that may be a view of other code's memory."""
    return wrap(value) if value.base is None else wrap_shared(value)


def _part_of(ours: Any, real: Any, value: Array) -> Any:
    """A view that NumPy made of `real`, the memory of `ours`, as a view of `ours`."""
    if type(ours) is not ndarray:
        return wrap_shared(value)
    base = ours._base
    if ours._eager is real:
        return direct(value, ours if base is None else base)
    storage = ours._storage
    origin = address(real) if storage is None else storage.origin
    base_view(ours)  # from now on it is aliased
    try:
        return derive(ours, meta_view(value, origin) if ours._origin == ORIGIN else value)
    except TypeError:  # its memory in another dtype
        return wrap(value.copy(order="K"))


def derive(self: ndarray, view: Array, base: ndarray | None = None) -> ndarray:
    """A view of `self` with the geometry of `view`, which was made from `base_view(self)`."""
    storage = self._storage
    if storage is None:  # eager
        return direct(view, base if base is not None else root_of(self))
    if view.dtype != storage.node.dtype and not is_part(view, storage.node.dtype):
        raise TypeError("[view] dtype: a recorded view keeps the dtype of its memory")
    return on_storage(storage, view, ORIGIN, base if base is not None else root_of(self))


def base_view(self: ndarray) -> Array:
    """The numpy array to make views from: the values of an eager array, else geometry."""
    small = materialise(self)
    if small is not None:
        return small
    return base_view(self) if storage_of(self) is None else self._view
