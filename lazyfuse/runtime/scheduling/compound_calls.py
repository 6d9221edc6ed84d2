"""Marks the time during which one call of the user's records several operations.

`flush.py` takes a source line that repeats for a new iteration of a loop. The operations of one
`var` or `isclose` share a line although they are no loop. Owns `depth`; imports nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

depth = 0
"""How many functions that record several operations for one source line are running."""


def as_one(function: F) -> F:
    """Decorator: the operations that `function` records belong to one call of the user's."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        global depth
        depth += 1
        try:
            return function(*args, **kwargs)
        finally:
            depth -= 1

    return call  # type: ignore[return-value]
