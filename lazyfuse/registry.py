"""Which of our functions stands for which of NumPy's, by identity, in both directions.

Owns the two tables. Imports nothing of lazyfuse, so that every module may import it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

OURS: dict[Any, Any] = {}
"""NumPy's object -> ours (functions, ufuncs, classes)."""

THEIRS: dict[Any, Any] = {}
"""Our object -> NumPy's."""


def pair(theirs: Any, ours: Any) -> None:
    """Say that `ours` stands for `theirs`."""
    OURS.setdefault(theirs, ours)
    THEIRS[ours] = theirs


def dress(ours: Any, theirs: Any, package: str = "lazyfuse") -> None:
    """Give one of our functions the name, signature and documentation of NumPy's."""
    functools.update_wrapper(ours, theirs, assigned=("__name__", "__doc__"), updated=())
    ours.__qualname__ = theirs.__name__
    module = getattr(theirs, "__module__", None) or "numpy"
    ours.__module__ = package + module[5:] if module.startswith("numpy") else package


def implements(*theirs: Any) -> Callable[[F], F]:
    """Decorator: the function below is what lazyfuse has in the place of NumPy's `theirs`."""

    def register(ours: F) -> F:
        dress(ours, theirs[0])
        for function in theirs:
            pair(function, ours)
        return ours

    return register
