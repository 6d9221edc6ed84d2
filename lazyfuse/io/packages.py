"""Optional packages (zarr, h5py), imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from lazyfuse.errors import UnsupportedError, message


def package(name: str) -> Any:
    """The package; an error with the cure where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        what = f"{name} cannot be imported ({error})"
        raise UnsupportedError(
            message("from_chunks", what, instead=f"pip install {name}")
        ) from error


def is_one(value: object, origin: str, kind: str) -> bool:
    """Whether a value is of a class of a package, which is not imported for that."""
    found = getattr(sys.modules.get(origin), kind, None)
    return isinstance(found, type) and isinstance(value, found)
