"""Third-party modules that take long to import (llvmlite, pyopencl), imported when first used.

They have no useful type information, so type checkers see them as `Any`.
"""

from __future__ import annotations

import importlib
from typing import Any


def module(name: str) -> Any:
    """Import a module, or return it if it is imported already."""
    return importlib.import_module(name)
