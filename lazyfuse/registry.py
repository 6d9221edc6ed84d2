"""The pairs of our functions and NumPy's, by identity, in both directions.

Owns the two tables. Imports nothing of lazyfuse, so that every module may import it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

OURS: dict[Any, Any] = {}
"""NumPy's object -> ours (functions, ufuncs, classes)."""

THEIRS: dict[Any, Any] = {}
"""Our object -> NumPy's."""


def pair(theirs: Any, ours: Any) -> None:
    """Register `ours` as the replacement of `theirs`."""
    OURS.setdefault(theirs, ours)
    THEIRS[ours] = theirs


def ufunc_of(theirs: np.ufunc) -> Any:
    """Our object for one of NumPy's ufuncs (or one made by `frompyfunc`)."""
    ours = OURS.get(theirs)
    if ours is None:
        ours = OURS[np.ufunc](theirs)
        if is_numpys(theirs):  # a table entry would keep a user's alive
            pair(theirs, ours)
            ours = OURS[theirs]  # another thread's, where that one was first
    return ours


def is_numpys(ufunc: np.ufunc) -> bool:
    """Whether a ufunc is NumPy's, under its own name."""
    return getattr(np, ufunc.__name__, None) is ufunc


def dress(ours: Any, theirs: Any) -> None:
    """Give one of our functions the name, signature and documentation of NumPy's."""
    functools.update_wrapper(ours, theirs, assigned=("__name__", "__doc__"), updated=())
    ours.__qualname__ = theirs.__name__
    for name in ("__signature__", "__text_signature__"):
        found = getattr(theirs, name, None)
        if found is not None:
            setattr(ours, name, found)
    ours._implementation = getattr(theirs, "_implementation", theirs)  # NumPy looks it up
    module = getattr(theirs, "__module__", None) or "numpy"
    ours.__module__ = "lazyfuse" + module[5:] if module.startswith("numpy") else "lazyfuse"


def with_globals(function: types.FunctionType, scope: dict[str, Any]) -> types.FunctionType:
    """A copy of a Python function that finds its globals in `scope`."""
    copy = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class builtin(functools.partial[Any]):  # noqa: N801  # the name in Python's messages
    """Our replacement of a builtin function: as a class attribute it does not bind."""

    __name__: str
    __wrapped__: Any
    __text_signature__: Any
    _implementation: Any

    def __get__(self, instance: Any, owner: Any = None) -> builtin:
        return self

    def __repr__(self) -> str:
        return f"<built-in function {self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__


def as_builtin(ours: Callable[..., Any], theirs: Any) -> Any:
    """`ours`, as a `builtin` if `theirs` is one."""
    if not isinstance(theirs, types.BuiltinFunctionType):
        return ours
    made = builtin(ours.func if type(ours) is builtin else ours)
    made.__name__ = ours.__name__
    made.__doc__ = ours.__doc__
    made.__module__ = ours.__module__
    made.__wrapped__ = theirs
    made._implementation = theirs
    made.__text_signature__ = getattr(theirs, "__text_signature__", None)
    return made


NATIVE_KERNELS: dict[int, tuple[Any, Any]] = {}
"""By the id of NumPy's function: the function that computes the same by compiled loops, and it."""


def serves(theirs: Any) -> Callable[[F], F]:
    """Decorator: the function below, built on routines, replaces NumPy's `theirs` on the CPU.

    It takes NumPy arrays and the other arguments of `theirs`, and returns None where that has to
    run. `runtime/execution/routine.py` calls it.
    """

    def register(ours: F) -> F:
        NATIVE_KERNELS[id(theirs)] = ours, theirs
        return ours

    return register


EAGER: dict[Any, str] = {}
"""How small arrays reach NumPy's function directly: see `implements`."""


def implements(theirs: Any, eager: str = "") -> Callable[[F], F]:
    """Decorator: the function below replaces NumPy's `theirs`.

    `eager`: small arrays go directly to NumPy's function. It is a function of "arrays"; its results
    may be "views" of them; it may "broadcast" them to large results; or it makes arrays, which are
    "created"; or it writes to a "target", its first. Empty: the function below decides (or
    eager_table.py).
    """

    def register(ours: F) -> F:
        dress(ours, theirs)
        made: F = as_builtin(ours, theirs)
        pair(theirs, made)
        if eager:
            EAGER[theirs] = eager
        return made

    return register
