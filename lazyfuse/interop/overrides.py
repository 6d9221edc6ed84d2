"""Objects that override: `__array_ufunc__` (NEP 13) and `__array_function__` (NEP 18).

Such classes get our function objects and our unevaluated arrays instead of NumPy's. To find out how
NumPy would call them, and whether it would refuse the call, lazyfuse calls NumPy with probes in the
place of the overriding objects and of our arrays. NumPy calls a probe's method, which passes the
call on to the object.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lazyfuse.arrays.conversion import EXPORT, to_numpy
from lazyfuse.arrays.ndarray import ndarray, wrap_shared
from lazyfuse.arrays.operators import PLAIN
from lazyfuse.devices.caches import memo
from lazyfuse.interop import chunked_api
from lazyfuse.registry import OURS, THEIRS
from lazyfuse.runtime.scheduling import evaluate


def _place(kind: type, kinds: Sequence[type]) -> int:
    """Where NumPy asks a class among others: before its bases, else after all of them."""
    return next((i for i, x in enumerate(kinds) if issubclass(kind, x)), len(kinds))


_ORDINARY: set[type] = {ndarray, np.ndarray, list, tuple, str, bytes, type(None), *PLAIN}


class _Question:
    """Whether a class overrides: it has its own method of the given name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.default = getattr(np.ndarray, name)
        # a program with more classes makes them in a loop
        self.known: dict[type, bool] = memo(f"interop.overrides.known{name}", 512)
        self.foreign: dict[type, bool] = memo(f"interop.overrides.foreign{name}", 512)

    def of_numpy(self, kind: type) -> bool:
        """Whether the method was written for NumPy alone, judged by its module.

        Such methods look functions up by identity and arrays by class, so they get NumPy's.
        """
        answer = self.foreign.get(kind)
        if answer is None:
            method = inspect.unwrap(getattr(kind, self.name))
            names = getattr(method, "__globals__", {}).values()
            ours = sys.modules["lazyfuse"]
            answer = any(x is np for x in names) and not any(x is ours for x in names)
            self.foreign[kind] = answer
        return answer

    def __call__(self, kind: type) -> bool:
        answer = self.known.get(kind)
        if answer is None:
            method = getattr(kind, self.name, self.default)
            answer = method is not self.default and not issubclass(kind, ndarray)
            self.known[kind] = answer
        return answer

    def find(self, values: Iterable[Any]) -> list[Any]:
        """The values that override, one per class: subclasses before their bases, else in order."""
        found: list[Any] = []
        for value in values:
            kind = type(value)
            if kind in _ORDINARY or not self(kind) or any(type(x) is kind for x in found):
                continue
            found.insert(_place(kind, [type(x) for x in found]), value)
        return found


of_ufuncs = _Question("__array_ufunc__")
of_functions = _Question("__array_function__")


class _Probe:
    """Replaces an object that overrides, or an array of ours, while NumPy dispatches."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        values = [_unveiled(x) for x in inputs]
        named = {name: _unveiled(x) for name, x in kwargs.items()}
        asked = of_ufuncs.find([*values, *named.get("out", ()), named.get("where")])
        return _ask_ufuncs(asked, OURS.get(ufunc, ufunc), method, values, named)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _ask_functions(
            OURS.get(func, func),
            func,
            tuple([_unveiled(x) for x in args]),
            {name: _unveiled(x) for name, x in kwargs.items()},
            self.value,
        )


def _veiled(value: Any, question: _Question) -> Any:
    kind = type(value)
    if kind is ndarray or (kind not in _ORDINARY and question(kind)):
        return _Probe(value)
    if kind in (list, tuple):
        return kind([_veiled(item, question) for item in value])
    return value


def _unveiled(value: Any) -> Any:
    kind = type(value)
    if kind is _Probe:
        return value.value
    if kind in (list, tuple):
        return kind([_unveiled(item) for item in value])
    return value


def call_ufunc(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a ufunc, or a method of a ufunc, with operands that override."""
    named = {name: _veiled(value, of_ufuncs) for name, value in kwargs.items()}
    return function(*[_veiled(value, of_ufuncs) for value in args], **named)


def call_function(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function of NumPy with arguments that override."""
    args, kwargs = _as_written(function, args, kwargs)
    named = {name: _veiled(value, of_functions) for name, value in kwargs.items()}
    return function(*[_veiled(value, of_functions) for value in args], **named)


def _as_written(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """A call without the defaults that our functions fill in: overriding objects see none.

    Arguments after a default are passed by name.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return args, kwargs
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return args, kwargs
    taken = list(zip(parameters, args, strict=False))
    first = next((i for i, pair in enumerate(taken) if _is_default(*pair)), len(args))
    later = [pair for pair in taken[first:] if not _is_default(*pair)]
    if any(parameter.kind is parameter.POSITIONAL_ONLY for parameter, _ in later):
        return args, kwargs
    named = {parameter.name: value for parameter, value in later}
    if "like" in kwargs:  # our functions that make arrays fill in every keyword
        known = {each.name: each for each in parameters}
        kwargs = {
            name: value
            for name, value in kwargs.items()
            if name == "like" or name not in known or not _is_default(known[name], value)
        }
    return args[:first], {**named, **kwargs}


def _is_default(parameter: inspect.Parameter, value: Any) -> bool:
    default = parameter.default
    return value is default or (type(value) in (bool, int, str) and value == default)


def _ask_ufuncs(
    asked: Sequence[Any], ufunc: Any, method: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    for operand in asked:
        if type(operand).__array_ufunc__ is None:
            name = type(operand).__name__
            raise TypeError(f"operand '{name}' does not support ufuncs (__array_ufunc__=None)")
    for operand in asked:
        if of_ufuncs.of_numpy(type(operand)):
            result = _ask_numpys(operand, THEIRS.get(ufunc, ufunc), method, args, kwargs)
        else:
            result = operand.__array_ufunc__(ufunc, method, *args, **kwargs)
        if result is not NotImplemented:
            return result
    parts = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    kinds = ", ".join(repr(type(arg).__name__) for arg in (*args, *kwargs.get("out", ())))
    raise TypeError(
        "operand type(s) all returned NotImplemented from "
        f"__array_ufunc__({ufunc!r}, {method!r}, {', '.join(parts)}): {kinds}"
    )


def _ask_numpys(
    operand: Any, ufunc: Any, method: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Call a ufunc override that was written for NumPy, with NumPy's ufunc and arrays."""
    real = _given_to(operand, kwargs)
    result = operand.__array_ufunc__(ufunc, method, *_given_to(operand, tuple(args)), **real)
    for ours, theirs in zip(kwargs.get("out", ()), real.get("out", ()), strict=True):
        if result is theirs:
            return ours
    return wrap_shared(result) if type(result) is np.ndarray else result


def _given_to(operand: Any, values: Any) -> Any:
    """Arguments for an override that was written for NumPy; Dask's gets ours in chunks as such."""
    if evaluate.chunked is not None and chunked_api.is_dask(operand):
        return chunked_api.for_dask(values)
    if type(values) is dict:
        return {name: to_numpy(value, EXPORT) for name, value in values.items()}
    return to_numpy(values, EXPORT)


def ask_again(
    asked: Sequence[Any], ufunc: Any, method: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Answer NumPy's dispatch of a ufunc: overrides written for NumPy get NumPy's arrays.

    NumPy may have called them before with our arrays, and they left the work to us.
    """
    for operand in asked:
        if type(operand).__array_ufunc__ is not None and of_ufuncs.of_numpy(type(operand)):
            result = _ask_numpys(operand, ufunc, method, args, kwargs)
            if result is not NotImplemented:
                return result
    return NotImplemented


def flat(values: Iterable[Any]) -> Iterable[Any]:
    """The values, and those in lists and tuples among them."""
    for value in values:
        if type(value) in (list, tuple):
            yield from flat(value)
        else:
            yield value


def _implementing(values: Iterable[Any]) -> list[type]:
    """The classes of `values` that have the method, as NumPy tells overrides of them."""
    found: list[type] = []
    for value in values:
        kind = np.ndarray if type(value) is ndarray else type(value)
        if getattr(kind, of_functions.name, None) is not None and kind not in found:
            found.insert(_place(kind, found), kind)
    return found


def _ask_functions(
    ours: Any, theirs: Any, args: tuple[Any, ...], kwargs: dict[str, Any], first: Any
) -> Any:
    values = list(flat([first, *args, *kwargs.values()]))
    known = _implementing(values)
    kinds = [ndarray if kind is np.ndarray else kind for kind in known]
    for value in of_functions.find(values):
        if of_functions.of_numpy(type(value)):
            real = _given_to(value, args), _given_to(value, kwargs)
            result = value.__array_function__(theirs, tuple(known), *real)
            result = wrap_shared(result) if type(result) is np.ndarray else result
        else:
            result = value.__array_function__(ours, tuple(kinds), args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{theirs.__module__ or 'numpy'}.{theirs.__name__}"
    raise TypeError(
        f"no implementation found for {name!r} on types that implement __array_function__: {kinds}"
    )
