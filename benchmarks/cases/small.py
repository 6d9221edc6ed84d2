"""Overhead: a Python loop over tiny arrays, where nothing but the cost per operation counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, case


def _tiny(n: int, generator: np.random.Generator) -> tuple[Any, ...]:
    a: Array = generator.normal(size=10)
    return a, generator.normal(size=10), n


@case("23_smallloop", _tiny, largest=10**4, functional=False)
def small_loop(xp: Any, a: Any, b: Any, rounds: int) -> Any:
    for _ in range(rounds):
        a = (a * 0.5 + b) * 0.25 - a * 0.1
    return a
