"""How this lazyfuse was built: which versions, and whether its record path is machine code."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

import numpy as np

from lazyfuse import bootstrap, versions
from lazyfuse.arrays import base


def build_info() -> dict[str, str]:
    """Versions, and how the record path runs: "compiled", or "pure Python" and why.

    The record path is what every operation goes through: operators, ufuncs, indexing. Installed
    where a C compiler is there, it is machine code (C); the results are the same.
    """
    path = "compiled" if base.COMPILED else f"pure Python ({bootstrap.WHY_PYTHON})"
    return {
        "lazyfuse": metadata.version("lazyfuse"),
        "numpy": np.__version__,
        "python": f"{platform.python_version()} ({sys.implementation.name})",
        "record path": path,
    }


def text() -> str:
    """`build_info`, a line each, and one more where the tests do not know this NumPy."""
    lines = [f"{name:<12} {value}" for name, value in build_info().items()]
    if versions.untested():
        lines.append(f"{'not tested':<12} NumPy {versions.untested()}")
    return "\n".join(lines)
