"""Puts the package together: what `import lazyfuse` imports, and how its names are found.

Importing the modules below registers what lazyfuse has in the place of NumPy's functions. Modules
that only some programs need (explain, report, accelerate, NumPy's own submodules) wait until asked.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from lazyfuse.arrays import (  # noqa: F401  # each registers its functions
    ndarray,
    scalars,
)
from lazyfuse.functions import (  # noqa: F401  # each registers its functions
    creation,
    decompositions,
    einsum,
    elementwise,
    histograms,
    interpolation,
    joining,
    library_functions,
    metadata,
    products,
    quantiles,
    ranges,
    reductions,
    searching,
    sets,
    sorting,
    stacking,
    taking,
    ufunc,
    views,
)
from lazyfuse.interop import (  # noqa: F401  # each registers its functions
    fallback,
    library_adapters,
    warning_locations,
)
from lazyfuse.kernels import (  # noqa: F401  # each registers its functions
    scan,
    sort,
)
from lazyfuse.namespace import (  # noqa: F401  # each registers its functions
    compute_methods,
    index_tricks,
    numpy_modules,
    protocols,
)
from lazyfuse.runtime.numerics import (  # noqa: F401  # each registers its functions
    errstate,
)

# isort: split
from lazyfuse.namespace import eager_table  # noqa: F401  # after all: it wraps what they registered

ADDED = (
    "accelerate",
    "adapt",
    "build_info",
    "cache_clear",
    "cache_info",
    "calibrate",
    "device",
    "devices",
    "evaluate",
    "explain",
    "fallbacks",
    "freeze",
    "lazyfuse_version",
    "options",
    "parameter",
    "register_kernel",
    "report",
    "resident",
    "synchronize",
    "tracing",
    "unfused",
    "unregister_kernel",
    "warm_up",
)
"""What the main namespace has beyond NumPy's."""

REAL = ("array_api", "linalg", "fft", "random")
"""Submodules with a file of their own; the rest are made by numpy_modules.py."""


class _Callable(ModuleType):
    """A module of ours that is also a function of the same name: `lazyfuse.explain(x)`."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return _CALLS[self.__name__](self, *args, **kwargs)


class _Package(ModuleType):
    """The package, whose submodules stay callable whoever imports them first."""

    def __setattr__(self, name: str, value: Any) -> None:
        if f"lazyfuse.{name}" in _CALLS and type(value) is ModuleType:
            value.__class__ = _Callable
        super().__setattr__(name, value)


def _report(module: Any) -> str:
    """What ran so far, and which functions NumPy ran at once, as text."""
    places = {f"{name} at {file}:{line}": n for (name, file, line), n in fallback.counts().items()}
    disk = _module("hardware").cpu().programs.disk.trouble
    plans = _module("evaluate").plan_cache_info()
    text: str = module.text(places, plans, _residents(), disk)
    return text


def _residents() -> list[Any]:
    """What lies in the memory of devices; nothing, where no device was used that has its own."""
    listing = sys.modules.get("lazyfuse.runtime.placement.residency")
    return list(listing.residents()) if listing is not None else []


def _evaluate(module: Any, *arrays: Any) -> None:
    """Compute the arrays now, together."""
    module.compute([ndarray.node_of(x) for x in _main(arrays)], "lazyfuse.evaluate")


def _main(arrays: tuple[Any, ...]) -> list[Any]:
    """Arrays of the main namespace in the place of those of `lazyfuse.array_api`."""
    return [x._array if hasattr(type(x), "_array") else x for x in arrays]


def _devices(module: Any) -> Any:
    """The devices there are, and why others are not used."""
    return importlib.import_module("lazyfuse.devices.registry").devices()


_CALLS: dict[str, Callable[..., Any]] = {
    "lazyfuse.accelerate": lambda module, function: module.accelerate(function),
    "lazyfuse.calibrate": lambda module, *args, **named: module.calibrate(*args, **named),
    "lazyfuse.explain": lambda module, *arrays: module.explain(*_main(arrays)),
    "lazyfuse.freeze": lambda module, what, /, **named: module.freeze(what, **named),
    "lazyfuse.report": _report,
    "lazyfuse.evaluate": _evaluate,
    "lazyfuse.devices": _devices,
    "lazyfuse.tracing": lambda module, *args, **kwargs: module.add(*args, **kwargs),
}


_FUNCTIONS = {
    "adapt": "neighbours",
    "build_info": "building",
    "parameter": "freeze",
    "device": "places",
    "register_kernel": "specialise",
    "resident": "places",
    "synchronize": "places",
    "unfused": "marks",
    "unregister_kernel": "specialise",
    "warm_up": "warming",
}
"""Functions of ours, and the modules that have them."""


def _callable_module(name: str) -> Any:
    module = importlib.import_module(name)
    module.__class__ = _Callable
    return module


def cache_info() -> dict[str, Any]:
    """What the caches of plans, programs, buffers and searched tables hold."""
    pools = {name: pool.info() for name, pool in _pools().items()}
    plans, tables = _module("evaluate").plan_cache_info(), _module("guides").kept.info()
    return {"plans": plans, "tables": tables, **pools}


def cache_clear() -> None:
    """Empty the caches of plans, programs, buffers and searched tables."""
    _module("evaluate").clear_plans()
    _module("fused_updates").forget()
    _module("guides").kept.clear()
    for pool in _pools().values():
        pool.clear()


def _pools() -> dict[str, Any]:
    """The pools of the device that kernels run on, as far as it has any."""
    device = _module("hardware").current()
    return {
        name: getattr(device, name) for name in ("programs", "buffers") if hasattr(device, name)
    }


def _module(name: str) -> Any:
    return importlib.import_module(f"lazyfuse.{name}")


def _version() -> str:
    return importlib.import_module("importlib.metadata").version("lazyfuse")  # type: ignore[no-any-return]


def _find(name: str) -> Any:
    if f"lazyfuse.{name}" in _CALLS:
        return _callable_module(f"lazyfuse.{name}")
    if name == "fallbacks":
        return fallback.counts
    if name == "lazyfuse_version":
        return _version()
    if name in _FUNCTIONS:
        return getattr(_module(_FUNCTIONS[name]), name)
    if name in ("cache_info", "cache_clear"):
        return globals()[name]
    if name in REAL:
        return importlib.import_module(f"lazyfuse.{name}")
    if name.startswith("__") and name != "__array_namespace_info__":
        raise AttributeError(f"module 'lazyfuse' has no attribute {name!r}")
    try:
        return numpy_modules.find("numpy", name)
    except AttributeError as error:
        text = str(error).replace("module 'numpy'", "module 'lazyfuse'")
        raise AttributeError(text) from None


def look_up(name: str) -> Any:
    """What `lazyfuse.<name>` is; kept in the package from then on."""
    found = _find(name)
    setattr(sys.modules["lazyfuse"], name, found)
    return found


def complete(package: dict[str, Any]) -> None:
    """Submodules into the package; NumPy's names over modules of ours that are called the same."""
    numpy_modules.install()
    sys.modules["lazyfuse"].__class__ = _Package
    for name, value in list(package.items()):
        if isinstance(value, ModuleType) and value.__name__ == f"lazyfuse.{name}":
            if f"lazyfuse.{name}" in _CALLS:
                value.__class__ = _Callable
            elif hasattr(np, name) and not isinstance(getattr(np, name), ModuleType):
                package[name] = numpy_modules.find("numpy", name)
    for path in numpy_modules.MODULES:
        if "." not in path and path not in REAL:
            package[path] = sys.modules[f"lazyfuse.{path}"]
    library_adapters.watch()
    warning_locations.install()
