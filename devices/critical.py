"""Stretches in which nothing of the user's runs, while arrays change and operands are overwritten.

Python runs code of the program between any two of our lines: handlers of signals (that of Ctrl-C
raises), and finalisers when the collector finds a cycle. A kernel may write its result into the
memory of an operand without other readers: until the result is known as the value of its node, the
node still looks pending, and its operand is gone. A handler that raises in between, or looks at the
node, has it computed from the wrong values; and a lock that is taken just then is never given back.
So handlers wait while `Section` is entered, in the order of their signals, and the collector does
not run.

Python runs signal handlers in the main thread alone, so only there they are put off.
"""

from __future__ import annotations

import _signal  # the module signal makes an enum of every handler: ten times the cost
import dis
import os
import signal
import sys
import threading
from collections.abc import Callable
from gc import disable, enable, isenabled
from types import ModuleType
from typing import Any

from . import fork_safety

# Signals for which programs have handlers; those of faults in the program are not waited for.
_NAMES = (
    "SIGINT", "SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGVTALRM",
    "SIGPROF", "SIGBREAK",
)  # fmt: skip
_NUMBERS = tuple([int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)])
_main = threading.main_thread().ident
_identity = threading.get_ident

_finds = _signal.getsignal
_puts = _signal.signal

waiting: list[tuple[Any, int, Any]] = []
"""Handlers whose signals came meanwhile, with the number and the frame that was interrupted."""


class _Note:
    """Stands for a handler, and notes its signals."""

    __slots__ = ("handler",)

    def __init__(self, handler: Any) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: Any) -> None:
        waiting.append((self.handler, number, frame))


class Section:
    """A lock, with nothing of the user's running while it is held; entered as often as one likes.

    Handlers are put off before the lock is taken, and come back after it has been given back: an
    interrupt between a call and the line after it would leave the lock taken.
    """

    __slots__ = ("__weakref__", "_collects", "_inside", "lock")

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self._inside: dict[int, int] = {}  # how often threads have entered: they lend the lock
        self._collects = False

    def acquire(self) -> None:
        """Enter."""
        me = _identity()
        if me == _main:
            _put_off()
        self.lock.acquire()
        if not self._inside:
            self._collects = isenabled()
            if self._collects:
                disable()
        self._inside[me] = self._inside.get(me, 0) + 1

    def release(self) -> None:
        """Leave; handlers whose signals have come run now, if no other section is entered."""
        me = _identity()
        self._inside[me] -= 1
        if not self._inside[me]:
            del self._inside[me]
            if not self._inside and self._collects:
                enable()
        self.lock.release()
        if me == _main:
            _bring_back()

    __enter__ = acquire

    def __exit__(self, *exception: object) -> None:
        self.release()

    def after_fork(self) -> None:
        """In the child the thread that forked is alone, and as deep inside as it was."""
        if self._inside:
            me = _identity()
            self._inside = {me: self._inside[me]} if me in self._inside else {}
            if not self._inside and self._collects:
                enable()


def section(lock: Any) -> Section:
    """A section with that lock; in C where there is machine code."""
    made: Section = (Section if _native is None else _native.Section)(lock)
    fork_safety.register(made)
    return made


_native: Any = None


def use(native: ModuleType) -> None:
    """Let the module that is machine code put handlers off, also for sections made before."""
    global _native, _put_off, _bring_back
    due = _breathe if sys.version_info[:2] == (3, 12) else None
    native.section_setup(_main, waiting, _catch_up, _NUMBERS, _finds, _puts, due)
    _native, _put_off, _bring_back = native, native.put_off, native.bring_back


def _breathe() -> None:
    """Where this begins, Python 3.12 runs the collection that was due before it was disabled."""


_depth = 0  # how many sections the main thread is in
_notes: list[tuple[int, _Note]] = []


def put_off() -> None:
    """Handlers of signals wait; in the main thread."""
    global _depth, _notes
    if _depth:
        _depth += 1
        return
    notes: list[tuple[int, _Note]] = []
    try:
        for number, handler in zip(_NUMBERS, map(_finds, _NUMBERS), strict=True):
            if callable(handler):  # not the default, ignored, or other than Python's
                note = _Note(handler)
                notes.append((number, note))
                _puts(number, note)
    except BaseException:  # of a handler that was still there
        _restore(notes)
        raise
    _notes = notes
    _depth = 1


def bring_back() -> None:
    """Handlers come back, after as many calls as of `put_off`; those whose signals came run."""
    global _depth, _notes
    _depth -= 1
    if not _depth:
        notes, _notes = _notes, []
        try:
            _restore(notes)
        finally:
            _catch_up()


_put_off: Callable[[], None] = put_off
_bring_back: Callable[[], None] = bring_back


def _restore(notes: list[tuple[int, _Note]]) -> None:
    """Put handlers back, unless the program has put others in their place meanwhile."""
    try:
        for number, note in notes:
            if _finds(number) is note:
                _puts(number, note.handler)
    except BaseException:  # of a handler that is back already
        _restore(notes)
        raise


def _catch_up() -> None:
    """Run the handlers that have waited, in the order of their signals."""
    try:
        while waiting:
            try:
                handler, number, frame = waiting.pop(0)
            except IndexError:  # a handler has caught up, too
                return
            handler(number, frame)
    except BaseException:
        _catch_up()  # each of them, whatever those before it raise
        raise


def raise_later(number: int, error: BaseException) -> None:
    """Stands for a handler in `waiting`: what that has raised in a finaliser of ours, where Python
    would only print it.
    """
    raise error


def begin_quietly(function: Any) -> Any:
    """The function, before whose first line no handler runs.

    Callbacks of ctypes and finalisers cannot pass on what is raised there, and ctypes takes it for
    success. The interpreter asks for signals where `RESUME` begins a call, not where it goes on
    with one that has waited. A function that begins with `try` handles all that follows.
    """
    code = function.__code__
    begin = code.co_code
    at = next((i for i in range(0, len(begin), 2) if begin[i] == _RESUME), None)
    if at is not None:
        goes_on = bytes((begin[at], _HAS_WAITED))
        function.__code__ = code.replace(co_code=begin[:at] + goes_on + begin[at + 2 :])
    return function


_RESUME = dis.opmap.get("RESUME")
_HAS_WAITED = 2  # for `yield from`


def give_way() -> None:
    """Raise the KeyboardInterrupt that waits, from where nothing has been written over yet."""
    if _identity() == _main:
        for at, (handler, number, frame) in enumerate(waiting):
            if handler is signal.default_int_handler:
                del waiting[at]
                handler(number, frame)


def _after_fork() -> None:
    """In a child that another thread than the main one has forked: that is the main one now."""
    global _main, _depth, _notes
    if _identity() != _main:
        _main = _identity()
        _restore(_notes)
        _depth, _notes = 0, []
        if _native is not None:
            _native.new_main(_main)
        waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
