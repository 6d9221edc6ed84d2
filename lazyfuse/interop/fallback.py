"""NumPy functions that are not recorded: gather the arguments, run NumPy, wrap and count.

Owns the path of a call into NumPy and back, and the count per function and source line. Where NumPy
writes into an array (`out=`, `copyto`, `put`, ...), our array gets the values.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from lazyfuse.arrays import assignment
from lazyfuse.arrays.base import NATIVE
from lazyfuse.arrays.conversion import EXPORT, FOREIGN, Kept, from_numpy, to_numpy
from lazyfuse.arrays.ndarray import (
    changing,
    direct,
    ndarray,
    writable,
)
from lazyfuse.arrays.scalars import scalar
from lazyfuse.errors import refuses_ours
from lazyfuse.interop import chunked_api, overrides
from lazyfuse.registry import OURS, THEIRS, as_builtin, dress, implements, pair
from lazyfuse.runtime.events import numpy_calls, spans
from lazyfuse.runtime.scheduling import evaluate

WRITTEN = frozenset("copyto fill_diagonal place put put_along_axis putmask".split())
"""Functions that write into their first argument."""

CALLBACKS = {
    "apply_along_axis": 0,
    "apply_over_axes": 0,
    "fromfunction": 0,
    "mask_indices": 1,
    "pad": 2,
    "piecewise": 2,
}
"""Positions of arguments that are the user's functions: they are called with our arrays."""

OVERWRITING = {
    "median": 3, "nanmedian": 3, "percentile": 4, "nanpercentile": 4, "quantile": 4,
    "nanquantile": 4,
}  # fmt: skip
"""Positions of `overwrite_input`. It leaves the order of the elements open: recorded work may read
them, so they stay as they are."""


# ---------------------------------------------------------------- in place


def _borrow_out(out: Any, kept: Kept) -> Any:
    if type(out) is tuple:
        return tuple([_borrow_out(item, kept) for item in out])
    if type(out) is ndarray:
        real = writable(out)
    elif type(out) is np.ndarray:
        real = out  # returned unchanged
    else:
        return to_numpy(out) if type(out) is scalar else out  # NumPy raises its own error
    kept[0].insert(0, real)  # before arrays that read the same memory
    kept[1].insert(0, out)
    return real


def _real_keywords(kwargs: dict[str, Any], kept: Kept) -> dict[str, Any]:
    return {
        key: _borrow_out(value, kept) if key == "out" else to_numpy(value, kept)
        for key, value in kwargs.items()
    }


# --------------------------------------------------------------- callbacks


def callback(function: Any) -> Any:
    """Wrap the user's `function` for NumPy: it sees our arrays and may return them."""
    if type(function) in (list, tuple):
        return [callback(item) for item in function]
    if not callable(function) or isinstance(function, type):
        return to_numpy(function)
    if isinstance(function, (FunctionType, MethodType)) and function not in THEIRS:
        return _Callback(function)
    return to_numpy(function)


class _Callback:
    """A user's function that NumPy calls, with our arrays."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", "callback")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        named = {name: _for_callback(value) for name, value in kwargs.items()}
        return to_numpy(self._function(*[_for_callback(value) for value in args], **named))


def _for_callback(value: Any) -> Any:
    """An array of ours that reads and writes NumPy's memory directly."""
    return from_numpy(value, made=direct)


# ------------------------------------------------------------------- calls


def given(**named: Any) -> dict[str, Any]:
    """The keyword arguments that are not None: objects that override see no others."""
    return {name: value for name, value in named.items() if value is not None}


def call(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call NumPy; call it again if an object's `__array__` gives one of our arrays."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        if not refuses_ours(error):
            raise
    kept: Kept = [], []
    named = {name: _with_real_array(value, kept) for name, value in kwargs.items()}
    result = function(*[_with_real_array(value, kept) for value in args], **named)
    if type(result) is np.ndarray and result.dtype.kind == "O":
        _unveil(result)
    return next((ours for real, ours in zip(*kept, strict=True) if real is result), result)


def _assign_foreign(real: Any, key: Any, value: Any) -> None:
    real[key] = _with_real_array(value, ([], []))
    if real.dtype.kind == "O":
        _unveil(real)


assignment.assign_foreign = _assign_foreign


def _unveil(objects: Any) -> None:
    """Put the objects back in the place of the replacements that NumPy saw."""
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
    """Wraps an object whose `__array__` returns an array of ours, so that NumPy can take it."""

    def __init__(self, value: Any, kept: Kept) -> None:
        self._value = value
        self._kept = kept

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return to_numpy(self._value.__array__(*args, **kwargs), self._kept)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._value, name)
        return _wrapping(found) if name == "__array_wrap__" else found


def _wrapping(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an `__array_wrap__` for NumPy: it sees our arrays, our ufunc, its own object."""

    def array_wrap(result: Any, context: Any = None, *rest: Any) -> Any:
        if context is not None:
            function, args, place = context
            shown = [x._value if type(x) is _Foreign else from_numpy(x) for x in args]
            context = OURS.get(function, function), tuple(shown), place
        return method(from_numpy(result), context, *rest)

    return array_wrap


def _dispatched(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with arguments that override NumPy's functions."""
    if hasattr(function, "_implementation") or "like" in kwargs:
        return overrides.call_function(function, args, kwargs)
    named = {name: to_numpy(value) for name, value in kwargs.items()}
    return from_numpy(call(function, [to_numpy(value) for value in args], named))


_call_plainly: Any = None if NATIVE is None else NATIVE.call_plainly


def run(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call NumPy's `function` on the NumPy arrays of the arguments; wrap what it returns."""
    if spans.on:
        with spans.calling(name):
            return _run(function, name, args, kwargs)
    return _run(function, name, args, kwargs)


def _run(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    found = None if evaluate.chunked is None else chunked_api.by_dask(function, args, kwargs)
    if found is not None:
        return found
    kept: Kept = [], []
    ours = kept[1]
    if _call_plainly is not None:
        done = _call_plainly(function, name, args, kwargs)
        if done is not None:
            if done[1]:
                return done[0]
            to_numpy(args, kept)  # what it may have views of
            return _finished(done[0], function, args, kwargs, kept)
    real_args = [to_numpy(value, kept) for value in args]
    if not kwargs:
        if ours and any(x is FOREIGN for x in ours):
            return _dispatched(function, args, kwargs)
        result = call(function, real_args, kwargs)
    else:
        with changing(kwargs.get("out")):
            named = _real_keywords(kwargs, kept)
            if ours and any(x is FOREIGN for x in ours):
                return _dispatched(function, args, kwargs)
            result = call(function, real_args, named)
    if _is_any_recorded(ours):
        numpy_calls.count(name, sys._getframe(1))
    return _finished(result, function, args, kwargs, kept)


def _finished(
    result: Any,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    kept: Kept,
) -> Any:
    """NumPy's result with our arrays instead of NumPy's; what stays NumPy's holds exports."""
    reals, ours = kept
    kind = type(result)
    stays = kind is not np.ndarray and issubclass(kind, _HOLDERS)
    stays = stays and not any(result is each for each in (*args, *kwargs.values()))
    if stays and _is_any_recorded(ours) and _holds(result, kept):
        return function(*to_numpy(args, EXPORT), **to_numpy(kwargs, EXPORT))
    return from_numpy(result, reals, ours)


def _is_any_recorded(ours: list[Any]) -> bool:
    """Whether any of the arrays is not eager: its calls of NumPy are counted."""
    return any(type(x) is ndarray and x._eager is None for x in ours)


_HOLDERS = (np.ndarray, ctypes.Array)
"""Results that stay NumPy's: subclasses of its array, and objects made for C."""


def _holds(result: Any, kept: Kept) -> bool:
    """Whether a result that stays NumPy's is a view of the memory of an array of ours."""
    if not isinstance(result, np.ndarray):
        return True
    found = result, getattr(result, "_mask", None)
    parts = [np.asarray(part) for part in found if part is not None]  # no class hears of it
    return any(
        type(ours) is ndarray and np.may_share_memory(part, real)
        for part in parts
        for real, ours in zip(*kept, strict=True)
    )


def run_writing(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    written: int = 0,
) -> Any:
    """As `run`, for a function that writes into its argument at the position `written`."""
    kept: Kept = [], []
    with (
        spans.calling(name),
        changing((*args[written : written + 1], kwargs.get("out"))),
    ):
        real_args = [
            _borrow_out(value, kept) if position == written else to_numpy(value, kept)
            for position, value in enumerate(args)
        ]
        named = _real_keywords(kwargs, kept)
        if overrides.of_functions.find(args) and hasattr(function, "_implementation"):
            return overrides.call_function(function, args, kwargs)
        result = function(*real_args, **named)
    numpy_calls.count(name, sys._getframe(1))
    return from_numpy(result, *kept)


def _out_position(function: Any) -> int:
    """The position of `out` among the positional parameters of `function`; -1: none."""
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


def _plain(
    function: Callable[..., Any], name: str, shown: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A call of NumPy's `function`; `shown` has its parameters where it shows none itself."""
    out = -2  # not read yet: reading signatures is slow
    overwriting = OVERWRITING.get(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal out
        if overwriting is not None:
            if len(args) > overwriting:
                args = (*args[:overwriting], False, *args[overwriting + 1 :])
            elif "overwrite_input" in kwargs:
                kwargs["overwrite_input"] = False
        if len(args) > 1:  # the first is never an output
            if out == -2:
                out = _out_position(shown or function)
            if 0 <= out < len(args):
                return run_writing(function, name, args, kwargs, out)
        return run(function, name, args, kwargs)

    return call


def _writing(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    first = next(iter(inspect.signature(function).parameters.values()))
    by_name = first.name if first.kind is first.POSITIONAL_OR_KEYWORD else ""

    def call(*args: Any, **kwargs: Any) -> Any:
        if by_name in kwargs and not args:
            args = (kwargs.pop(by_name),)
        return run_writing(function, name, args, kwargs)

    return call


def _calling_back(function: Callable[..., Any], name: str, at: int) -> Callable[..., Any]:
    keyword = list(inspect.signature(function).parameters)[at]

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > at:
            args = (*args[:at], callback(args[at]), *args[at + 1 :])
        elif keyword in kwargs:
            kwargs[keyword] = callback(kwargs[keyword])
        return run(function, name, args, kwargs)

    return call


class Refused(Exception):
    """The call cannot be recorded: NumPy runs it."""


def or_at_once(
    ours: Callable[..., Any], theirs: Callable[..., Any], name: str
) -> Callable[..., Any]:
    """`ours`, and NumPy's function for what it refuses, or gives None for.

    NumPy gets the arguments as the user wrote them, also those that fit no parameter.
    """
    at_once = _plain(theirs, name, ours)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            found = ours(*args, **kwargs)
        except Refused:
            found = None
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            found = None  # wrong names or numbers of arguments: NumPy raises its own error
        return at_once(*args, **kwargs) if found is None else found

    return call


def records(theirs: Any, eager: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Decorator: `implements` for a function that gives None for what NumPy has to run."""

    def register(ours: Callable[..., Any]) -> Any:
        call: Any = or_at_once(ours, theirs, theirs.__name__)
        call.recorded = ours
        return implements(theirs, eager=eager)(call)

    return register


pair(np.ndarray, ndarray)


def wrap_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of ours that runs NumPy's `function` at once on its arguments."""
    module = getattr(function, "__module__", None) or "numpy"
    short: str = function.__name__
    name = numpy_calls.name_of(function)
    if module.partition(".")[0] == "numpy" and short in WRITTEN:
        ours = _writing(function, name)
    elif short in CALLBACKS:
        ours = _calling_back(function, name, CALLBACKS[short])
    else:
        ours = _plain(function, name)
    dress(ours, function)
    made: Callable[..., Any] = as_builtin(ours, function)
    pair(function, made)
    return made
