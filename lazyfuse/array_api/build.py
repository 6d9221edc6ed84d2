"""Makes the namespaces of the array API standard from the tables of its names.

Owns one namespace per version, and the printing of functions: each has the standard's parameters,
passes plain arrays to the function that computes, and returns arrays of the standard.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse import late_modules
from lazyfuse.array_api import array_object, functions
from lazyfuse.array_api import names as array_api_names
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.namespace import namespace_info

NAME = "lazyfuse.array_api"
LATEST = array_api_names.VERSIONS[-1]

EXTENSIONS = ("linalg", "fft")
_TABLES = {
    "": array_api_names.MAIN,
    "linalg": array_api_names.LINALG,
    "fft": array_api_names.FFT,
}

_FUNCTION = """
def {name}{parameters}:
    result = target({arguments})
    if result.__class__ is ndarray:
        x = new(array)
        x._array = result
        return x
    return given(result)
"""


class Names:
    """The names of one namespace, and how each is made on first use."""

    def __init__(self, extension: str, version: str) -> None:
        self.extension = extension
        self.version = version
        self.functions = array_api_names.functions(_TABLES[extension])
        self.makers: dict[str, Callable[[str], Any]] = dict.fromkeys(self.functions, self.function)
        if not extension:
            self.makers.update(dict.fromkeys(array_api_names.VALUES, _value))
            self.makers.update(dict.fromkeys(EXTENSIONS, self.submodule))
            self.makers["__array_namespace_info__"] = self.information

    def public(self) -> list[str]:
        """The names of the standard without underscores."""
        return sorted(name for name in self.makers if not name.startswith("_"))

    def function(self, name: str) -> Any:
        """A function with the standard's parameters."""
        module = importlib.import_module(f"lazyfuse.{self.extension}".rstrip("."))
        target = functions.ours(module, self.extension, name)
        target = functions.older(name, target, self.version)
        return _printed(name, self.functions[name], target, self.extension)

    def information(self, name: str) -> Any:
        """The class that describes the namespace; before 2025.12 devices were a list."""
        latest = self.version == LATEST
        return namespace_info.StandardInformation if latest else namespace_info.Information

    def submodule(self, name: str) -> Any:
        """An extension."""
        if self.version == LATEST:
            return sys.modules[f"{NAME}.{name}"]
        return Namespace(f"{NAME}.{name}", Names(name, self.version))


def _value(name: str) -> Any:
    """A constant or a dtype; no `numpy.dtype` objects, since those are equal to None."""
    return getattr(np, name)


def _argument(parameter: inspect.Parameter) -> str:
    """The text that passes a parameter on, with arrays of the standard as plain ones."""
    name = parameter.name
    value = name
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*plain({name})"
    if name in array_api_names.ARRAYS:
        value = f"({name}._array if {name}.__class__ is array else plain({name}))"
    return value if parameter.kind is parameter.POSITIONAL_ONLY else f"{name}={value}"


def _printed(name: str, parameters: str, target: Callable[..., Any], extension: str) -> Any:
    """The function of that name, compiled from its printed text."""
    scope: dict[str, Any] = {
        "__name__": f"{NAME}.{extension}".rstrip("."),
        "__package__": "lazyfuse",
        "array": array_object.array,
        "given": array_object.given,
        "ndarray": ndarray,
        "new": object.__new__,
        "plain": array_object.plain,
        "target": target,
    }
    exec(f"def {name}{parameters}: pass", scope)
    shown = inspect.signature(scope[name]).parameters.values()
    arguments = ", ".join(map(_argument, shown))
    text = _FUNCTION.format(name=name, parameters=parameters, arguments=arguments)
    exec(compile(text, f"<lazyfuse.array_api {name}>", "exec"), scope)
    function = scope[name]
    path = f"{extension}.{name}".lstrip(".")
    function.__doc__ = f"As `{path}` of the array API standard."
    return function


class Namespace(types.ModuleType):
    """The names of one version of the standard, or of one of its extensions."""

    def __init__(self, name: str, names: Names) -> None:
        super().__init__(name, f"Array API {names.version}.")
        self._names = names
        if not names.extension:
            self.__array_api_version__ = names.version
        self.__all__ = names.public()

    def __getattr__(self, name: str) -> Any:
        maker = self._names.makers.get(name)
        if maker is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = maker(name)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return self._names.public()


_versions: dict[str, Namespace] = {}


def namespace(version: str | None) -> Any:
    """The namespace of a version of the standard; None: the latest."""
    if version is None or version == LATEST:
        return sys.modules[NAME]
    if version not in array_api_names.VERSIONS:
        known = ", ".join(array_api_names.VERSIONS)
        raise ValueError(
            f"[__array_namespace__] api_version: expected one of {known}, got {version!r}; "
            "leave it out for the latest"
        )
    if version not in _versions:
        _versions[version] = Namespace(NAME, Names("", version))
    return _versions[version]


def install(package: dict[str, Any]) -> None:
    """Make the module `lazyfuse.array_api` the latest version, with importable extensions."""
    for name in EXTENSIONS:
        sys.modules[f"{NAME}.{name}"] = Namespace(f"{NAME}.{name}", Names(name, LATEST))
    package["_names"] = names = Names("", LATEST)
    package["__all__"] = names.public()
    package["__array_api_version__"] = LATEST
    for module in (array_object, functions):  # they import from the folder, which goes away now
        late_modules.run(module)
    package["__path__"] = []  # makes it a package, whose extensions can be imported
    sys.modules[NAME].__class__ = Namespace
    package["_at"] = namespace
