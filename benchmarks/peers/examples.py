"""The example scripts as users port them: the functions that take the time, in another library.

Owns which functions those are, and the exchange. Everything else (data, random numbers, printing)
stays NumPy's. Functions that a library cannot take as they stand are written anew beside the
library's other programs (`with_jax.py`, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from benchmarks.case import Case
from benchmarks.cases.examples import load, printed
from benchmarks.libraries import Runner

Function = Callable[..., Any]

CORES: dict[str, tuple[str, ...]] = {
    "black_scholes": ("black_scholes",),
    "game_of_life": ("generation",),
    "heat_equation": ("step",),
    "image_filters": ("picture", "blur", "to_bytes"),
    "kmeans": ("assign",),
    "logistic_regression": ("sigmoid", "loss"),
    "mandelbrot": ("escape_times",),
    "monte_carlo": ("asian_call",),
    "nbody": ("accelerations", "energy"),
    "shallow_water": ("reflect", "step"),
}
"""The functions of each script that take its time."""

HELPERS: dict[str, tuple[str, ...]] = {
    "black_scholes": ("normal_cdf",),
    "game_of_life": ("neighbours",),
    "shallow_water": ("fluxes",),
}
"""What these call, for libraries that compile function by function."""


def name_of(case: Case) -> str:
    """The script behind a case, or an empty text."""
    return case.name.removeprefix("example_") if case.name.startswith("example_") else ""


def ported(case: Case, functions: Mapping[str, Function]) -> Runner | None:
    """The case with some of its functions exchanged; None if there are none for it."""
    if not functions:
        return None
    module = load(name_of(case))
    for name, function in functions.items():
        setattr(module, name, function)
    return lambda size: printed(module, size)


def copy_with(case: Case, array_library: Any) -> ModuleType:
    """The script as a module whose `np` is another library."""
    module = load(name_of(case))
    module.np = array_library  # type: ignore[attr-defined]
    return module
