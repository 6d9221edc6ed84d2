"""What the interpreter allows: threads, handlers of signals; and what they overwrite.

A library in C, or a host program, may have put its own handler over Python's (`faulthandler`, MPI,
Qt), and `signal.siginterrupt` tells the system whether to go on with an interrupted call.
`signal.signal` overwrites both and has no question for either, so this module asks the C library;
`native/base/section.c` does the same. It has run before the first section is entered, since a late
module enters one.
"""

from __future__ import annotations

import ctypes
import sys
import threading


def _is_main() -> bool:
    """Whether this is no sub-interpreter."""
    if sys.implementation.name != "cpython":
        return True
    present, main = (
        ctypes.pythonapi.PyInterpreterState_Get,
        ctypes.pythonapi.PyInterpreterState_Main,
    )
    present.restype = main.restype = ctypes.c_void_p
    return bool(present() == main())


IS_MAIN = _is_main()
"""A sub-interpreter runs no handlers of signals, and a thread of ours would let its end fail."""


def start(thread: threading.Thread) -> bool:
    """Start a thread; False: there can be no other one.

    Python 3.11 waits for ever for a thread that is started when the interpreter ends.
    """
    if sys.is_finalizing() or not IS_MAIN:
        return False
    try:
        thread.start()
    except RuntimeError:  # the system has no room, or the interpreter is about to end
        return False
    return True


class Action(ctypes.Structure):
    """A `struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_char * (4 if sys.platform == "darwin" else 128)),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_sigaction = None if sys.platform == "win32" else ctypes.PyDLL(None).sigaction
_usual: tuple[int | None, int] = (None, 0)  # what signal.signal tells the system


def unusual(number: int) -> Action | None:
    """What the system does at a signal, if it is not what `signal.signal` tells it."""
    if _sigaction is None:
        return None
    found = Action()
    _sigaction(number, None, ctypes.byref(found))
    return None if (found.handler, found.flags) == _usual else found


def restore(number: int, action: Action) -> None:
    """Undo what `signal.signal` has told the system."""
    global _usual
    if _sigaction is not None:
        told = Action()
        _sigaction(number, ctypes.byref(action), ctypes.byref(told))
        _usual = told.handler, told.flags
