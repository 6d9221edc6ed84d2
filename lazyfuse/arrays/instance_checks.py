"""What `isinstance` says of arrays: NumPy's are instances of `ndarray`.

Our arrays pass for NumPy's only in NumPy's own Python code, which asks and then uses nothing but
what every array has (`numpy.testing`, `numpy.ctypeslib`, `numpy.ma`, `numpy.matrix`). Elsewhere
they do not: pandas, for example, gives arrays that pass to compiled code, which would read memory
that ours do not have. Such code gets numpy arrays from `__array__`.

A class that a user derives from our `ndarray` is made a subclass of NumPy's: NumPy alone knows
`__array_finalize__`, `__array_wrap__`, views and pickles of subclasses, and such arrays run at
once anyway. namespace/subclasses.py makes these classes, and says what `ndarray.copy` is. Owns the
metaclass `Kind`. Imports nothing of lazyfuse that imports arrays.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from types import GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import numpy as np

from lazyfuse.arrays.base import COMPILED, HOOKS, NATIVE
from lazyfuse.bootstrap import PACKAGES


def _asked_by_us() -> bool:
    """Whether lazyfuse itself asks: there `ndarray` means our class alone."""
    return sys._getframe(2).f_globals.get("__package__") in PACKAGES


_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType)
SERVED = frozenset(
    name for name, found in vars(np.ndarray).items() if isinstance(found, _DESCRIPTORS)
) - {"__array_ufunc__", "__array_function__"}
"""What the class `ndarray` has for every array. NumPy asks the class for the two left out whenever
it meets an array of ours: those find out by themselves what they were called with."""


class Kind(type):
    """The metaclass of `ndarray`."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> Any:
        """A class of ours unchanged; a user's class as a subclass of NumPy's array."""
        ours = [base for base in bases if type(base) is mcls]
        if not ours or str(namespace.get("__module__", "")).partition(".")[0] == "lazyfuse":
            return super().__new__(mcls, name, bases, namespace)
        return Kind.derived(name, bases, namespace, kwargs)

    @property
    def __signature__(cls) -> inspect.Signature:
        """NumPy's, where it has one: from NumPy 2.4 on."""
        return inspect.signature(np.ndarray)

    derived: Callable[..., Any]
    """Makes the class that a user derives from ours."""

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


def serve(cls: Kind, derived: Callable[..., Any], unbound: Callable[[str], Any]) -> None:
    """Complete the metaclass of `cls`: how classes are derived, and what the class has."""
    Kind.derived = staticmethod(derived)
    if COMPILED:
        NATIVE.serve(SERVED, unbound)
        return

    def look_up(self: Kind, name: str) -> Any:
        if self is cls and name in SERVED:
            return unbound(name)
        return type.__getattribute__(self, name)

    Kind.__getattribute__ = look_up  # type: ignore[assignment, method-assign]


_owners: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}


def own(real: Any, ours: Any) -> Any:
    """`real`, after noting that its views of subclasses have our array `ours` as their owner."""
    key = id(real)
    _owners[key] = weakref.ref(real, lambda _: _owners.pop(key, None)), weakref.ref(ours)
    return real


def owner(real: Any) -> Any:
    """The array of ours that `own` noted for `real`; a new one if it no longer exists."""
    entry = _owners.get(id(real))
    ours = entry[1]() if entry is not None and entry[0]() is real else None
    if ours is None:
        ours = HOOKS.wrap_shared(real)
        own(real, ours)
    return ours


def with_base(x: Any, base: Any) -> Any:
    """`x`, which shows memory that a subclass's array has: its `base` is NumPy's."""
    if base is not None and x.base is None:
        x._base = owner(base) if type(base) is np.ndarray else base
    return x
