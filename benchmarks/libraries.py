"""The libraries that can be compared: how each gets its inputs, runs a case, and is forced."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.case import Array, Case

Runner = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Library:
    """One column: `runner(case)` is a function of the inputs that `take` converted, or None."""

    name: str
    version: str
    runner: Callable[[Case], Runner | None]
    take: Callable[[Any], Any] = lambda value: value
    force: Callable[[Any], Any] = lambda value: value


def parts(result: Any) -> Iterable[Any]:
    """The arrays of a result."""
    return result if isinstance(result, tuple) else (result,)


def to_numpy(result: Any) -> tuple[Array, ...]:
    """A result as numpy arrays: what forces a lazy one, and what is compared."""
    return tuple(np.asarray(part) for part in parts(result))


def of_numpy() -> Library:
    """What everything is measured against."""
    return Library("numpy", np.__version__, lambda case: _bound(case, np))


def of_lazyfuse() -> Library:
    """The library of this repository; its results are forced by `to_numpy()`."""
    lazyfuse = importlib.import_module("lazyfuse")

    array = lazyfuse.ndarray

    def take(value: Any) -> Any:
        return lazyfuse.array(value) if isinstance(value, np.ndarray) else value

    def force(result: Any) -> Any:
        if type(result) is tuple:
            return tuple([force(part) for part in result])
        return result.to_numpy() if type(result) is array else np.asarray(result)

    version = lazyfuse.lazyfuse_version
    return Library("lazyfuse", version, lambda case: _bound(case, lazyfuse), take, force)


def _bound(case: Case, xp: Any) -> Runner:
    return functools.partial(case.run, xp)


def present(names: Iterable[str]) -> list[Library]:
    """NumPy, lazyfuse, and the columns of those peers that are installed."""
    libraries = [of_numpy(), of_lazyfuse()]
    for name in names:
        if importlib.util.find_spec(name) is not None:
            peer = importlib.import_module(f"benchmarks.peers.with_{name}")
            libraries += peer.libraries()
    return libraries
