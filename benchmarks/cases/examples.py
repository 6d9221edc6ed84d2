"""The scripts of examples/ as they stand, inputs and printing included, at their own sizes."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.case import CASES, Array, Case

FOLDER = Path(__file__).parents[2] / "examples"
SIZES = {
    "black_scholes": 1_000_000,
    "game_of_life": 512,
    "heat_equation": 512,
    "image_filters": 512,
    "kmeans": 60_000,
    "logistic_regression": 40_000,
    "mandelbrot": 400,
    "monte_carlo": 1_000_000,
    "nbody": 500,
    "shallow_water": 300,
}
"""What each script takes without an argument. `reusable_program` needs lazyfuse itself."""

_NUMBER = re.compile(r"[-+]?\d+\.?\d*")


def _example(name: str, size: int) -> Case:
    """A case whose result are the numbers that a script prints."""
    loaded: list[ModuleType] = []

    def run(xp: Any, size: int) -> Any:
        if not loaded:
            loaded.append(load(name))
        module = loaded[0]
        before, module.np = module.np, xp
        try:
            return printed(module, size)
        finally:
            module.np = before

    return Case(
        f"example_{name}",
        lambda size, generator: (size,),
        run,
        largest=10**9,
        functional=False,
        tolerance=2e-5,  # of figures printed with six places
        exact=False,
        ordinary=size,
    )


def printed(module: ModuleType, size: int) -> Array:
    """Run a script; the numbers that it prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        if module.__name__ == "example_image_filters":
            module.main(size, "/dev/null")
        else:
            module.main(size)
    return np.array([float(number) for number in _NUMBER.findall(text.getvalue())])


def load(name: str) -> ModuleType:
    """A script as a module of its own, whose functions may be exchanged."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


for _name, _size in SIZES.items():
    CASES[f"example_{_name}"] = _example(_name, _size)
