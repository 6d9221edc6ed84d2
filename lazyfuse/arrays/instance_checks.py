"""What `isinstance` says of arrays: NumPy's are instances of `ndarray`.

Our arrays pass for NumPy's only in NumPy's own Python code, which asks and then uses nothing but
what every array has (`numpy.testing`, `numpy.ctypeslib`, `numpy.ma`, `numpy.matrix`). Elsewhere
they do not: pandas, for example, gives arrays that pass to compiled code, which would read memory
that ours do not have. Such code gets numpy arrays from `__array__`.

A class that a user derives from our `ndarray` is made a subclass of NumPy's: NumPy alone knows
`__array_finalize__`, `__array_wrap__`, views and pickles of subclasses, and such arrays run at
once anyway. Owns the metaclass `Kind` and `Bridge`, the base that those classes get. Imports
nothing of lazyfuse that imports arrays.
"""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any

import numpy as np

from lazyfuse.arrays.base import HOOKS
from lazyfuse.bootstrap import PACKAGES
from lazyfuse.registry import THEIRS


def _asked_by_us() -> bool:
    """Whether lazyfuse itself asks: there `ndarray` means our class alone."""
    return sys._getframe(2).f_globals.get("__package__") in PACKAGES


def kind_for_others(self: Any) -> type:
    """The `__class__` of an array: `isinstance` reads it where the type does not match."""
    asking = str(sys._getframe(1).f_globals.get("__name__"))
    return np.ndarray if asking.startswith("numpy.") else type(self)


class Kind(type):
    """The metaclass of `ndarray`."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> Any:
        """A class of ours unchanged; a user's class as a subclass of NumPy's array."""
        ours = [base for base in bases if type(base) is mcls]
        if not ours or str(namespace.get("__module__", "")).partition(".")[0] == "lazyfuse":
            return super().__new__(mcls, name, bases, namespace)
        bridge = UfuncBridge if "__array_ufunc__" in namespace else Bridge
        real = tuple([bridge if type(base) is mcls else base for base in bases])
        namespace.pop("__slots__", None) if namespace.get("__slots__") == () else None
        return types.new_class(name, real, kwargs, lambda scope: scope.update(namespace))

    def __instancecheck__(cls, instance: Any) -> bool:
        kind: type = type(instance)
        if kind is cls:
            return True
        if _asked_by_us():
            return type.__instancecheck__(cls, instance)
        return isinstance(instance, np.ndarray)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if _asked_by_us():
            return type.__subclasscheck__(cls, subclass)
        if type(subclass) is type(cls):
            return subclass is cls
        return issubclass(subclass, np.ndarray)


_owners: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}


def own(real: Any, ours: Any) -> Any:
    """`real`, after noting that its views of subclasses have our array `ours` as their owner."""
    key = id(real)
    _owners[key] = weakref.ref(real, lambda _: _owners.pop(key, None)), weakref.ref(ours)
    return real


def _owner(real: Any) -> Any:
    """The array of ours that `own` noted for `real`; a new one if it no longer exists."""
    entry = _owners.get(id(real))
    ours = entry[1]() if entry is not None and entry[0]() is real else None
    if ours is None:
        ours = HOOKS.wrap_shared(real)
        own(real, ours)
    return ours


def _real(x: Any) -> Any:
    return np.asarray(x) if hasattr(x, "_eager") else x


class Bridge(np.ndarray):
    """The base of classes that users derive from `ndarray`: NumPy's array, which accepts ours."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ndarray(shape, dtype, buffer, ...)`; the buffer may be an array of ours."""
        named = {name: _real(x) for name, x in kwargs.items()}
        return super().__new__(cls, *[_real(x) for x in args], **named)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        """As `numpy.ndarray.view`; our `ndarray` as the type means a plain array."""
        real = [THEIRS.get(x, x) if isinstance(x, type) else x for x in args]
        named = {k: THEIRS.get(x, x) if isinstance(x, type) else x for k, x in kwargs.items()}
        result = super().view(*real, **named)
        return HOOKS.wrap_shared(result) if type(result) is np.ndarray else result

    @property
    def base(self) -> Any:
        """As `numpy.ndarray.base`."""
        found: Any = super().base
        return _owner(found) if type(found) is np.ndarray else found

    def nonzero(self) -> Any:
        """As `numpy.ndarray.nonzero`."""
        return tuple([HOOKS.wrap_shared(indices) for indices in super().nonzero()])


class UfuncBridge(Bridge):
    """`Bridge` for classes with an `__array_ufunc__` of their own, which calls this one."""

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **kwargs: Any) -> Any:
        """As `numpy.ndarray.__array_ufunc__`, for our ufuncs and operands as well."""
        named = {name: _real(x) for name, x in kwargs.items()}
        if type(named.get("out")) is tuple:
            named["out"] = tuple([_real(x) for x in named["out"]])
        ufunc = getattr(ufunc, "_call", ufunc)
        return super().__array_ufunc__(ufunc, method, *[_real(x) for x in inputs], **named)
