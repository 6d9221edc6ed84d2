"""How pictures and texts in a notebook name its cells: "In [3]" for a temporary file's name."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any


def shell() -> Any:
    """IPython's shell, if this process has one."""
    found = sys.modules.get("IPython")
    return found.get_ipython() if found is not None else None


def in_cells(text: str) -> str:
    """A text with the names of the cells' files replaced, those without a folder too."""
    names: dict[str, int] = {}
    with suppress(AttributeError):  # no shell, or one whose cells have no files
        names = shell().compile._filename_map
    for file, number in names.items():
        text = text.replace(file, f"In [{number}]").replace(
            os.path.basename(file), f"In [{number}]"
        )
    return text


def short(file: str) -> str:
    """A short name for a source file: the cell, or the name without its folder."""
    named = in_cells(file)
    return named if named != file else os.path.basename(file)
