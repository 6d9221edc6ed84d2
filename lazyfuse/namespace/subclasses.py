"""Classes derived from our `ndarray`, and what `ndarray.name` is for every kind of array.

A class that a user derives from our `ndarray` is a subclass of NumPy's (instance_checks.py says
why). `Bridge` stands between the two: as NumPy's array, but what comes from us, arrays, ufuncs,
functions and classes, is welcome as an argument, and a plain array that it hands out is ours.

Methods of a subclass name their base (`np.ndarray.copy(self)`), or call it through `super()`.
`unbound` makes what the first of these finds: the method or attribute of our arrays for ours, that
of `Bridge` for all others. So there is one place where a method of NumPy's learns of ours.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse.arrays import instance_checks
from lazyfuse.arrays.attributes import refuse
from lazyfuse.arrays.conversion import EXPORT, to_numpy, wrap_maybe_shared
from lazyfuse.arrays.ndarray import OURS as KINDS
from lazyfuse.arrays.ndarray import export, ndarray
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.namespace import numpy_modules
from lazyfuse.registry import OURS

REAL = np.ndarray


def _given(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """An argument for NumPy; `pairs` gets NumPy's array and ours, in tuples of outputs as well."""
    if type(value) is ndarray:
        pairs.append((export(value), value))
        return pairs[-1][0]
    if type(value) is tuple:
        return tuple([_given(each, pairs) for each in value])
    return to_numpy(value, EXPORT)


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call NumPy's `function` with NumPy's arrays; what it returns of ours, or plain, is ours."""
    pairs: list[tuple[Any, Any]] = []
    named = {name: _given(value, pairs) for name, value in kwargs.items()}
    result = function(*[_given(value, pairs) for value in args], **named)
    return _plain_as_ours(result, pairs)


def _plain_as_ours(result: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """A plain array of NumPy's, alone or in a tuple, as ours: as the one it was made from."""
    if type(result) is tuple:
        return tuple([_plain_as_ours(each, pairs) for each in result])
    if type(result) is not REAL:
        return result
    found = [ours for real, ours in pairs if real is result]
    return found[0] if found else instance_checks.with_base(wrap_maybe_shared(result), result.base)


# ----------------------------------------------------------------------------------- subclasses


class _Inherited:
    """A method of the protocols for classes that inherit it: NumPy takes the class for one without.

    NumPy asks the class, and a method that is not its own means that the class overrides.
    `super()` asks for a method of the instance.
    """

    def __init__(self, name: str, method: Callable[..., Any]) -> None:
        self.theirs = getattr(REAL, name)
        self.method = method

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.theirs if instance is None else types.MethodType(self.method, instance)


def call_ufunc(self: Any, ufunc: Any, method: Any, *inputs: Any, **kwargs: Any) -> Any:
    """As `numpy.ndarray.__array_ufunc__`, for our ufuncs and operands as well."""
    return _call(REAL.__array_ufunc__, self, ufunc, method, *inputs, **kwargs)


def call_function(self: Any, func: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
    """As `numpy.ndarray.__array_function__`, for our functions and arrays as well."""
    known = [REAL if kind is ndarray else kind for kind in kinds]
    pairs: list[tuple[Any, Any]] = []
    named = {name: _given(value, pairs) for name, value in kwargs.items()}
    real = tuple([_given(value, pairs) for value in args])
    function: Callable[..., Any] = REAL.__array_function__
    return _plain_as_ours(function(self, to_numpy(func), known, real, named), pairs)


class Bridge(REAL):
    """The base of classes that users derive from `ndarray`: NumPy's array, which accepts ours."""

    __array_ufunc__ = _Inherited("__array_ufunc__", call_ufunc)
    __array_function__ = _Inherited("__array_function__", call_function)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let what the class has of the protocols see our objects where NumPy calls it."""
        super().__init_subclass__(**kwargs)
        for name, tell in _TOLD.items():
            owner = next(each for each in cls.__mro__ if name in vars(each))
            found = vars(owner)[name]
            if type(found) is types.FunctionType and (owner is cls or not issubclass(owner, REAL)):
                setattr(cls, name, functools.wraps(found)(tell(found)))

    __new__ = ndarray.__new__  # type: ignore[assignment]

    def __array_wrap__(self, array: Any, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ndarray.__array_wrap__`."""
        if type(array) is ndarray:
            array = export(array)
        return REAL.__array_wrap__(self, array, *args, **kwargs)

    def __array_namespace__(self, **kwargs: Any) -> Any:
        """As `numpy.ndarray.__array_namespace__`: the module lazyfuse."""
        return wrap_maybe_shared(np.empty(0)).__array_namespace__(**kwargs)

    def _base(self) -> Any:
        found = REAL.base.__get__(self)
        return instance_checks.owner(found) if type(found) is REAL else found

    base = property(_base, functools.partial(refuse, "base"))


def _bridged(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: _call(getattr(REAL, name), self, *args, **kwargs)


def _writing(name: str) -> Callable[..., Any]:
    """A method with `out`, which NumPy refuses where it is an array of ours.

    What it returns is plain where the class's own `__array_ufunc__` makes it so.
    """
    theirs = getattr(REAL, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = theirs(self, *args, **kwargs)
        except TypeError:
            if KINDS.isdisjoint(map(type, (*args, *kwargs.values()))):
                raise
            return _call(theirs, self, *args, **kwargs)
        return wrap_maybe_shared(result) if type(result) is REAL else result

    return method


_PLAIN = ("nonzero", "searchsorted", "view")
"""Methods that take a class of ours, or return a plain array."""

_WITH_OUT = """all any argmax argmin choose clip compress conj conjugate cumprod cumsum dot max mean
min prod round std sum take trace var""".split()

for _name in (*_PLAIN, *_WITH_OUT):
    _made = (_bridged if _name in _PLAIN else _writing)(_name)
    setattr(Bridge, _name, functools.update_wrapper(_made, getattr(REAL, _name)))


def derived(
    name: str, bases: tuple[type, ...], namespace: dict[str, Any], kwargs: dict[str, Any]
) -> Any:
    """The class that a user derives from ours, as a subclass of NumPy's array."""
    real = tuple([Bridge if base is ndarray else base for base in bases])
    namespace.pop("__slots__", None) if namespace.get("__slots__") == () else None
    return types.new_class(name, real, kwargs, lambda scope: scope.update(namespace))


# ------------------------------------------------------------------- what users' methods are told


def _our_function(function: Any) -> Any:
    if type(function) is np.ufunc:
        return ufunc_of(function)
    found = OURS.get(function)
    return numpy_modules.called(function) if found is None else found


def _told_of_ufuncs(method: Callable[..., Any]) -> Callable[..., Any]:
    def told(self: Any, ufunc: Any, *args: Any, **kwargs: Any) -> Any:
        ours = ufunc_of(ufunc) if type(ufunc) is np.ufunc else ufunc
        return method(self, ours, *_plain_as_ours(args, []), **kwargs)

    return told


def _told_of_functions(method: Callable[..., Any]) -> Callable[..., Any]:
    def told(self: Any, func: Any, kinds: Any, *args: Any, **kwargs: Any) -> Any:
        known = tuple([ndarray if kind is REAL else kind for kind in kinds])
        return method(self, _our_function(func), known, *args, **kwargs)

    return told


def _told_of_results(method: Callable[..., Any]) -> Callable[..., Any]:
    def told(self: Any, array: Any, context: Any = None, *args: Any, **kw: Any) -> Any:
        if context is not None:
            ufunc, operands, place = context
            context = _our_function(ufunc), _plain_as_ours(operands, []), place
        return method(self, _plain_as_ours(array, []), context, *args, **kw)

    return told


_TOLD: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "__array_ufunc__": _told_of_ufuncs,
    "__array_function__": _told_of_functions,
    "__array_wrap__": _told_of_results,
}


# ------------------------------------------------------------------------------ `ndarray.name`


class _Attribute(property):
    """An attribute of arrays as the class has it: reads and writes that of any array."""

    __objclass__ = ndarray
    __name__: str
    __qualname__: str
    __wrapped__: Any


_made_for: dict[str, tuple[Any, Any]] = {}


def unbound(name: str) -> Any:
    """What `ndarray.name` is: a method or attribute for our arrays and for NumPy's."""
    ours = type.__getattribute__(ndarray, name)
    kept = _made_for.get(name)
    if kept is None or kept[0] is not ours:
        theirs = getattr(REAL, name)
        bridged = getattr(Bridge, name)
        made = _method(ours, bridged) if callable(theirs) else _attribute(name, bridged)
        made.__name__, made.__qualname__ = name, f"ndarray.{name}"
        made.__doc__, made.__wrapped__ = theirs.__doc__, theirs  # its signature is shown
        kept = _made_for[name] = ours, made
    return kept[1]


def _method(ours: Any, theirs: Any) -> Any:
    def method(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is ndarray:
            return ours(*args, **kwargs)
        result = theirs(*args, **kwargs)
        return result if args and result is args[0] else _plain_as_ours(result, [])

    made: Any = method
    made.__module__ = "lazyfuse"
    made.__objclass__ = ndarray
    return made


def _attribute(name: str, theirs: Any) -> Any:
    def read(x: Any) -> Any:
        if type(x) is ndarray:
            return getattr(x, name)
        return _plain_as_ours(theirs.__get__(x, type(x)), [])

    def write(x: Any, value: Any) -> None:
        if type(x) is ndarray:
            setattr(x, name, value)
        else:
            theirs.__set__(x, value)

    return _Attribute(read, write)
