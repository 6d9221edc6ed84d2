"""Sorting and counting."""

from __future__ import annotations

from typing import Any

from benchmarks.case import case, vectors


@case("18_argsort", vectors(1), functional=False)
def argsort(xp: Any, x: Any) -> Any:
    return xp.argsort(1.0 / x + x * x)


@case("22_histogram", vectors(1), functional=False)
def histogram(xp: Any, x: Any) -> Any:
    counts, _ = xp.histogram(x * x, bins=64, range=(0.0, 4.0))
    return counts
