"""NumPy's floating-point error state, and what it means for recording.

Owns the wrappers of `seterr` and `errstate`, and how an operation that is recorded while a
condition is ignored says so: its place in the source (`Node.where`) is a `Quiet` one. Recording is
allowed while every condition is "warn" or "ignore"; with "raise", "call", "print" or "log" an
operation has to run where it stands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, TypeVar

import numpy as np

from lazyfuse.registry import implements, pair

F = TypeVar("F", bound=Callable[..., Any])

PLAIN = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
BITS = {"divide": 1, "over": 2, "under": 4, "invalid": 8}  # as NumPy's and the kernels' flags

_entered: list[Any] = []  # of all threads: only without any is everybody's state the default
_listeners: list[Callable[[bool], None]] = []


class Quiet(tuple[CodeType, int]):
    """A place in the source at which some conditions were ignored: never warn of them later."""

    ignored: int

    @classmethod
    def at(cls, where: tuple[CodeType, int], ignored: int) -> Quiet:
        """`where`, with the bits of the conditions that are ignored there."""
        place = cls(where)
        place.ignored = ignored
        return place


def ignored_bits() -> int:
    """The conditions that this thread ignores now (underflow, ignored by default, not counted)."""
    state: Mapping[str, Any] = np.geterr()
    ignored = [bit for name, bit in BITS.items() if state[name] == "ignore" != PLAIN[name]]
    return sum(ignored)


def must_run_at_once() -> bool:
    """Whether a condition would have to be handled at the very line that raises it."""
    state = np.geterr()
    return any(
        value not in ("warn", "ignore") or (value == "warn" and name == "under")
        for name, value in state.items()
    )


def on_change(listener: Callable[[bool], None]) -> None:
    """Call `listener(plain)` whenever the error state changes through lazyfuse."""
    _listeners.append(listener)


def changed() -> None:
    """Tell the listeners whether the state of this and every other thread is NumPy's default."""
    plain = not _entered and np.geterr() == PLAIN
    for listener in _listeners:
        listener(plain)


@implements(np.seterr)
def seterr(*args: Any, **kwargs: Any) -> dict[str, str]:
    """As `numpy.seterr`."""
    before: dict[str, str] = np.seterr(*args, **kwargs)  # type: ignore[assignment]
    changed()
    return before


class errstate(np.errstate):  # noqa: N801  # NumPy's spelling
    """As `numpy.errstate`."""

    def __enter__(self) -> None:
        super().__enter__()
        _entered.append(self)
        changed()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        _entered.remove(self)
        changed()

    def __call__(self, function: F) -> F:
        """As a decorator: the state holds while `function` runs."""
        names = ("call", "all", "divide", "over", "under", "invalid")
        settings = {name: getattr(self, f"_{name}") for name in names}

        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with errstate(**settings):
                return function(*args, **kwargs)

        return inner  # type: ignore[return-value]


pair(np.errstate, errstate)
