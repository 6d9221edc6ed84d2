"""Assembles the package: what `import lazyfuse` imports, and how its names are found.

Importing the modules below registers lazyfuse's replacements of NumPy's functions. Modules that few
programs need (explain, report, accelerate, NumPy's submodules) are imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from lazyfuse import late_modules
from lazyfuse.arrays import (
    instance_checks,
    ndarray,
    scalars,
)
from lazyfuse.codegen.plan import chains

# the first three packages: each module registers its functions
from lazyfuse.devices import caches
from lazyfuse.errors import message
from lazyfuse.functions import (
    creation,
    decompositions,
    elementwise,
    histograms,
    indexing,
    interpolation,
    joining,
    products,
    quantiles,
    rearranging,
    reductions,
    searching,
    sets,
    sorting,
    ufunc,
    views,
)
from lazyfuse.interop import (
    library_adapters,
    warning_locations,
)
from lazyfuse.kernels import (
    scan,
    search_index,
    sort,
)
from lazyfuse.namespace import (
    compute_methods,
    index_tricks,
    numpy_modules,
    protocols,
    subclasses,
)
from lazyfuse.runtime.events import decisions, numpy_calls, tracing
from lazyfuse.runtime.execution import matmul, routine
from lazyfuse.runtime.numerics import (
    errstate,
)
from lazyfuse.runtime.placement import devices as device_in_use
from lazyfuse.runtime.scheduling import evaluate as evaluate_module

# isort: split
from lazyfuse.namespace import eager_table  # last: it wraps what they registered

for _each in (
    scalars, errstate, creation, decompositions, elementwise, histograms, indexing, interpolation,
    joining, products, quantiles, reductions, searching, rearranging, sets, sorting, ufunc, views,
    compute_methods, index_tricks, protocols, eager_table,
):  # fmt: skip
    late_modules.run(_each)
instance_checks.serve(
    ndarray.ndarray,
    lambda *asked: subclasses.derived(*asked),
    lambda name: subclasses.unbound(name),
)
late_modules.follow(chains, matmul, scan)
late_modules.follow(routine, matmul, scan, sort)

REAL = ("array_api", "linalg", "fft", "random")
"""Submodules with their own files; numpy_modules.py makes the others."""


class _Callable(ModuleType):
    """A module that is also a function of the same name: `lazyfuse.devices()`."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return _CALLS[self.__name__](*args, **kwargs)


def evaluate(*arrays: Any) -> None:
    """Compute the arrays now, together; NumPy's arrays, and numbers, are computed already.

    Raises
    ------
    TypeError
        Something is neither an array nor a number.
    """
    nodes = []
    for x in _main(arrays):
        if issubclass(type(x), ndarray.ndarray):
            nodes.append(ndarray.node_of(x))
        elif not issubclass(type(x), (np.ndarray, np.generic, complex, float, int)):
            raise TypeError(message("evaluate", "arrays", "arrays", type(x).__name__, _EVALUATED))
    evaluate_module.compute(nodes, decisions.CALLED)


_EVALUATED = "give each array of a list by itself: evaluate(*arrays)"


def explain(*arrays: Any) -> Any:
    """What will run for the arrays, and why it is divided into these kernels."""
    return _module("tools.explain").explain(*_main(arrays))


def _main(arrays: tuple[Any, ...]) -> list[Any]:
    """The arrays, with those of `lazyfuse.array_api` replaced by the main namespace's."""
    return [x._array if hasattr(type(x), "_array") else x for x in arrays]


_CALLS: dict[str, Callable[..., Any]] = {
    "lazyfuse.devices": lambda: _module("listing").Listing(_module("devices.registry").devices()),
    "lazyfuse.runtime.events.tracing": tracing.add,
}
"""Modules that are functions too: a list of the devices; a listener for events."""


_FUNCTIONS = {
    "accelerate": "tools.accelerate",
    "adapt": "interop.library_adapters",
    "build_info": "tools.build_info",
    "calibrate": "runtime.placement.calibrate",
    "compile_loops": "tools.compile_loops",
    "device": "interop.device_api",
    "explain_loops": "tools.explain_loops",
    "freeze": "tools.freeze",
    "from_chunks": "interop.chunked_api",
    "load_ipython_extension": "tools.notebook",
    "parameter": "tools.freeze",
    "persist": "interop.chunked_api",
    "progress": "tools.progress",
    "register_kernel": "tools.register_kernel",
    "report": "tools.report",
    "resident": "interop.device_api",
    "save_chunks": "interop.chunked_api",
    "synchronize": "interop.device_api",
    "unfused": "tools.unfused",
    "unload_ipython_extension": "tools.notebook",
    "unregister_kernel": "tools.register_kernel",
    "warm_up": "tools.warm_up",
}
"""Functions that lazyfuse adds, and their modules; IPython calls those of its extensions."""

ADDED = tuple(
    sorted(
        {
            *(name for name in _FUNCTIONS if not name.endswith("_ipython_extension")),
            *("cache_clear", "cache_info", "devices", "evaluate", "explain", "fallbacks"),
            *("lazyfuse_version", "options", "tracing"),
        }
    )
)
"""The names that the main namespace adds to NumPy's."""


def cache_info() -> dict[str, Any]:
    """What the caches hold: plans, programs, buffers and searched tables; every cache by its name.

    A cache's name consists of its module and of what it holds. Modules that the program has not
    needed yet have no caches.
    """
    pools = {name: pool.info() for name, pool in _pools().items()}
    plans, tables = evaluate_module.plan_cache_info(), search_index.kept.info()
    named = {name: caches.REGISTERED[name].info() for name in sorted(caches.REGISTERED)}
    return {"plans": plans, "tables": tables, **pools, **named}


def cache_clear() -> None:
    """Empty every cache, of all devices; `cache_info` says why some stay."""
    caches.clear_all()


def _pools() -> dict[str, Any]:
    """The pools of the device that kernels run on, if it has any."""
    device = device_in_use.current()
    pools = (("programs", device.programs), ("buffers", device.buffers))
    return {name: pool for name, pool in pools if pool is not None}


def _module(name: str) -> Any:
    return importlib.import_module(f"lazyfuse.{name}")


def _version() -> str:
    return importlib.import_module("importlib.metadata").version("lazyfuse")  # type: ignore[no-any-return]


def _own(name: str) -> Any:
    """What lazyfuse has of a name of its own; None if it is NumPy's."""
    if name in ("tracing", "devices"):
        return tracing if name == "tracing" else sys.modules["lazyfuse.devices"]
    if name == "fallbacks":
        return numpy_calls.counts
    if name == "lazyfuse_version":
        return _version()
    if name in _FUNCTIONS:
        return getattr(_module(_FUNCTIONS[name]), name)
    if name in ("cache_info", "cache_clear", "evaluate", "explain"):
        return globals()[name]
    if name in REAL:
        return importlib.import_module(f"lazyfuse.{name}")
    if name.startswith("__") and name != "__array_namespace_info__":
        raise AttributeError(f"module 'lazyfuse' has no attribute {name!r}")
    return None


def look_up(name: str) -> Any:
    """Find `lazyfuse.<name>`, and keep it in the package."""
    keep = vars(importlib.import_module("lazyfuse")).__setitem__
    if (found := _own(name)) is not None:
        keep(name, found)
        return found
    try:
        return numpy_modules.look_up("numpy", name, keep)
    except AttributeError as error:
        text = str(error).replace("module 'numpy'", "module 'lazyfuse'")
        raise AttributeError(text) from None


def names(package: dict[str, Any]) -> list[str]:
    """What `dir(lazyfuse)` shows: NumPy's names, and those that lazyfuse adds; no inner module."""
    own = {name for name in package if name.startswith("__")}
    return sorted({*dir(sys.modules["numpy"]), *own, *ADDED, "array_api"})


def complete(package: dict[str, Any]) -> None:
    """Put submodules into the package, and into `sys.modules` those that programs import."""
    numpy_modules.install()
    for name in _CALLS:
        sys.modules[name].__class__ = _Callable
    sys.modules["lazyfuse.tracing"] = tracing
    for path in numpy_modules.MODULES:
        if "." not in path:
            package[path] = sys.modules[f"lazyfuse.{path}"]
    library_adapters.watch()
    warning_locations.install()
