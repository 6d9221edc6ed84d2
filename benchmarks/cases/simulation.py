"""Small programs: fractals, gravity, clustering, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, case


def _plane(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    side = max(int(n**0.5), 2)
    real, imaginary = np.linspace(-2.1, 0.7, side), np.linspace(-1.2, 1.2, side)
    grid = np.meshgrid(real, imaginary)
    return np.ascontiguousarray(grid[0]), np.ascontiguousarray(grid[1])


@case("13_mandelbrot", _plane)
def mandelbrot(xp: Any, x: Any, y: Any) -> Any:
    a, b, count = x * 0.0, y * 0.0, x * 0.0
    for _ in range(20):
        aa, bb = a * a, b * b
        inside = aa + bb <= 4.0
        a, b = xp.where(inside, aa - bb + x, a), xp.where(inside, 2.0 * a * b + y, b)
        count = count + inside
    return count


def _stars(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    count = max(int(n**0.5), 4)
    return (*generator.normal(size=(3, count)), generator.uniform(0.5, 1.5, count))


@case("14_nbody", _stars)
def gravity(xp: Any, x: Any, y: Any, z: Any, mass: Any) -> Any:
    dx, dy, dz = x[None, :] - x[:, None], y[None, :] - y[:, None], z[None, :] - z[:, None]
    squared = dx * dx + dy * dy + dz * dz + 0.01
    pull = mass[None, :] / (squared * xp.sqrt(squared))
    return xp.sum(dx * pull, axis=1), xp.sum(dy * pull, axis=1), xp.sum(dz * pull, axis=1)


def _points(n: int, generator: np.random.Generator) -> tuple[Array, ...]:
    points = max(n // 16, 4)
    return generator.normal(size=(points, 2)), generator.normal(size=(8, 2))


@case("15_kmeans", _points)
def nearest_centres(xp: Any, data: Any, centres: Any) -> Any:
    difference = data[:, None, :] - centres[None, :, :]
    distance = xp.sum(difference * difference, axis=2)
    return xp.argmin(distance, axis=1), xp.sum(xp.amin(distance, axis=1))


def _count(n: int, generator: np.random.Generator) -> tuple[int]:
    return (n,)


@case("16_mcpi", _count, functional=False)
def estimate_pi(xp: Any, n: int) -> Any:
    generator = xp.random.default_rng(1)
    x, y = generator.random(n), generator.random(n)
    return 4.0 * xp.mean(x * x + y * y <= 1.0)
