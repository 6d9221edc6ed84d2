"""All of NumPy that is not recorded: gather the arguments, run NumPy, wrap the result, count it.

Owns the conversion of nested arguments and results, and the count per function and source line.
Arrays that NumPy writes into (`out=`, `copyto`, `put`, ...) are written through to ours.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np

from lazyfuse.arrays import assignment, exported_memory
from lazyfuse.arrays.attributes import base_view, derive
from lazyfuse.arrays.ndarray import (
    changing,
    direct,
    export,
    gather,
    ndarray,
    wrap,
    wrap_shared,
    writable,
)
from lazyfuse.arrays.scalars import scalar
from lazyfuse.bootstrap import HERE
from lazyfuse.codegen.graph.node import source_line
from lazyfuse.devices.caches import register
from lazyfuse.errors import refuses_ours
from lazyfuse.interop import overrides
from lazyfuse.registry import OURS, THEIRS, as_builtin, builtin, dress, pair
from lazyfuse.runtime.layout.meta_arrays import ORIGIN, address, ghost_at

Kept = list[tuple[Any, Any]]
"""Real arrays handed to NumPy in one call, each with the array of ours that it stands for."""

_HOME = str(HERE)

WRITTEN = {
    "copyto": (0,),
    "fill_diagonal": (0,),
    "place": (0,),
    "put": (0,),
    "put_along_axis": (0,),
    "putmask": (0,),
}
"""Positions of arguments that are written in place, by function name."""

CALLBACKS = {
    "apply_along_axis": (0,),
    "apply_over_axes": (0,),
    "fromfunction": (0,),
    "mask_indices": (1,),
    "pad": (2,),
    "piecewise": (2,),
}
"""Positions of arguments that are functions of the user's: they are called with our arrays."""


# ---------------------------------------------------------------- arguments


def _gather_array(value: Any, kept: Kept) -> Any:
    real = value._small
    if real is None:
        real = gather(value)
    kept.append((real, value))
    return real


def _gather_scalar(value: Any, kept: Kept) -> Any:
    return gather(value)[()]


def _keep_real(value: Any, kept: Kept) -> Any:
    kept.append((value, None))
    return value


def _gather_items(value: Any, kept: Kept) -> Any:
    if len(value) > 8 and _CONVERT.keys().isdisjoint(set(map(type, value))):
        return value
    there = tuple(value)  # a finaliser or another thread may change a list meanwhile
    items = [to_numpy(item, kept) for item in there]
    if all(new is old for new, old in zip(items, there, strict=True)):
        return value
    return items if type(value) is list else tuple(items)


def _gather_dict(value: Any, kept: Kept) -> Any:
    items = {key: to_numpy(item, kept) for key, item in value.items()}
    if all(new is old for new, old in zip(items.values(), value.values(), strict=True)):
        return value
    return items


def _gather_slice(value: Any, kept: Kept) -> Any:
    return slice(*(to_numpy(part, kept) for part in (value.start, value.stop, value.step)))


def _their_object(value: Any, kept: Kept) -> Any:
    return THEIRS.get(value, value)


_CONVERT: dict[type, Callable[[Any, Kept], Any]] = {
    ndarray: _gather_array,
    scalar: _gather_scalar,
    np.ndarray: _keep_real,
    list: _gather_items,
    tuple: _gather_items,
    dict: _gather_dict,
    slice: _gather_slice,
    type: _their_object,
    type(ndarray): _their_object,
    FunctionType: _their_object,
    builtin: _their_object,
}


def register_type(kind: type, convert: Callable[[Any, Kept], Any] = _their_object) -> None:
    """Say how arguments of type `kind` become NumPy's (default: by the registry)."""
    _CONVERT[kind] = convert


def to_numpy(value: Any, kept: Kept) -> Any:
    """`value` with every array of ours in it, however nested, replaced by the real array."""
    kind = type(value)
    convert = _CONVERT.get(kind)
    if convert is not None:
        return convert(value, kept)
    if kind not in _ORDINARY:
        convert = _classify(kind)
        return value if convert is None else convert(value, kept)
    return value


def _classify(kind: type) -> Callable[[Any, Kept], Any] | None:
    """What is to be done with arguments of a class that was not met before."""
    convert: Callable[[Any, Kept], Any] | None = None
    if issubclass(kind, ndarray):
        convert = _gather_array
    elif overrides.of_functions(kind):
        convert = _keep_foreign
    if convert is not None:
        _CONVERT[kind] = convert
    elif len(_ORDINARY) < _CLASSES:
        _ORDINARY.add(kind)
    return convert


def _keep_foreign(value: Any, kept: Kept) -> Any:
    kept.append((value, _FOREIGN))
    return value


_FOREIGN = object()  # marks arguments with an `__array_function__` of their own
_CLASSES = 1000  # programs that make more classes than this may look each of them up
_ORDINARY: set[type] = set()
register("interop.fallback.ordinary", _ORDINARY.__len__, _CLASSES, _ORDINARY.clear)


def gathered(value: Any) -> Any:
    """`value` with real arrays in the place of ours."""
    return to_numpy(value, [])


# ------------------------------------------------------------------ results


def _wrap_array(value: Any, kept: Kept) -> Any:
    for real, ours in kept:
        if value is real:
            return ours if ours is real or type(ours) is ndarray else wrap_shared(value)
    if value.base is not None:
        for real, ours in kept:
            if np.may_share_memory(value, real):
                return _part_of(ours, real, value) if type(ours) is ndarray else wrap_shared(value)
    return wrap(value)


def _part_of(ours: Any, real: Any, value: Any) -> Any:
    """A view that NumPy made of `real`, the memory of `ours`, as a view of `ours`."""
    if ours._small is real:
        return derive(ours, value)
    storage = ours._storage
    origin = address(real) if storage is None else storage.origin
    base_view(ours)  # from now on it is on a storage
    try:
        return derive(ours, ghost_at(value, origin) if ours._origin == ORIGIN else value)
    except TypeError:  # its memory in another dtype
        return wrap(value.copy(order="K"))


def _wrap_list(value: Any, kept: Kept) -> Any:
    if _WRAP.keys().isdisjoint(set(map(type, value))):
        return value
    return [from_numpy(item, kept) for item in value]


def _wrap_tuple(value: Any, kept: Kept) -> Any:
    return tuple([from_numpy(item, kept) for item in value])


def _wrap_dict(value: Any, kept: Kept) -> Any:
    if _WRAP.keys().isdisjoint(set(map(type, value.values()))):
        return value
    return {key: from_numpy(item, kept) for key, item in value.items()}


def _our_object(value: Any, kept: Kept) -> Any:
    return OURS.get(value, value)


_WRAP: dict[type, Callable[[Any, Kept], Any]] = {
    np.ndarray: _wrap_array,
    list: _wrap_list,
    tuple: _wrap_tuple,
    dict: _wrap_dict,
}


def register_result(kind: type, convert: Callable[[Any, Kept], Any] = _our_object) -> None:
    """Say how results of type `kind` become ours (default: by the registry)."""
    _WRAP[kind] = convert


def from_numpy(value: Any, kept: Kept) -> Any:
    """`value` with every plain numpy array in it replaced by one of ours."""
    convert = _WRAP.get(type(value))
    if convert is not None:
        return convert(value, kept)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[from_numpy(item, kept) for item in value])
    return value


# ---------------------------------------------------------------- in place


def _borrow_out(out: Any, loans: Kept) -> Any:
    if type(out) is tuple:
        return tuple([_borrow_out(item, loans) for item in out])
    if type(out) is not ndarray:
        if type(out) is np.ndarray:
            loans.append((out, out))  # comes back as it is
        return gathered(out) if type(out) is scalar else out  # NumPy refuses its own in its words
    real = writable(out)
    loans.append((real, out))
    return real


# --------------------------------------------------------------- callbacks


def callback(function: Any) -> Any:
    """`function` of the user's as NumPy may call it: it sees our arrays and may return them."""
    if type(function) in (list, tuple):
        return [callback(item) for item in function]
    if not callable(function) or isinstance(function, type):
        return gathered(function)
    if isinstance(function, (FunctionType, MethodType)) and function not in THEIRS:
        return _Callback(function)
    return gathered(function)


class _Callback:
    """A user's function between NumPy and our arrays."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", "callback")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        named = {name: _for_callback(value) for name, value in kwargs.items()}
        return gathered(self._function(*[_for_callback(value) for value in args], **named))


def _for_callback(value: Any) -> Any:
    """NumPy's own memory as an array that reads and writes it at once."""
    return direct(value) if type(value) is np.ndarray else from_numpy(value, [])


# ------------------------------------------------------------------- calls

_counts: dict[tuple[str, CodeType, int], int] = {}


def count(name: str, frame: FrameType | None) -> None:
    """Note that NumPy ran `name` on behalf of the first frame outside lazyfuse."""
    while frame is not None and frame.f_code.co_filename.startswith(_HOME):
        frame = frame.f_back
    if frame is not None:
        key = (name, frame.f_code, frame.f_lasti)
        _counts[key] = _counts.get(key, 0) + 1


exported_memory.count = count
exported_memory.tell(_counts)


def counts() -> dict[tuple[str, str, int], int]:
    """How often each function fell back to NumPy: (function, file, line) -> calls."""
    found: dict[tuple[str, str, int], int] = {}
    for (name, code, offset), number in _counts.items():
        file, line, _function = source_line((code, offset))
        found[name, file, line] = found.get((name, file, line), 0) + number
    return found


def clear_counts() -> None:
    """Forget what `counts` would tell."""
    _counts.clear()


def given(**named: Any) -> dict[str, Any]:
    """The keyword arguments that say something: objects that override see no others."""
    return {name: value for name, value in named.items() if value is not None}


def call(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call NumPy; objects whose `__array__` gives one of our arrays get a second chance."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        if not refuses_ours(error):
            raise
    kept: Kept = []
    named = {name: _with_real_array(value, kept) for name, value in kwargs.items()}
    result = function(*[_with_real_array(value, kept) for value in args], **named)
    if type(result) is np.ndarray and result.dtype.kind == "O":
        _unveil(result)
    return next((ours for real, ours in kept if real is result), result)


def _assign_foreign(real: Any, key: Any, value: Any) -> None:
    real[key] = _with_real_array(value, [])
    if real.dtype.kind == "O":
        _unveil(real)


assignment.assign_foreign = _assign_foreign


def _unveil(objects: Any) -> None:
    """Put the objects themselves in the place of what NumPy was shown of them."""
    for index in np.ndindex(objects.shape):
        if type(objects[index]) is _Foreign:
            objects[index] = objects[index]._value


def _with_real_array(value: Any, kept: Kept) -> Any:
    if type(value) in (list, tuple):
        return type(value)([_with_real_array(item, kept) for item in value])
    if isinstance(value, (np.ndarray, np.generic, type)) or not hasattr(value, "__array__"):
        return value
    return _Foreign(value, kept)


class _Foreign:
    """An object whose `__array__` is written with lazyfuse, as NumPy can take it."""

    def __init__(self, value: Any, kept: Kept) -> None:
        self._value = value
        self._kept = kept

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return to_numpy(self._value.__array__(*args, **kwargs), self._kept)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._value, name)
        return _wrapping(found) if name == "__array_wrap__" else found


def _wrapping(method: Callable[..., Any]) -> Callable[..., Any]:
    """An `__array_wrap__` as NumPy may call it: it sees our arrays, our ufunc, its own object."""

    def array_wrap(result: Any, context: Any = None, *rest: Any) -> Any:
        if context is not None:
            function, args, place = context
            shown = [x._value if type(x) is _Foreign else from_numpy(x, []) for x in args]
            context = OURS.get(function, function), tuple(shown), place
        return method(from_numpy(result, []), context, *rest)

    return array_wrap


def _dispatched(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with arguments that override NumPy's functions."""
    if hasattr(function, "_implementation") or "like" in kwargs:
        return overrides.call_function(function, args, kwargs)
    named = {name: gathered(value) for name, value in kwargs.items()}
    return from_numpy(call(function, [gathered(value) for value in args], named), [])


def run(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call NumPy's `function` on the real arrays behind the arguments; wrap what it returns."""
    kept: Kept = []
    real_args = [to_numpy(value, kept) for value in args]
    if not kwargs:
        if kept and any(ours is _FOREIGN for _real, ours in kept):
            return _dispatched(function, args, kwargs)
        result = call(function, real_args, kwargs)
    else:
        loans: Kept = []
        with changing(kwargs.get("out")):
            named = {
                key: _borrow_out(value, loans) if key == "out" else to_numpy(value, kept)
                for key, value in kwargs.items()
            }
            if kept and any(ours is _FOREIGN for _real, ours in kept):
                return _dispatched(function, args, kwargs)
            result = call(function, real_args, named)
        kept = loans + kept
    if any(type(ours) is ndarray and ours._small is None for _real, ours in kept):
        count(name, sys._getframe(1))
        if type(result) not in _WRAP and isinstance(result, _HOLDERS) and _holds(result, kept):
            return function(*_lent(args), **_lent(kwargs))
    return from_numpy(result, kept)


_HOLDERS = (np.ndarray, ctypes.Array)
"""Results that remain NumPy's own: subclasses of its array, and what is made for C."""


def _holds(result: Any, kept: Kept) -> bool:
    """Whether a result that stays NumPy's looks at the memory of an array of ours."""
    if not isinstance(result, np.ndarray):
        return True
    parts = [part for part in (result, getattr(result, "_mask", None)) if part is not None]
    return any(
        type(ours) is ndarray and np.may_share_memory(part, real)
        for part in parts
        for real, ours in kept
    )


def _lent(value: Any) -> Any:
    """`value` with the memory of our arrays in it as somebody outside may keep it."""
    kind = type(value)
    if kind is ndarray:
        return export(value)
    if kind in (list, tuple):
        return kind([_lent(item) for item in value])
    if kind is dict:
        return {key: _lent(item) for key, item in value.items()}
    return gathered(value)


def run_writing(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    written: tuple[int, ...],
) -> Any:
    """As `run`, for a function that writes into its arguments at the positions `written`."""
    kept: Kept = []
    loans: Kept = []
    with changing((*[args[at] for at in written if at < len(args)], kwargs.get("out"))):
        real_args = [
            _borrow_out(value, loans) if position in written else to_numpy(value, kept)
            for position, value in enumerate(args)
        ]
        named = {
            key: _borrow_out(value, loans) if key == "out" else to_numpy(value, kept)
            for key, value in kwargs.items()
        }
        if overrides.of_functions.find(args) and hasattr(function, "_implementation"):
            return overrides.call_function(function, args, kwargs)
        result = function(*real_args, **named)
    count(name, sys._getframe(1))
    return from_numpy(result, loans + kept)


def _out_position(function: Any) -> int:
    """Where `out` stands among the positional parameters of `function`; -1: nowhere."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return -1
    for position, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return -1
        if parameter.name == "out" and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return position
    return -1


def _plain(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    out = -2  # not known yet: signatures are slow to read

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal out
        if len(args) > 1:  # the first is never an output
            if out == -2:
                out = _out_position(function)
            if 0 <= out < len(args):
                return run_writing(function, name, args, kwargs, (out,))
        return run(function, name, args, kwargs)

    return call


def _writing(
    function: Callable[..., Any], name: str, written: tuple[int, ...]
) -> Callable[..., Any]:
    first = next(iter(inspect.signature(function).parameters.values()))
    by_name = first.name if first.kind is first.POSITIONAL_OR_KEYWORD else ""

    def call(*args: Any, **kwargs: Any) -> Any:
        if by_name in kwargs and not args:
            args = (kwargs.pop(by_name),)
        return run_writing(function, name, args, kwargs, written)

    return call


def _calling_back(
    function: Callable[..., Any], name: str, positions: tuple[int, ...]
) -> Callable[..., Any]:
    names = list(inspect.signature(function).parameters)
    keywords = {names[position] for position in positions}

    def call(*args: Any, **kwargs: Any) -> Any:
        converted = [
            callback(value) if position in positions else value
            for position, value in enumerate(args)
        ]
        named = {
            key: callback(value) if key in keywords else value for key, value in kwargs.items()
        }
        return run(function, name, tuple(converted), named)

    return call


pair(np.ndarray, ndarray)


def wrap_function(function: Callable[..., Any], package: str = "lazyfuse") -> Callable[..., Any]:
    """A function of ours that runs NumPy's `function` at once on whatever arrays it is given."""
    module = getattr(function, "__module__", None) or "numpy"
    short: str = function.__name__
    name = f"{module}.{short}".removeprefix("numpy.")
    if module.partition(".")[0] == "numpy" and short in WRITTEN:
        ours = _writing(function, name, WRITTEN[short])
    elif short in CALLBACKS:
        ours = _calling_back(function, name, CALLBACKS[short])
    else:
        ours = _plain(function, name)
    dress(ours, function, package)
    made: Callable[..., Any] = as_builtin(ours, function)
    pair(function, made)
    return made
