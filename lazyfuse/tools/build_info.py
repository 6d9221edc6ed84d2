"""How this lazyfuse was built: versions, and whether its record path is the native extension."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

import numpy as np

from lazyfuse import bootstrap, versions
from lazyfuse.arrays import base


def build_info() -> dict[str, str]:
    """Versions, and how the record path runs: "compiled", or "pure Python" and why.

    Every operation takes the record path: operators, ufuncs, indexing. An installation with a C
    compiler builds it as a native extension; the results are the same.
    """
    path = "compiled" if base.COMPILED else f"pure Python ({bootstrap.WHY_PYTHON})"
    return {
        "lazyfuse": metadata.version("lazyfuse"),
        "numpy": np.__version__,
        "python": f"{platform.python_version()} ({sys.implementation.name})",
        "record path": path,
    }


def text() -> str:
    """`build_info`, a line each, and another line if this NumPy is untested."""
    lines = [f"{name:<12} {value}" for name, value in build_info().items()]
    if versions.untested():
        lines.append(f"{'not tested':<12} NumPy {versions.untested()}")
    return "\n".join(lines)
