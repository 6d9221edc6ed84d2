"""What a benchmark case is: how to make its inputs, and the computation as a function of `xp`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Make = Callable[[int, np.random.Generator], tuple[Any, ...]]
Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One computation at any size.

    `make(n, generator)` gives inputs of about `n` elements, `run(xp, *inputs)` computes with the
    array library `xp`. `functional` cases write into no array, so that libraries with immutable
    arrays can run them. Results may differ from NumPy's by `tolerance`, relatively, where the case
    is not `exact`: its operations are then functions such as exp, or products of matrices. Other
    results are NumPy's bit for bit. `ordinary` cases are whole programs with one size that is usual
    for them. `streams` tells that nothing but memory traffic counts at large sizes.
    """

    name: str
    make: Make
    run: Run
    largest: int
    functional: bool
    tolerance: float
    exact: bool = True
    ordinary: int = 0
    streams: bool = False


CASES: dict[str, Case] = {}


def case(
    name: str,
    make: Make,
    *,
    largest: int = 10**9,
    functional: bool = True,
    tolerance: float = 1e-9,
    exact: bool = True,
    ordinary: int = 0,
    streams: bool = False,
) -> Callable[[Run], Run]:
    """Register the function below as what case `name` computes."""

    def register(run: Run) -> Run:
        CASES[name] = Case(
            name, make, run, largest, functional, tolerance, exact, ordinary, streams
        )
        return run

    return register


def vectors(count: int, low: float = 0.1, high: float = 2.0) -> Make:
    """Inputs: `count` vectors of n uniform numbers."""

    def make(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
        return tuple(generator.uniform(low, high, n) for _ in range(count))

    return make


def square(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    """Inputs: one square matrix of about n normal numbers."""
    side = max(int(n**0.5), 4)
    return (generator.normal(size=(side, side)),)


def rows_of(width: int) -> Make:
    """Inputs: one matrix of n numbers in rows of `width` (fewer where n is small)."""

    def make(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
        columns = min(width, max(n // 4, 4))
        return (generator.normal(size=(max(n // columns, 1), columns)),)

    return make
