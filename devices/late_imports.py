"""Third-party modules that take long to import (numba, llvmlite), imported when first used.

They have no useful type information, so they are `Any` here whatever a type checker finds of them.
"""

from __future__ import annotations

import importlib
from typing import Any


def module(name: str) -> Any:
    """The module of that name, imported now if it is not yet."""
    return importlib.import_module(name)
