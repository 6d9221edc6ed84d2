"""Repairs after a fork: locks that another thread held, threads that the child lacks.

Some locks are not ours: the import system's, one per module, and LLVM's. A child forked while a
thread of lazyfuse holds one waits for it for ever. Such threads hold `fork_lock`, and a fork waits
until no thread holds it: milliseconds, or as long as an import takes.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

# Seconds after which a fork proceeds: the forking thread itself may hold what another waits for.
PATIENCE = 30.0


class Forked(Protocol):
    """An object that can be repaired in a forked child."""

    def after_fork(self) -> None:
        """Make new locks and threads; all other state stays as in the parent."""


_objects: weakref.WeakSet[Forked] = weakref.WeakSet()
_functions: list[Callable[[], None]] = []


def register(thing: Forked) -> None:
    """Call `thing.after_fork()` in every child that is forked while `thing` lives."""
    _objects.add(thing)


def call(function: Callable[[], None]) -> None:
    """Call `function()` in every child, after the objects."""
    _functions.append(function)


def repair() -> None:
    """Tell every object that this thread is the only one left."""
    for thing in list(_objects):
        thing.after_fork()
    for function in _functions:
        function()


class ForkLock:
    """A lock for lazyfuse's threads, which a fork takes for a moment."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._taken = False  # whether a fork holds it

    def acquire(self, timeout: float = -1) -> bool:
        """As of a lock."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """As of a lock."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def before(self) -> None:
        """Wait until no thread of lazyfuse holds locks of the interpreter or of LLVM."""
        self._taken = self._lock.acquire(timeout=PATIENCE)

    def after(self) -> None:
        """In the parent: release the lock."""
        if self._taken:
            self._taken = False
            self._lock.release()

    def after_fork(self) -> None:
        """In the child, where the other threads are gone: make the lock anew."""
        if self._taken:
            self.after()
        else:
            self._at_fork_reinit()

    def _at_fork_reinit(self) -> None:
        """As of a lock: make it anew, for the only thread that is left."""
        self._taken, self._lock = False, threading.RLock()


fork_lock = ForkLock()
register(fork_lock)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=repair)
    os.register_at_fork(before=fork_lock.before, after_in_parent=fork_lock.after)


def hold(lock: Any) -> None:
    """Let every fork take a lock and give it back on both sides.

    A fork takes it before `fork_lock`, which threads ask for while they hold the other one. Python
    calls what was registered last first, so this module has registered `fork_lock` above.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release)
        os.register_at_fork(after_in_child=lock.release)
