"""What a forked child makes anew: locks that another thread held, threads that are gone."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object that can be repaired in a child."""

    def after_fork(self) -> None:
        """Make locks and threads anew; everything else is as it was in the parent."""


_objects: weakref.WeakSet[Forked] = weakref.WeakSet()


def register(thing: Forked) -> None:
    """Call `thing.after_fork()` in every child that is forked while `thing` lives."""
    _objects.add(thing)


def _repair() -> None:
    for thing in list(_objects):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_repair)
