"""Open files of zarr and HDF5: opened once, shared by threads, closed when many are open.

A task reads one chunk, and a worker runs thousands of tasks on a few files. `borrow` lends the open
file; what it was opened from is looked at each time (`stamp`), so that a file that was replaced or
changed since is opened again. A child process that was forked opens its own, and closes none of its
parent's: closing an HDF5 file would write to it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import lazyfuse.devices.caches as caches

LIMIT = 64
"""Open files that no task uses now."""

Key = tuple[str, ...]
"""A kind of file, a path, and what else tells open files apart."""


class Handle:
    """An open file, and how many tasks use it."""

    __slots__ = ("close", "key", "stamp", "users", "value")

    def __init__(self, key: Key, value: Any, stamp: object, close: Callable[[Any], object]) -> None:
        self.key, self.value, self.stamp, self.close, self.users = key, value, stamp, close, 0


_open: dict[Key, Handle] = {}
_leaving: list[Handle] = []
"""Handles that are not lent again; closed when the tasks that use them have finished."""
_inherited: list[Handle] = []
"""Those of the parent of a forked process: kept, so that they are not closed."""
_lock = threading.RLock()
_idle = threading.Condition(_lock)


@contextlib.contextmanager
def borrow(
    key: Key,
    stamp: object,
    opening: Callable[[], Any],
    closing: Callable[[Any], object],
    rather: Key | None = None,
) -> Iterator[Any]:
    """Lend the open file of that key; a new one where its stamp has changed.

    `rather`: the key of one that is lent in its place if it is open.
    """
    with _lock:
        handle = None if rather is None else _open.get(rather)
        if handle is None:
            handle = _open.pop(key, None)
            if handle is not None and handle.stamp != stamp:
                _leave(handle)
                handle = None
            if handle is None:
                handle = Handle(key, opening(), stamp, closing)
            _open[key] = handle  # the last one used is the last one
        handle.users += 1
        _shrink(LIMIT)
    try:
        yield handle.value
    finally:
        with _lock:
            handle.users -= 1
            if handle.users == 0:
                if handle in _leaving:
                    _leaving.remove(handle)
                    handle.close(handle.value)
                _idle.notify_all()


def drop(path: str | None = None) -> None:
    """Close the files of that path, or all: those in use when their tasks have finished."""
    with _lock:
        for key in [key for key in _open if path is None or key[1] == path]:
            _leave(_open.pop(key))


def close(path: str) -> None:
    """Close the files of that path, and wait for the tasks that use them."""
    with _lock:
        drop(path)
        while any(handle.key[1] == path for handle in _leaving):
            _idle.wait()
            drop(path)


def _leave(handle: Handle) -> None:
    if handle.users:
        _leaving.append(handle)
    else:
        handle.close(handle.value)


def _shrink(limit: int) -> None:
    for key in [key for key, handle in _open.items() if not handle.users]:
        if len(_open) <= limit:
            return
        _leave(_open.pop(key))


def _after_fork() -> None:
    global _lock, _idle
    _lock = threading.RLock()
    _idle = threading.Condition(_lock)
    _inherited.extend([*_open.values(), *_leaving])
    _open.clear()
    _leaving.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
caches.register("io.handles.open", _open.__len__, LIMIT, drop)
