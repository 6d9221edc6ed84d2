"""Reports warnings that NumPy raises inside lazyfuse at the user's line.

NumPy's C code warns at the Python line that called it. With NumPy alone this is the user's line;
here it is a line of lazyfuse. Python would show that line, and each warning only once per program.
So our modules keep no registry of shown warnings. A warning that Python is about to show for one of
our files is redirected to the user's line, where filters and the once-per-line rule apply as usual.

Every warning passes `warnings._showwarnmsg` before it is shown; the C code calls it too. It stays
the same function object, as does `showwarning`; its new code looks at the file first. Programs that
replace `showwarning`, record or capture warnings get the user's line. Owns the change of that
function; the rest of `warnings` stays unchanged.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

from lazyfuse import late_modules, versions
from lazyfuse.bootstrap import HERE, PACKAGES
from lazyfuse.interop import entrance_code

_OURS = (f"{HERE}/", "<lazyfuse ")


def _user_frame() -> FrameType | None:
    """The innermost frame of the user that called lazyfuse."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__package__") not in PACKAGES:
        frame = frame.f_back
    while frame is not None and frame.f_globals.get("__package__") in PACKAGES:
        frame = frame.f_back
    return frame


def install() -> None:
    """Redirect warnings of our files to the user's lines."""
    for name, module in list(sys.modules.items()):  # the late ones have it already
        if name.partition(".")[0] == "lazyfuse" and not late_modules.is_late(module):
            vars(module)["__warningregistry__"] = None
    shown = getattr(warnings, "_showwarnmsg", None)
    if type(shown) is not FunctionType or versions.unknown_python():
        return
    if shown.__code__.co_argcount == 1:
        before = FunctionType(shown.__code__, shown.__globals__, shown.__name__)
        entrance_code.lead(shown, functools.partial(_show, before))


def _show(before: Callable[[Any], Any], told: warnings.WarningMessage) -> None:
    """Show a warning; one from inside lazyfuse is shown at the user's line."""
    inside = type(told.filename) is str and told.filename.startswith(_OURS)
    frame = _user_frame() if inside and told.file is None else None
    if frame is None:
        before(told)
        return
    scope = frame.f_globals
    once: dict[Any, Any] = getattr(warnings, "onceregistry", {})
    text = str(told.message), told.category
    known = once.pop(text, None)  # entered for our file, while the user's line counts
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
