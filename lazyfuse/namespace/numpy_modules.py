"""NumPy's modules as ours: every public name, translated on first use.

Owns `look_up` (lazyfuse's object for a name of a NumPy module) and the module objects of all
submodules. A submodule is imported when one of its names is first used.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np

from lazyfuse import late_modules
from lazyfuse.arrays.eager_functions import followed
from lazyfuse.functions import transforms
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.interop.fallback import wrap_function
from lazyfuse.namespace import index_tricks
from lazyfuse.registry import OURS, THEIRS, as_builtin

MODULES = (
    "ma",
    "ma.core",
    "ma.extras",
    "ma.mrecords",
    "polynomial",
    "polynomial.polynomial",
    "polynomial.chebyshev",
    "polynomial.hermite",
    "polynomial.hermite_e",
    "polynomial.laguerre",
    "polynomial.legendre",
    "polynomial.polyutils",
    "char",
    "strings",
    "rec",
    "emath",
    "exceptions",
    "dtypes",
    "testing",
    "typing",
    "ctypeslib",
    "matlib",
    "version",
    "lib",
    "lib.stride_tricks",
    "lib.mixins",
    "lib.array_utils",
    "lib.scimath",
    "lib.format",
    "lib.npyio",
    "lib.introspect",
    "lib.recfunctions",
)
"""Paths below `numpy` that exist below `lazyfuse` without a file, parents first."""

_DUNDERS = ("__all__", "__version__", "__array_namespace_info__")
PASSED_ON = ("numpy.typing", "numpy.version", "numpy.dtypes", "numpy.exceptions")
"""Modules without arrays: their objects stay NumPy's."""

_PATHS = {"emath": "numpy.lib.scimath"}

UNCHANGED = {
    "numpy.testing": ("assert_raises", "assert_warns", "assert_no_", "suppress", "run", "measure"),
}
"""Functions, by the beginning of their names, that get the user's objects unchanged."""


def their_path(path: str) -> str:
    """The NumPy module behind `lazyfuse.<path>`."""
    return _PATHS.get(path, f"numpy.{path}" if path else "numpy")


def look_up(module: str, name: str, keep: Callable[[str, Any], None]) -> Any:
    """Lazyfuse's object for `name` of NumPy's `module`; AttributeError if NumPy lacks it.

    Gives it to `keep` unless NumPy has warned, as it does each time of names that will go.
    """
    shown: dict[Any, Any] = {}
    scope = {**_SCOPE, "__warningregistry__": shown}
    theirs = types.FunctionType(_read.__code__, scope)(importlib.import_module(module), name)
    found = _ours(theirs, module, name)
    if not shown:
        keep(name, found)
    return found


def _read(module: types.ModuleType, name: str) -> Any:
    """A name of a module; warnings of it are noted in the globals' registry."""
    return getattr(module, name)


_SCOPE = {"__name__": __name__, "__package__": __package__, "getattr": getattr}


def _ours(theirs: Any, module: str, name: str) -> Any:
    replacement = index_tricks.REPLACEMENTS.get((module, name))
    if replacement is not None:
        return replacement()
    if name.startswith("_") or module in PASSED_ON:
        return theirs
    return quicken(theirs, translate(theirs, module))


_LATE = {"numpy.fft": transforms}
"""Modules of ours that replace functions of a module which NumPy, too, imports when it is used."""

makers: dict[Any, Callable[[Any], Any]] = {}
"""NumPy's function -> a function that makes our eager call; eager_table.py fills it."""


def quicken(theirs: Any, ours: Any) -> Any:
    """The replacement of NumPy's function: `ours`, or the eager call in front of it."""
    try:
        make = makers.get(theirs)
    except TypeError:  # not hashable: a constant
        return ours
    if isinstance(ours, type):
        return ours
    call = ours if make is None else make(ours)
    if isinstance(call, types.FunctionType) and _records(ours):
        call = followed(theirs, call)
    return ours if call is ours else _put(theirs, ours, call)


def _records(ours: Any) -> bool:
    """Whether a function of ours records: it has no effect but on arrays."""
    if not isinstance(ours, types.FunctionType):
        return False
    module: str = ours.__globals__.get("__name__", "")
    if module == "lazyfuse.interop.fallback":
        return hasattr(ours, "recorded")
    return module.startswith("lazyfuse.functions.")


def _put(theirs: Any, ours: Any, call: Any) -> Any:
    """Replace our function by `call`, which checks its arguments first."""
    made = as_builtin(functools.update_wrapper(call, ours), theirs)
    # of a copy: pairs are made while it is walked, and a collection then may add to the table
    names = [name for name, each in OURS.copy().items() if each is ours]
    for name in (*names, theirs):  # all of NumPy's functions that ours replaces
        OURS[name] = made
        makers.pop(name, None)
    THEIRS[made] = theirs
    return made


def called(function: Any) -> Any:
    """Ours for a function that NumPy's dispatch names; a program may have named ours."""
    if function in THEIRS:
        return function
    return translate(function, getattr(function, "__module__", "numpy") or "numpy")


def translate(theirs: Any, module: str = "numpy") -> Any:
    """Lazyfuse's object for NumPy's: ours, a wrapper if it computes, else NumPy's."""
    try:
        ours = OURS.get(theirs)
    except TypeError:  # not hashable
        return _constant(theirs)
    if ours is None and module in _LATE:
        late_modules.run(_LATE[module])
        ours = OURS.get(theirs)
    if ours is not None:
        return ours
    if isinstance(theirs, np.ufunc):
        return ufunc_of(theirs)
    if isinstance(theirs, (type, types.ModuleType)) or not callable(theirs):
        return _constant(theirs)
    if str(type(theirs).__module__).startswith("numpy.ma"):  # not always text in Cython
        return index_tricks.Operation(theirs)
    if not hasattr(theirs, "__name__"):
        return theirs
    if theirs.__name__.startswith(UNCHANGED.get(module, ("\0",))):
        return theirs
    return wrap_function(theirs)


def _constant(theirs: Any) -> Any:
    if type(theirs) is np.ndarray:
        return index_tricks.wrap_shared(theirs)
    return theirs


def filler(ours: str, theirs: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for the module `ours`: names come from `theirs`, and are kept."""

    def look(name: str) -> Any:
        if name.startswith("__") and name not in _DUNDERS:
            raise AttributeError(f"module {ours!r} has no attribute {name!r}")
        try:
            keep = vars(importlib.import_module(ours)).__setitem__
            return look_up(theirs, name, keep)
        except AttributeError:
            raise AttributeError(f"module {ours!r} has no attribute {name!r}") from None

    def names() -> list[str]:
        return sorted({*vars(sys.modules[ours]), *dir(importlib.import_module(theirs))})

    return look, names


def install() -> None:
    """Make every path of `MODULES` importable below `lazyfuse`. Imports no NumPy module."""
    for path in MODULES:
        name = f"lazyfuse.{path}"
        if name not in sys.modules:
            module = types.ModuleType(name, f"As `numpy.{path}`, for arrays of lazyfuse.")
            look, names = filler(name, their_path(path))
            vars(module).update(__getattr__=look, __dir__=names)
            module.__spec__ = ModuleSpec(name, None, is_package=True)
            sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent != "lazyfuse":
            setattr(sys.modules[parent], child, sys.modules[name])
