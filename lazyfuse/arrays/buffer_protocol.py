"""The buffer protocol for our arrays on Python 3.11, which has no `__buffer__` for Python classes.

Puts a function into the type's slot that hands the request on to the exported numpy array. The
place of the slot is part of CPython's stable layout; it is checked on a class of its own before
the array gets it, and left alone wherever the check fails (`memoryview(x)` is then refused).
Where the record path is machine code, native/lent.c has the function.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from lazyfuse.arrays.base import COMPILED, NATIVE
from lazyfuse.runtime.scheduling.evaluate import begin_quietly

_AS_BUFFER = 20 * ctypes.sizeof(ctypes.c_void_p)  # PyTypeObject.tp_as_buffer
_GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)

_kept: list[Any] = []  # callbacks that slots point at


class Lost:
    """What the last request for a buffer raised, and whose it was.

    NumPy drops it and asks for something else, which has to raise it then (an interrupt, a warning
    that is an error).
    """

    found: tuple[Any, BaseException] | None = None


lost = Lost()


def install(kind: type, memory_of: Callable[[Any], Any]) -> bool:
    """Let instances of `kind` (a Python class) export the buffer of `memory_of(instance)`."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 12):
        return False
    if COMPILED and NATIVE.buffer(memory_of):  # which can pass exceptions on
        return True

    class Trial:
        pass

    _put(Trial, lambda instance: b"trial")
    try:
        if bytes(memoryview(Trial())) != b"trial":  # type: ignore[arg-type]
            return False
    except TypeError:
        return False
    _put(kind, memory_of)
    return True


def _put(kind: type, memory_of: Callable[[Any], Any]) -> None:
    ask = ctypes.pythonapi["PyObject_GetBuffer"]
    ask.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    ask.restype = ctypes.c_int

    def get_buffer(instance: Any, view: int, flags: int) -> int:
        real = None
        try:
            real = memory_of(instance)
            return ask(real, view, flags)  # type: ignore[no-any-return]
        except (BufferError, ValueError) as error:  # a dtype that no format tells, as a rule
            # ctypes cannot pass it on: whoever asked hears of a SystemError
            if real is None and error.__class__ is not BufferError:
                lost.found = instance, error
            return -1
        except BaseException as error:  # no call here: a handler may raise behind each
            lost.found = instance, error
            return -1

    callback = _GetBuffer(begin_quietly(get_buffer))
    _kept.append(callback)
    procs = ctypes.c_void_p.from_address(id(kind) + _AS_BUFFER).value
    if procs:
        slot = ctypes.c_void_p.from_address(procs)
        slot.value = ctypes.cast(callback, ctypes.c_void_p).value
