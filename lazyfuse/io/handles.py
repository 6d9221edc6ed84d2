"""Open files of this process: opened once, shared by its threads, closed when many are open.

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

from lazyfuse.devices import caches

LIMIT = 64
"""Open files that no task uses now."""


class Handle:
    """An open file, and how many tasks use it."""

    __slots__ = ("close", "stamp", "users", "value")

    def __init__(self, value: Any, stamp: object, close: Callable[[Any], object]) -> None:
        self.value, self.stamp, self.close, self.users = value, stamp, close, 0


_open: dict[tuple[str, ...], Handle] = {}
_leaving: list[Handle] = []
"""Replaced while a task used them; closed when it has finished. In a forked child: its parent's."""
_lock = threading.RLock()


@contextlib.contextmanager
def borrow(
    key: tuple[str, ...],
    stamp: object,
    opening: Callable[[], Any],
    closing: Callable[[Any], object],
) -> Iterator[Any]:
    """Lend the open file of that key; another one where its stamp has changed.

    `key` begins with a kind and a path.
    """
    with _lock:
        handle = _open.pop(key, None)
        if handle is not None and handle.stamp != stamp:
            _leave(handle)
            handle = None
        if handle is None:
            handle = Handle(opening(), stamp, closing)
        handle.users += 1
        _open[key] = handle  # the last one used is the last one
        _shrink(LIMIT)
    try:
        yield handle.value
    finally:
        with _lock:
            handle.users -= 1
            if handle.users == 0 and handle in _leaving:
                _leaving.remove(handle)
                handle.close(handle.value)


def is_open(key: tuple[str, ...]) -> bool:
    """Whether the file of that key is open."""
    return key in _open


def drop(path: str | None = None) -> None:
    """Close the files of that path, or all: those in use when their tasks have finished."""
    with _lock:
        for key in [key for key in _open if path is None or key[1] == path]:
            _leave(_open.pop(key))


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
    global _lock
    _lock = threading.RLock()
    _leaving.extend(_open.values())
    for handle in _leaving:
        handle.users += 1  # for ever
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
caches.register("io.handles.open", _open.__len__, LIMIT, drop)
