"""What a test must leave as it found it: options, error state, printing, listeners, threads.

`snapshot()` takes it in some microseconds; `changes(before)` says in words what is different now.
Imported by conftest.py; holds no test.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.runtime.events import decisions, tracing
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import compound_calls, evaluate, flush

_error_state: Any = sys.modules["lazyfuse.runtime.numerics.errstate"]
_OPTIONS = [row.name for row in config.rows()]
_values = attrgetter(*_OPTIONS)
_SET_BY_IMPORTS = ("PYOPENCL_HOME",)  # by pyopencl, in whichever test imports it first


def snapshot() -> dict[str, Any]:
    """Global state by name."""
    _error_state.is_plain()  # `numpy.errstate` ends unheard: asked again now
    return {
        "options": _values(config.options),
        "error state": np.geterr(),
        "error call": np.geterrcall(),
        "error states entered": list(_error_state._entered),
        "error state believed plain": _error_state.plain,
        "buffer size": np.getbufsize(),
        "print options": np.get_printoptions(),
        "listeners": tracing.listeners,
        "composite calls": compound_calls.depth,
        "device of the context": devices.innermost.get(),
        "folder": os.getcwd(),
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("LAZYFUSE", "PYOPENCL")) and name not in _SET_BY_IMPORTS
        },
        "switch interval": sys.getswitchinterval(),
        "recursion limit": sys.getrecursionlimit(),
        "garbage collection": gc.isenabled(),
        "import path": list(sys.path),
        "threads that hold the process": [
            each.name for each in threading.enumerate() if not each.daemon
        ],
    }


@contextmanager
def recording_all_settled() -> Iterator[None]:
    """Nothing is too small to be recorded; nothing is pending before and after."""
    with config.options(eager_below=0):
        settle_pending()
        yield
        settle_pending()


def changes(before: dict[str, Any]) -> list[str]:
    """What is no longer as it was."""
    after = snapshot()
    found = []
    for name, was in before.items():
        now = after[name]
        if now == was:
            continue
        if name == "options":
            pairs = zip(_OPTIONS, was, now, strict=True)
            found += [f"option {key}: {old!r} -> {new!r}" for key, old, new in pairs if old != new]
        else:
            found.append(f"{name}: {was!r} -> {now!r}")
    return found


def usual_error_state() -> None:
    """A state that was set back by its values is another object: the first one is put back."""
    if np.geterr() == _error_state.PLAIN and np.geterrcall() is None:
        _error_state.STATE.set(_error_state.DEFAULT)


def settle_pending() -> None:
    """Run what earlier tests have left pending and forget their lines.

    Their work would count when it is decided whether a loop is evaluated while it records.
    """
    pending = evaluate.here.recorded
    pending.steady.clear()
    if frontier := pending.frontier():
        evaluate.evaluate(frontier, decisions.CALLED)
    pending.reset()


@contextmanager
def usual_filters() -> Iterator[None]:
    """The filters of warnings of this moment count as the usual ones of the program.

    pytest gives every test filters of its own, and lazyfuse would mark each recorded operation with
    them, which programs outside pytest have no need of: the shorter ways would never be tested.
    """
    pending = evaluate.here.recorded
    before = pending.filters, flush.usual_filters
    pending.filters = flush.usual_filters = warnings.filters
    try:
        yield
    finally:
        pending.filters, flush.usual_filters = before
