"""Warnings that NumPy raises inside lazyfuse, told at the user's line.

NumPy's C code warns at the Python code that called it: with NumPy itself, the user's line; here,
lazyfuse. Python would show that line, and show each warning there once for a whole program. So
our modules keep no registry of shown warnings, and `warnings.showwarning` sends a warning that is
about to be shown for one of our files on to the user's line, where filters and the once-per-line
rule apply as ever. Owns that function; nothing else of `warnings` is touched.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from lazyfuse.subclassing import INSIDE

_OURS = (f"{Path(__file__).parent}/", "<lazyfuse ")


def _user_frame() -> FrameType | None:
    """The first frame outside lazyfuse below those of lazyfuse, where a warning is shown."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__package__") not in INSIDE:
        frame = frame.f_back
    while frame is not None and frame.f_globals.get("__package__") in INSIDE:
        frame = frame.f_back
    return frame


def install() -> None:
    """Send warnings that our files cause to the user's lines."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "lazyfuse":
            vars(module)["__warningregistry__"] = None
    before = warnings.showwarning

    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        """As `warnings.showwarning`; what happens inside lazyfuse is told where it was called."""
        frame = _user_frame() if filename.startswith(_OURS) and file is None else None
        if frame is None:
            before(message, category, filename, lineno, file, line)
            return
        scope = frame.f_globals
        warnings.warn_explicit(
            message,
            category,
            frame.f_code.co_filename,
            frame.f_lineno,
            scope.get("__name__") or "<string>",
            scope.setdefault("__warningregistry__", {}),
        )

    warnings.showwarning = showwarning
