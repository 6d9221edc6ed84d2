"""Stretches of an evaluation in which nothing of the user's runs: operands are being written over.

A kernel may write its result into the memory of an operand that nobody else wants. Until the result
is known as the value of its node, the node still looks pending, and its operand is gone: whoever
leaves in between (Ctrl-C), or looks (a signal handler, a finaliser that the collector runs), would
compute it from the wrong values. Inside `section` signal handlers wait, in the order of the
signals, and the collector does not run; both are made up for at its end, when the values stand.

Python runs signal handlers in the main thread alone, so only there they are put off.
"""

from __future__ import annotations

import _signal  # the module signal makes an enum of every handler: ten times the cost
import os
import signal
import threading
from gc import disable, enable, isenabled
from types import TracebackType
from typing import Any

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
    """What `section` is. It is entered and left with the lock of evaluations held."""

    __slots__ = ("_depth", "_notes")

    def __init__(self) -> None:
        self._depth = 0  # of the main thread
        self._notes: list[tuple[int, _Note]] = []

    def __enter__(self) -> None:
        if _identity() == _main:
            if not self._depth:
                self._put_off()
            self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _identity() == _main:
            self._depth -= 1
            if not self._depth:
                notes, self._notes = self._notes, []
                _restore(notes)

    def _put_off(self) -> None:
        notes: list[tuple[int, _Note]] = []
        try:
            for number in _NUMBERS:
                handler = _finds(number)
                if handler.__class__ not in _NONE:
                    note = _Note(handler)
                    notes.append((number, note))
                    _puts(number, note)
            self._notes = notes
        except BaseException:  # of a handler that was still there
            _restore(notes)
            raise


def _restore(notes: list[tuple[int, _Note]]) -> None:
    """Put handlers back, where nobody else has put another one meanwhile."""
    try:
        for number, note in notes:
            if _finds(number) is note:
                _puts(number, note.handler)
    except BaseException:  # of a handler that is back already
        _restore(notes)
        raise


_NONE = (int, type(None), type(signal.SIG_DFL))  # the default, ignored, or not Python's
section = Section()


class Calm:
    """What `calm` is. It is entered and left with the lock of evaluations held."""

    __slots__ = ("_collects", "_depth", "_looks", "_others", "_owner", "_seen", "_waits")

    def __init__(self) -> None:
        self._owner = 0  # the thread that is inside
        self._depth = 0  # how deep it is
        self._others: dict[int, int] = {}  # those to which it has lent the lock
        self._collects = False
        self._seen: list[Any] = []  # the handlers that were there last
        self._looks = False  # whether one of them is the program's own
        self._waits = False  # whether the main thread has entered the section

    def __enter__(self) -> None:
        me = _identity()
        if self._owner == me:
            self._depth += 1
        elif self._owner:
            self._others[me] = depth = self._others.get(me, 0) + 1
            if depth == 1 and me == _main:
                self._put_off()
        else:
            if me == _main:
                self._put_off()
            self._owner = me
            self._depth = 1
            if not self._others:
                self._collects = isenabled()
                if self._collects:
                    disable()

    def _put_off(self) -> None:
        found = [*map(_finds, _NUMBERS)]
        if found != self._seen:
            usual = (*_NONE, type(signal.default_int_handler))
            self._looks = any(each.__class__ not in usual for each in found)
            self._seen = found
        if self._looks and not self._waits:
            section.__enter__()
            self._waits = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        me = _identity()
        if self._owner == me:
            self._depth -= 1
            if self._depth:
                return
            self._owner = 0
        else:
            depth = self._others.pop(me, 1) - 1
            if depth:
                self._others[me] = depth
                return
        self._end(me)

    def _end(self, me: int) -> None:
        if self._collects and not self._owner and not self._others:
            enable()
        if self._waits and me == _main:
            self._waits = False
            section.__exit__(None, None, None)
            if waiting:
                catch_up()

    @property
    def is_entered(self) -> bool:
        """Whether any thread is inside."""
        return bool(self._owner or self._others)

    def heal(self) -> None:
        """Leave what the calling thread, which does not hold the lock, has not left.

        A Ctrl-C may come between the call of `__exit__` and its first line.
        """
        me = _identity()
        if self._owner == me or me in self._others:
            if self._owner == me:
                self._owner = 0
            self._others.pop(me, None)
            self._end(me)


calm = Calm()


def catch_up() -> None:
    """Run the handlers that have waited, in the order of their signals."""
    if _identity() != _main or section._depth:
        return
    try:
        while waiting:
            try:
                handler, number, frame = waiting.pop(0)
            except IndexError:  # a handler has caught up, too
                return
            handler(number, frame)
    except BaseException:
        catch_up()  # each of them, whatever those before it raise
        raise


def give_way() -> None:
    """Raise the KeyboardInterrupt that waits, from where nothing has been written over yet."""
    if _identity() == _main:
        for at, (handler, number, frame) in enumerate(waiting):
            if handler is signal.default_int_handler:
                del waiting[at]
                handler(number, frame)


def _begin_anew() -> None:
    """In a child that another thread has forked meanwhile."""
    global _main
    _main = _identity()
    if calm._collects and (calm._owner or calm._others):
        enable()
    section.__init__()  # type: ignore[misc]
    calm.__init__()  # type: ignore[misc]
    waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
