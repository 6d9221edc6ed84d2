"""Copies of functions that see lazyfuse where the originals see numpy.

Owns `ReboundFunctions`. The original function, its module and its source stay unchanged. A copy
gets its own globals mapping, which is updated before each call. In it, lazyfuse's modules and
functions replace NumPy's, and copies replace other functions of the same package. The loops of a
copy are prepared (loops/prepared.py), if its text is at hand.
"""

from __future__ import annotations

import dis
import functools
import importlib
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from lazyfuse.interop.import_hook import our_module
from lazyfuse.loops.prepared import codes, prepared
from lazyfuse.namespace.numpy_modules import translate

ORIGINAL = "__lazyfuse_original__"
"""Attribute of accelerated functions: the original function."""

_MISSING = object()


def package_of(name: str | None) -> str:
    """The top-level package in a module's name."""
    return (name or "").partition(".")[0]


class _Names:
    """The copies' globals for one module, and the names that the copies read and write."""

    __slots__ = ("given", "reads", "real", "seen", "shadow", "writes")

    def __init__(self, real: dict[str, Any]) -> None:
        self.real = real
        self.shadow = dict(real)
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.seen: dict[str, Any] = {}  # the module's value of each name at the last refresh
        self.given: dict[str, Any] = {}  # the copies' value of each name


class ReboundFunctions:
    """The copies for one accelerated function: of itself and of the functions it can reach."""

    def __init__(self, function: FunctionType) -> None:
        self.package = package_of(function.__module__)
        self._functions: dict[int, tuple[FunctionType, FunctionType]] = {}
        self._names: dict[int, _Names] = {}
        self.main = self._rebound(function)
        self.plain = function
        """The function as it is, but for its loops."""
        if (code := prepared(function.__code__)) is not function.__code__:
            parts = function.__name__, function.__defaults__, function.__closure__
            self.plain = FunctionType(code, function.__globals__, *parts)
            self.plain.__kwdefaults__ = function.__kwdefaults__

    def refresh(self) -> None:
        """Update the copies' globals from their modules. Call it before each use."""
        for names in list(self._names.values()):
            self._refresh(names)

    def write_back(self, convert: Callable[[Any], Any]) -> None:
        """Copy the copies' assignments to globals to their modules. Call it after each use."""
        for names in self._names.values():
            for name in names.writes:
                value = names.shadow.get(name, _MISSING)
                if value is _MISSING:
                    names.real.pop(name, None)
                elif value is not names.given.get(name, _MISSING):
                    names.real[name] = convert(value)

    def values(self) -> Iterator[Any]:
        """The values that the copies can read from globals and closures."""
        for names in self._names.values():
            for name in names.reads:
                yield names.shadow.get(name)
        for _, copy in self._functions.values():
            for cell in copy.__closure__ or ():
                yield _contents(cell)

    def _refresh(self, names: _Names) -> None:
        real, shadow, seen = names.real, names.shadow, names.seen
        for name in list(names.reads):
            value = real.get(name, _MISSING)
            if value is _MISSING:
                shadow.pop(name, None)
                seen.pop(name, None)
            elif seen.get(name, _MISSING) is not value or name in names.writes:
                seen[name] = value
                shadow[name] = names.given[name] = self.translate(value)

    def translate(self, value: Any) -> Any:
        """The value that the copies see instead of `value`."""
        original = self._own_function(value)
        return _exchange(value) if original is None else self._rebound(original)

    def _own_function(self, value: Any) -> FunctionType | None:
        """The function behind `value`, if it belongs to the same package."""
        if not isinstance(value, FunctionType):
            return None
        original = getattr(value, ORIGINAL, value)
        is_own = isinstance(original, FunctionType) and package_of(value.__module__) == self.package
        return original if is_own else None

    def _rebound(self, function: FunctionType) -> FunctionType:
        known = self._functions.get(id(function))
        if known is not None:
            return known[1]
        count = len(self._functions)
        try:
            return self._copied(function)
        except BaseException:  # an interrupt: copies that are not whole are made again
            for half in list(self._functions)[count:]:
                del self._functions[half]
            for names in self._names.values():
                names.seen.clear()
            raise

    def _copied(self, function: FunctionType) -> FunctionType:
        names = self._names.get(id(function.__globals__))
        if names is None:
            names = self._names[id(function.__globals__)] = _Names(function.__globals__)
        cells = function.__closure__ or ()
        copy = FunctionType(
            prepared(function.__code__),
            names.shadow,
            function.__name__,
            None,
            tuple(map(self._cell, cells)),
        )
        self._functions[id(function)] = (function, copy)  # first: its callees may call it
        functools.update_wrapper(copy, function)
        for code in codes(function.__code__):
            names.reads.update(code.co_names)
            names.writes |= _written(code)
        names.reads |= names.writes
        self._refresh(names)
        self._fill(copy, function)
        return copy

    def _cell(self, cell: CellType) -> CellType:
        """The original's cell, or a new one if the copies see another value in it."""
        value = _contents(cell)
        stays = self._own_function(value) is None and _exchange(value) is value
        return cell if stays else CellType(None)

    def _fill(self, copy: FunctionType, function: FunctionType) -> None:
        """Give a copy its defaults and the values of its new cells."""
        if function.__defaults__:
            copy.__defaults__ = tuple(map(self.translate, function.__defaults__))
        if function.__kwdefaults__:
            values = function.__kwdefaults__.items()
            copy.__kwdefaults__ = {name: self.translate(value) for name, value in values}
        for mine, theirs in zip(copy.__closure__ or (), function.__closure__ or (), strict=True):
            if mine is not theirs:
                mine.cell_contents = self.translate(_contents(theirs))


def _exchange(value: Any) -> Any:
    """Lazyfuse's replacement of a module, function or class of NumPy; else `value`."""
    if isinstance(value, ModuleType):
        ours = our_module(value.__name__)
        return importlib.import_module(ours) if ours else value
    if callable(value) and package_of(_module_of(value)) == "numpy":
        return translate(value)
    return value


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _module_of(value: Any) -> str:
    return "numpy" if isinstance(value, np.ufunc) else getattr(value, "__module__", None) or ""


def _written(code: CodeType) -> set[str]:
    """Names of globals that code assigns to or deletes."""
    names = {"STORE_GLOBAL", "DELETE_GLOBAL"}
    return {item.argval for item in dis.get_instructions(code) if item.opname in names}
