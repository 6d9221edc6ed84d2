"""Critical sections, in which no code of the user runs while arrays change.

Python runs the program's code between any two of our lines: signal handlers (that of Ctrl-C
raises), and finalisers when the collector finds a cycle. A kernel may write its result into the
memory of an operand without other readers. Until the result is stored as the value of its node, the
node still looks pending, and its operand is lost. If a handler raises in between, or reads the
node, the node is computed from wrong values; and a lock taken just then is never released. So in a
`Section` handlers wait, in the order of their signals, and so does the collector.

Python runs signal handlers in the main thread only, so sections put them off there only. What the
system does at a signal stays as it is (`interpreter.py`): it may call a handler in C.

The collector's switch is the program's. So it is left alone: a collection that is due in a section
finds nothing, since a callback of the collector holds all that it looks at, and another one follows
when this thread has left its sections. Other threads collect meanwhile.
"""

from __future__ import annotations

import _signal  # ten times faster than signal, which makes an enum of every handler
import dis
import functools
import gc
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import fork_safety, interpreter

# Signals for which programs have handlers; signals of faults in the program cannot wait.
_NAMES = (
    "SIGINT", "SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGVTALRM",
    "SIGPROF", "SIGBREAK",
)  # fmt: skip
_NUMBERS = tuple([getattr(_signal, name) for name in _NAMES if hasattr(_signal, name)])
_main = threading.main_thread().ident  # None in a sub-interpreter, which runs no handlers
_identity = threading.get_ident

_finds = _signal.getsignal
_puts = _signal.signal

waiting: list[tuple[Any, int, Any]] = []
"""Handlers whose signals came in a section, with the number and the interrupted frame."""


class _Note:
    """Replaces a handler, and records its signals."""

    __slots__ = ("action", "handler")

    def __init__(self, number: int, handler: Any) -> None:
        self.handler = handler
        self.action = interpreter.unusual(number)

    def __call__(self, number: int, frame: Any) -> None:
        waiting.append((self.handler, number, frame))


class Section:
    """A reentrant lock; while a thread holds it, no code of the user runs in that thread.

    Handlers are put off before the lock is taken, and restored after its release: an interrupt
    between a call and the line after it would leave the lock taken.
    """

    __slots__ = ("__weakref__", "lock")

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def acquire(self) -> None:
        """Enter the section."""
        if _identity() == _main:
            _put_off()
        if _threads and sys.is_finalizing():
            _survive()
        self.lock.acquire()
        _enter()

    def release(self) -> None:
        """Leave the section. What has waited runs now, if the thread is in no other section."""
        _leave()
        self.lock.release()
        if _identity() == _main:
            _bring_back()
        _collect_late()

    __enter__ = acquire

    def __exit__(self, *exception: object) -> None:
        self.release()


_locks: list[Any] = []  # of sections
_threads = True  # whether other threads can run


def _survive() -> None:
    """When the interpreter ends, other threads run no more: as in a child, theirs is dropped."""
    global _threads
    _threads = False
    for lock in _locks:
        lock._at_fork_reinit()
    fork_safety.repair()


def section(lock: Any) -> Section:
    """A section with that lock; in C where the native extension is in use."""
    global _main
    if _native is None and not interpreter.IS_MAIN:
        _main = None
    _locks.append(lock)
    made: Section = (Section if _native is None else _native.Section)(lock)
    return made


_native: Any = None


def use(native: ModuleType) -> None:
    """Let the native extension put handlers off, also for sections made before."""
    global _native, _put_off, _bring_back, _enter, _leave, _collect_late
    native.section_setup(_main, waiting, _NUMBERS, _catch_up, _finds, _puts, _survive)
    # later ones go through all objects for it, as the list of all does
    locked: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    freeze = gc.freeze if sys.version_info < (3, 14) and locked else None
    collector = gc.callbacks, gc.get_objects, gc.collect, _BEYOND
    native.collector_setup(*collector, freeze, gc.unfreeze, gc.get_freeze_count)
    _native, _put_off, _bring_back = native, native.put_off, native.bring_back
    _enter, _leave, _collect_late = native.enter, native.leave, native.collect_late


class _Thread(threading.local):
    """What the collector has to know of a thread."""

    depth = 0  # how many sections it is in
    due = -1  # the generation of the collection that is due after them


_thread = _Thread()
_held: list[Any] = []  # what the collector looks at
_others: list[Any] = []  # the collector's other callbacks, while they wait
# Generations that a collection looks at beyond its own: Python 3.14 takes parts of all.
_BEYOND = 2 if sys.version_info >= (3, 14) else 0


def begin_quietly(function: Any) -> Any:
    """Make a function before whose first line no handler runs.

    Callbacks of ctypes and finalisers cannot propagate exceptions, and ctypes takes them for
    success. The interpreter checks signals where `RESUME` begins a call, but not where it continues
    a call that has waited. So a function that begins with `try` catches every exception.
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


@begin_quietly
def _postpone(phase: str, info: dict[str, int]) -> None:
    """As the collector's first callback: in a section, hold all that it looks at until it ends.

    The callback that follows does it, in C (`union` reads all that it is given), so that no other
    thread runs until the end: what it builds must not be held. Python resizes no tuple that is.
    """
    try:  # outside of sections without a call, after which Python would run handlers
        if phase == "start" and _thread.depth:
            _thread.due = max(_thread.due, info["generation"])
            _others.extend(gc.callbacks[1:])
            del gc.callbacks[1:]
            generations = range(min(info["generation"] + _BEYOND, 2) + 1)
            holds = map(_held.append, map(gc.get_objects, generations))
            gc.callbacks.append(functools.partial(set().union, holds))
        elif _held:
            _held.clear()
            del gc.callbacks[1:]
    except BaseException as error:  # an interrupt, which the collector would drop
        waiting.append((raise_later, 0, error))


def enter() -> None:
    """Begin a section of this thread."""
    if gc.callbacks[:1] != [_postpone]:
        gc.callbacks[:] = [_postpone, *[each for each in gc.callbacks if each is not _postpone]]
    _thread.depth += 1


def leave() -> None:
    """End a section of this thread."""
    if not _thread.depth:
        raise RuntimeError("this thread has not entered the section")
    _thread.depth -= 1


def collect_late() -> None:
    """Do the collection that was due in a section, after the last one."""
    if _thread.due >= 0 and not _thread.depth:
        # what the youngest generation held is in the next one
        due, _thread.due = max(_thread.due, 1), -1
        gc.callbacks[1:1], _others[:] = _others, []
        if gc.isenabled():
            gc.collect(due)


_enter: Callable[[], None] = enter
_leave: Callable[[], None] = leave
_collect_late: Callable[[], None] = collect_late


_depth = 0  # how many sections the main thread is in
_notes: list[tuple[int, _Note]] = []


def put_off() -> None:
    """Make signal handlers wait. Called in the main thread."""
    global _depth, _notes
    if _depth:
        _depth += 1
        return
    notes: list[tuple[int, _Note]] = []
    try:
        for number, handler in zip(_NUMBERS, map(_finds, _NUMBERS), strict=True):
            if callable(handler):  # neither the default, nor ignored, nor a handler in C
                note = _Note(number, handler)
                notes.append((number, note))
                _put(number, note, note)
    except BaseException:  # raised by a handler that was still installed
        _restore(notes)
        raise
    _notes = notes
    _depth = 1


def bring_back() -> None:
    """Undo one `put_off`. After the last one, restore the handlers and run those that waited."""
    global _depth, _notes
    _depth -= 1
    if not _depth:
        notes, _notes = _notes, []
        try:
            _restore(notes)
        finally:
            _catch_up()


def _put(number: int, handler: Any, note: _Note) -> None:
    """Give a signal a handler of Python's; what the system does at it stays."""
    _puts(number, handler)
    if note.action is not None:
        interpreter.restore(number, note.action)


_put_off: Callable[[], None] = put_off
_bring_back: Callable[[], None] = bring_back


def _restore(notes: list[tuple[int, _Note]]) -> None:
    """Restore handlers, unless the program has installed others meanwhile."""
    try:
        for number, note in notes:
            if _finds(number) is note:
                _put(number, note.handler, note)
    except BaseException:  # raised by a handler that is restored already
        _restore(notes)
        raise


def _catch_up() -> None:
    """Run the handlers that have waited, in the order of their signals."""
    try:
        while waiting:
            try:
                handler, number, frame = waiting.pop(0)
            except IndexError:  # a handler that entered a section took the last one
                return
            handler(number, frame)
    except BaseException:
        _catch_up()  # the others run even if this one raises
        raise


def raise_later(number: int, error: BaseException) -> None:
    """Raise `error`. As a handler in `waiting`, it raises again what a handler raised in a
    finaliser of ours, where Python would only print it.
    """
    raise error


def give_way() -> None:
    """Raise a waiting KeyboardInterrupt, at a point where no operand has been overwritten."""
    if _identity() == _main:
        for at, (handler, number, frame) in enumerate(waiting):
            if handler is _signal.default_int_handler:
                del waiting[at]
                handler(number, frame)


def _after_fork() -> None:
    """In a child, make the forking thread the main thread."""
    global _main, _depth, _notes
    if _main is not None and _identity() != _main:
        _main = _identity()
        _restore(_notes)
        _depth, _notes = 0, []
        if _native is not None:
            _native.new_main(_main)
        waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
