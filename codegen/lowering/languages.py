"""The languages that kernels are printed in, and which modules know them.

Owns their names. A printer is imported when its language is first used: a run on the CPU reads no
printer of OpenCL.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from lazyfuse.devices.caches import cached

GRID = "opencl-grid"
_PRINTERS = {"numba": "numba.printer", "numpy": "blocked.printer", "opencl": "opencl.printer"}
LANGUAGES = (*_PRINTERS, GRID)
# Blocked NumPy with the bits of "numba". No device has this language: its texts are "numpy".
VECTOR = "numpy-vector"


@cached(why="one for each language")
def printer(language: str) -> Callable[..., Any]:
    """The function that prints a kernel variant (`print_source`)."""
    name = "blocked.vector_printer" if language == VECTOR else _PRINTERS[language]
    printing: Callable[..., Any] = _module(name).print_source
    return printing


@cached(why="one for each language")
def lowering(language: str) -> Callable[..., Any]:
    """The function that decides how kernels run (see `lower.lower`), for a language."""
    deciding: Callable[..., Any]
    deciding = _module("lowering.lower").lower
    if language == GRID:
        deciding = _module("opencl.grid_maps").lower_grid
    return deciding


def _module(name: str) -> Any:
    return importlib.import_module(f"lazyfuse.codegen.{name}")
