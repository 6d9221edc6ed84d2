"""Programs that write into views and in place, at the sizes that are usual for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, case

HEAT_STEPS = 60
JACOBI_STEPS = 60
WATER_STEPS = 30
STAR_STEPS = 5
GRADIENT_STEPS = 40


def _plate(side: int, generator: np.random.Generator) -> tuple[Array, ...]:
    y, x = np.mgrid[0:side, 0:side] / (side - 1.0)
    plate = np.where((x - 0.35) ** 2 + (y - 0.6) ** 2 < 0.02, 100.0, 0.0)
    plate[0] = 20.0
    return (plate,)


@case("30_heat", _plate, ordinary=512, functional=False)
def heat(xp: Any, plate: Any) -> Any:
    u = xp.array(plate)
    for _ in range(HEAT_STEPS):
        centre = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        centre += 0.2 * (around - 4.0 * centre)
    return u


def _grid(side: int, generator: np.random.Generator) -> tuple[Array, ...]:
    return generator.normal(size=(side, side)), generator.normal(size=(side, side)) * 0.01


@case("31_jacobi", _grid, ordinary=512, functional=False)
def jacobi(xp: Any, grid: Any, load: Any) -> Any:
    u = xp.array(grid)
    change = 0.0
    for number in range(JACOBI_STEPS):
        new = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - load[1:-1, 1:-1])
        if number % 20 == 19:
            change = float(xp.abs(new - u[1:-1, 1:-1]).max())
        u[1:-1, 1:-1] = new
    return u, change


def _basin(side: int, generator: np.random.Generator) -> tuple[Array, ...]:
    y, x = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side), indexing="ij")
    state = np.zeros((3, side, side))
    state[0] = 1.0 + 0.4 * np.exp(-80.0 * ((x - 0.3) ** 2 + (y - 0.4) ** 2))
    return (state,)


@case("32_shallow_water", _basin, ordinary=300, functional=False)
def shallow_water(xp: Any, basin: Any) -> Any:
    state = xp.array(basin)
    for _ in range(WATER_STEPS):
        state[:, 0, :], state[:, -1, :] = state[:, 1, :], state[:, -2, :]
        state[:, :, 0], state[:, :, -1] = state[:, :, 1], state[:, :, -2]
        state[1, :, [0, -1]] *= -1.0
        state[2, [0, -1], :] *= -1.0
        speed = xp.abs(state[1:] / state[0]).max() + xp.sqrt(9.81 * state[0].max())
        ratio = 0.5 / float(speed)
        height, east, south = state
        u, v = east / height, south / height
        pressure = 0.5 * 9.81 * height * height
        along_x = xp.stack([east, east * u + pressure, east * v])
        along_y = xp.stack([south, south * u, south * v + pressure])
        mean = 0.25 * (
            state[:, 1:-1, :-2] + state[:, 1:-1, 2:] + state[:, :-2, 1:-1] + state[:, 2:, 1:-1]
        )
        change_x = along_x[:, 1:-1, 2:] - along_x[:, 1:-1, :-2]
        change_y = along_y[:, 2:, 1:-1] - along_y[:, :-2, 1:-1]
        state[:, 1:-1, 1:-1] = mean - 0.5 * ratio * (change_x + change_y)
    return state


def _cluster(stars: int, generator: np.random.Generator) -> tuple[Array, ...]:
    mass = generator.uniform(0.5, 1.5, stars) / stars
    return generator.normal(size=(3, stars)), generator.normal(size=(3, stars)) * 0.3, mass


@case("33_nbody", _cluster, ordinary=800, functional=False)
def leapfrog(xp: Any, place: Any, speed: Any, mass: Any) -> Any:
    position, velocity = xp.array(place), xp.array(speed)
    for _ in range(STAR_STEPS):
        difference = position[:, None, :] - position[:, :, None]
        squared = (difference * difference).sum(axis=0) + 0.0025
        pull = mass / (squared * xp.sqrt(squared))
        velocity += 0.002 * (difference * pull).sum(axis=2)
        position += 0.002 * velocity
    return position, velocity


@case("34_conjugate_gradient", _grid, ordinary=512, functional=False)
def conjugate_gradient(xp: Any, right: Any, start: Any) -> Any:
    """Poisson's equation on a square grid, the matrix as a stencil."""
    x = xp.array(start)
    x[0] = x[-1] = x[:, 0] = x[:, -1] = 0.0

    def apply(p: Any) -> Any:
        result = xp.zeros_like(p)
        result[1:-1, 1:-1] = (
            4.0 * p[1:-1, 1:-1] - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]
        )
        return result

    residual = right - apply(x)
    residual[0] = residual[-1] = residual[:, 0] = residual[:, -1] = 0.0
    direction = residual.copy()
    norm = (residual * residual).sum()
    for _ in range(GRADIENT_STEPS):
        along = apply(direction)
        length = norm / (direction * along).sum()
        x += length * direction
        residual -= length * along
        previous, norm = norm, (residual * residual).sum()
        direction *= norm / previous
        direction += residual
    return x


def _matrix(side: int, generator: np.random.Generator) -> tuple[Array, ...]:
    return (generator.normal(size=(side, side)) + side * np.eye(side),)


@case("35_lu", _matrix, ordinary=400, functional=False)
def lower_upper(xp: Any, matrix: Any) -> Any:
    """Gaussian elimination without pivots, in place."""
    a = xp.array(matrix)
    for k in range(len(matrix) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[None, k, k + 1 :]
    return a


def _distances(count: int, generator: np.random.Generator) -> tuple[Array, ...]:
    return (generator.uniform(1.0, 100.0, (count, count)),)


@case("36_floyd_warshall", _distances, ordinary=400, functional=False)
def floyd_warshall(xp: Any, distances: Any) -> Any:
    d = xp.array(distances)
    for k in range(len(distances)):
        xp.minimum(d, d[:, k, None] + d[None, k, :], out=d)
    return d


def _picture(side: int, generator: np.random.Generator) -> tuple[Array, ...]:
    return (generator.normal(90.0, 30.0, (side, side)).clip(0, 255).astype(np.uint8),)


@case("37_histogram_equalisation", _picture, ordinary=1024, functional=False)
def equalise(xp: Any, image: Any) -> Any:
    counts = xp.bincount(image.ravel(), minlength=256)
    below = xp.cumsum(counts)
    first = below[xp.nonzero(counts)[0][0]]
    table = xp.rint((below - first) * 255.0 / (image.size - first)).clip(0, 255).astype(np.uint8)
    equal = table[image]
    equal[image == 0] = 0
    return equal
