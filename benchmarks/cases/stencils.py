"""Shifted slices of a grid, written in place, several steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, case, square


@case("11_jacobi2d", square, functional=False)
def jacobi(xp: Any, grid: Any) -> Any:
    u = xp.array(grid)
    for _ in range(20):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def _cube(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    side = max(round(n ** (1 / 3)), 4)
    return (generator.normal(size=(side, side, side)),)


@case("12_heat3d", _cube, functional=False)
def heat(xp: Any, grid: Any) -> Any:
    u = xp.array(grid)
    inner = u[1:-1, 1:-1, 1:-1]
    for _ in range(10):
        around = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1]
        around += u[1:-1, 2:, 1:-1] + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]
        inner += 0.1 * (around - 6.0 * inner)
    return u
