"""Warnings that NumPy raises inside lazyfuse, told at the user's line.

NumPy's C code warns at the Python code that called it: with NumPy itself, the user's line; here,
lazyfuse. Python would show that line, and show each warning there once for a whole program. So
our modules keep no registry of shown warnings, and a warning that is about to be shown for one of
our files goes on to the user's line, where filters and the once-per-line rule apply as ever.

`warnings` has one place that every warning passes before anybody sees it: `_showwarnmsg`, which
its C code calls, too. It stays the function that it is, as `showwarning` does; its code looks at
the file first. Whoever replaces `showwarning`, records or captures gets the user's line. Owns that
function; nothing else of `warnings` is touched.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

from lazyfuse import versions
from lazyfuse.bootstrap import HERE, PACKAGES
from lazyfuse.interop import entrance_code

_OURS = (f"{HERE}/", "<lazyfuse ")


def _user_frame() -> FrameType | None:
    """The first frame outside lazyfuse below those of lazyfuse, where a warning is shown."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__package__") not in PACKAGES:
        frame = frame.f_back
    while frame is not None and frame.f_globals.get("__package__") in PACKAGES:
        frame = frame.f_back
    return frame


def install() -> None:
    """Send warnings that our files cause to the user's lines."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "lazyfuse":
            vars(module)["__warningregistry__"] = None
    shown = getattr(warnings, "_showwarnmsg", None)
    if type(shown) is not FunctionType or versions.unknown_python():
        return
    if shown.__code__.co_argcount == 1:
        before = FunctionType(shown.__code__, shown.__globals__, shown.__name__)
        entrance_code.lead(shown, functools.partial(_show, before))


def _show(before: Callable[[Any], Any], told: warnings.WarningMessage) -> None:
    """As `warnings` does; what happens inside lazyfuse is told where it was called."""
    inside = type(told.filename) is str and told.filename.startswith(_OURS)
    frame = _user_frame() if inside and told.file is None else None
    if frame is None:
        before(told)
        return
    scope = frame.f_globals
    once: dict[Any, Any] = getattr(warnings, "onceregistry", {})
    text = str(told.message), told.category
    known = once.pop(text, None)  # by the look at our file: it is the user's line that counts
    try:
        warnings.warn_explicit(
            told.message,
            told.category,
            frame.f_code.co_filename,
            frame.f_lineno,
            scope.get("__name__") or "<string>",
            scope.setdefault("__warningregistry__", {}),
            source=told.source,
        )
    finally:
        if known is not None:
            once[text] = known
