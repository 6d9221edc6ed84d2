"""Calls of accelerated functions on few elements: the plain function, where it is faster.

On arrays that are never recorded lazyfuse does what NumPy does. Some functions are faster there
(the mean of few numbers), most are not by as much as a call's conversions cost. So both ways are
timed, per function and kind of arguments, and the faster one serves the next calls. Owns this
choice. No value depends on it: the operations, and their bits, are NumPy's either way. A call that
records anything is never plain.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.arrays.ndarray import OURS
from lazyfuse.devices.caches import Group
from lazyfuse.runtime.scheduling import evaluate

WARM = 2  # calls before the first that is timed
TIMED = 3  # calls of each way that are timed
SERVES = 1024  # calls that the faster way serves before both are timed again
KINDS = 64  # kinds of arguments that a function remembers

_PLAIN = frozenset((float, complex, bool, str, bytes, type(None), np.float64, np.float32))

Key = tuple[Any, ...]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def key_of(args: Args, kwargs: Kwargs) -> Key | None:
    """The kind of a call's arguments: shapes, types, about how large integers are; None if an
    array is so large that its operations are recorded, or is one of ours.
    """
    limit = config.options.eager_below
    found: list[Any] = [*kwargs]
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is np.ndarray:
            if value.size >= limit:
                return None
            found.append(value.shape)
        elif kind is int:
            found.append(value.bit_length())
        elif kind in _PLAIN:
            found.append(kind)
        elif kind in OURS:
            return None
        else:
            found.append(id(value))  # what it holds is not looked at
    return tuple(found)


class _Trial:
    """What is known of calls of one kind."""

    __slots__ = ("ours", "records", "theirs", "turn")

    def __init__(self) -> None:
        self.turn = 0
        self.records = False
        self.ours = self.theirs = float("inf")  # seconds of the shortest call


class Ways:
    """The two ways of one function, and which of them serves which calls."""

    def __init__(self, plain: Callable[..., Any], accelerated: Callable[[Args, Kwargs], Any]):
        self.plain: dict[Key, int] = {}  # calls that the plain function serves from now on
        self._function = plain
        self._accelerated = accelerated
        self._trials: dict[Key, _Trial] = {}
        _all.add(self)

    def call(self, key: Key, args: Args, kwargs: Kwargs) -> Any:
        """A call that no choice serves yet."""
        trial = self._trials.get(key)
        if trial is None:
            if len(self._trials) >= KINDS:
                self.forget()
            trial = self._trials[key] = _Trial()
        turn, trial.turn = trial.turn, trial.turn + 1
        if trial.records:
            return self._accelerated(args, kwargs)
        start = time.perf_counter()
        if WARM <= turn < WARM + TIMED:
            result = self._function(*args, **kwargs)
            trial.theirs = min(trial.theirs, time.perf_counter() - start)
            return result
        before = evaluate.activity()
        result = self._accelerated(args, kwargs)
        if turn < WARM:
            trial.records = evaluate.activity() != before
        elif turn < WARM + 2 * TIMED:
            trial.ours = min(trial.ours, time.perf_counter() - start)
            trial.records = evaluate.activity() != before
        elif trial.theirs <= trial.ours:
            self.plain[key] = SERVES
            self._trials.pop(key, None)
        elif turn >= SERVES:
            self._trials.pop(key, None)
        return result

    def forget(self) -> None:
        """Time everything anew."""
        self._trials.clear()
        self.plain.clear()


_all: Group[Ways] = Group(
    "tools.small_calls.ways", lambda ways: len(ways._trials), None, Ways.forget, "KINDS a function"
)
