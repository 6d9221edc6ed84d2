"""Arrays of ours in every state, for tests that must hold in each of them.

Imported by tests; holds no test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lazyfuse import config
from lazyfuse.arrays.ndarray import storage_of, wrap, wrap_shared

Make = Callable[[Any], Any]


@contextmanager
def recording_all() -> Iterator[None]:
    """Nothing is too small to be recorded."""
    before = config.options.eager_below
    config.options(eager_below=0)
    try:
        yield
    finally:
        config.options(eager_below=before)


def _pending(value: Any) -> Any:
    x = wrap(value.copy(order="K"))
    zero = np.zeros((), value.dtype)
    return x | zero if value.dtype == np.bool_ else x + zero


def _viewed(value: Any) -> Any:
    x = wrap(value.copy(order="K"))
    storage_of(x)
    return x


def _foreign(value: Any) -> Any:
    return wrap_shared(value.copy(order="K"))


STATES: dict[str, tuple[bool, Make]] = {
    "direct": (False, lambda value: wrap(value.copy(order="K"))),
    "alone": (True, lambda value: wrap(value.copy(order="K"))),
    "pending": (True, _pending),
    "viewed": (True, _viewed),
    "pending view": (True, lambda value: _pending(value)[...]),
    "foreign": (True, _foreign),
}


@contextmanager
def state(name: str) -> Iterator[Make]:
    """A function that makes arrays in that state, while they stay in it."""
    lazy, make = STATES[name]
    if not lazy:
        yield make
        return
    with recording_all():
        yield make
