"""The examples in numba, as loops written by hand, since it refuses most of them as they stand.

It knows neither `np.roll` along an axis nor means along one, `np.meshgrid` or lists of places, and
the heat equation in place it computes wrongly in parallel (0.65.1: other threads write what is
still to be read).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

Function = Callable[..., Any]
prange: Any = numba.prange
compiled: Any = numba.njit(parallel=True, cache=True)


@compiled
def generation(board: Any) -> Any:
    """The next board of the Game of Life."""
    rows, columns = board.shape
    new = np.empty_like(board)
    for i in prange(rows):
        up, down = (i - 1) % rows, (i + 1) % rows
        for j in range(columns):
            left, right = (j - 1) % columns, (j + 1) % columns
            count = board[up, left] + board[up, j] + board[up, right] + board[i, left]
            count += board[i, right] + board[down, left] + board[down, j] + board[down, right]
            new[i, j] = 1 if count == 3 or (board[i, j] == 1 and count == 2) else 0
    return new


@compiled
def assign(data: Any, centres: Any) -> Any:
    """The nearest centre of each point, and the squared distance to it."""
    labels = np.empty(len(data), np.int64)
    distances = np.empty(len(data))
    for i in prange(len(data)):
        best, place = np.inf, 0
        for k in range(len(centres)):
            distance = 0.0
            for axis in range(data.shape[1]):
                distance += (data[i, axis] - centres[k, axis]) ** 2
            if distance < best:
                best, place = distance, k
        labels[i], distances[i] = place, best
    return labels, distances


@compiled
def escape_times(c: Any, limit: Any) -> Any:
    """The Mandelbrot set."""
    times = np.full(c.shape, limit)
    for i in prange(c.shape[0]):
        for j in range(c.shape[1]):
            z = 0j
            for step in range(limit):
                z = z * z + c[i, j]
                if z.real * z.real + z.imag * z.imag > 4.0:
                    times[i, j] = step
                    break
    return times


@compiled
def to_bytes(image: Any) -> Any:
    """Round to 8 bits per channel."""
    pixels = np.empty(image.shape, np.uint8)
    for i in prange(image.shape[0]):
        for j in range(image.shape[1]):
            for k in range(image.shape[2]):
                value = min(max(image[i, j, k], 0.0), 1.0) * 255.0
                pixels[i, j, k] = np.uint8(round(value))
    return pixels


@compiled
def blur(image: Any, weights: Any) -> Any:
    """Convolve along both axes; the edge is repeated outwards."""
    reach = len(weights) // 2
    rows, columns, channels = image.shape
    first, second = np.zeros_like(image), np.zeros_like(image)
    for i in prange(rows):
        for k in range(len(weights)):
            row = min(max(i + k - reach, 0), rows - 1)
            for j in range(columns):
                for channel in range(channels):
                    first[i, j, channel] += weights[k] * image[row, j, channel]
    for i in prange(rows):
        for j in range(columns):
            for k in range(len(weights)):
                column = min(max(j + k - reach, 0), columns - 1)
                for channel in range(channels):
                    second[i, j, channel] += weights[k] * first[i, column, channel]
    return second


@compiled
def _cumulative(x: Any) -> Any:
    k = 1.0 / (1.0 + 0.2316419 * abs(x))
    series = (((1.330274429 * k - 1.821255978) * k + 1.781477937) * k - 0.356563782) * k
    tail = (series + 0.319381530) * k * math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return 1.0 - tail if x > 0.0 else tail


@compiled
def black_scholes(spot: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> Any:
    """Prices of a call and a put, and the call's delta."""
    call, put, delta = np.empty_like(spot), np.empty_like(spot), np.empty_like(spot)
    for i in prange(spot.size):
        spread = volatility * math.sqrt(years[i])
        d1 = (math.log(spot[i] / strike[i]) + (rate + 0.5 * volatility**2) * years[i]) / spread
        d2 = d1 - spread
        discounted = strike[i] * math.exp(-rate * years[i])
        delta[i] = _cumulative(d1)
        call[i] = spot[i] * delta[i] - discounted * _cumulative(d2)
        put[i] = discounted * _cumulative(-d2) - spot[i] * _cumulative(-d1)
    return call, put, delta


@compiled
def heat_step(plate: Any, conductivity: Any) -> Any:
    """One time step of the heat equation, in place."""
    new = np.empty_like(plate)
    for i in prange(1, plate.shape[0] - 1):
        for j in range(1, plate.shape[1] - 1):
            around = plate[i - 1, j] + plate[i + 1, j] + plate[i, j - 1] + plate[i, j + 1]
            new[i, j] = plate[i, j] + conductivity * (around - 4.0 * plate[i, j])
    for i in prange(1, plate.shape[0] - 1):
        plate[i, 1:-1] = new[i, 1:-1]


@compiled
def _gradient(data: Any, target: Any, weights: Any, penalty: Any) -> Any:
    samples, features = data.shape
    parts = 16
    sums = np.zeros((parts, features))
    each = -(-samples // parts)
    for part in prange(parts):
        for i in range(part * each, min((part + 1) * each, samples)):
            margin = 0.0
            for k in range(features):
                margin += data[i, k] * weights[k]
            small = math.exp(-abs(margin))
            rest = (1.0 if margin >= 0.0 else small) / (1.0 + small) - target[i]
            for k in range(features):
                sums[part, k] += data[i, k] * rest
    return sums.sum(axis=0) / samples + penalty * weights


@compiled
def loss(margin: Any, target: Any) -> Any:
    """The mean of log(1 + exp(-margin)) with the sign of the target."""
    total = 0.0
    for i in prange(margin.size):
        above = max(margin[i], 0.0) + math.log1p(math.exp(-abs(margin[i])))
        total += above - target[i] * margin[i]
    return total / margin.size


def fit(
    data: Any, target: Any, rounds: int = 60, rate: float = 1.0, penalty: float = 1e-3
) -> Any:  # fmt: skip
    """Logistic regression, the gradient in one loop."""
    weights = np.zeros(data.shape[1])
    for number in range(rounds):
        if number % 20 == 0:
            print(f"round {number:3d}: loss {loss(data @ weights, target):.6f}")
        weights -= rate * _gradient(data, target, weights, penalty)
    return weights


@compiled
def _paths(noise: Any, spot: Any, rate: Any, volatility: Any) -> Any:
    walks, steps = noise.shape
    dt = 1.0 / steps
    paths, means = np.empty_like(noise), np.empty(walks)
    for i in prange(walks):
        place = total = 0.0
        for k in range(steps):
            place += (rate - 0.5 * volatility**2) * dt + volatility * math.sqrt(dt) * noise[i, k]
            paths[i, k] = spot * math.exp(place)
            total += paths[i, k]
        means[i] = total / steps
    return paths, means


def asian_call(
    walks: int, steps: int, generator: Any, spot: float = 100.0, strike: float = 100.0,
    rate: float = 0.05, volatility: float = 0.2,
) -> Any:  # fmt: skip
    """The option on the mean of a walk; the random numbers are NumPy's."""
    paths, means = _paths(generator.standard_normal((walks, steps)), spot, rate, volatility)
    payoff = np.exp(-rate) * np.maximum(means - strike, 0.0)
    return payoff.mean(), payoff.std(ddof=1) / np.sqrt(walks), paths


@compiled
def accelerations(position: Any, mass: Any) -> Any:
    """The pull of every star on every other."""
    stars = mass.size
    result = np.empty_like(position)
    for i in prange(stars):
        x = y = z = 0.0
        for j in range(stars):
            dx = position[0, j] - position[0, i]
            dy = position[1, j] - position[1, i]
            dz = position[2, j] - position[2, i]
            squared = dx * dx + dy * dy + dz * dz + 0.05**2
            pull = mass[j] / (squared * math.sqrt(squared))
            x += dx * pull
            y += dy * pull
            z += dz * pull
        result[0, i], result[1, i], result[2, i] = x, y, z
    return result


@compiled
def energy(position: Any, velocity: Any, mass: Any) -> Any:
    """Kinetic and potential energy."""
    stars = mass.size
    kinetic = potential = 0.0
    for i in prange(stars):
        kinetic += 0.5 * mass[i] * (velocity[:, i] ** 2).sum()
        for j in range(i + 1, stars):
            squared = ((position[:, i] - position[:, j]) ** 2).sum() + 0.05**2
            potential -= mass[i] * mass[j] / math.sqrt(squared)
    return kinetic, potential


@compiled
def water_step(state: Any, ratio: Any) -> Any:
    """One time step of the shallow water equations, in place."""
    _, rows, columns = state.shape
    along_x, along_y = np.empty_like(state), np.empty_like(state)
    for i in prange(rows):
        for j in range(columns):
            height, east, south = state[0, i, j], state[1, i, j], state[2, i, j]
            u, v = east / height, south / height
            pressure = 0.5 * 9.81 * height * height
            along_x[0, i, j], along_y[0, i, j] = east, south
            along_x[1, i, j], along_y[1, i, j] = east * u + pressure, south * u
            along_x[2, i, j], along_y[2, i, j] = east * v, south * v + pressure
    new = np.empty_like(state)
    for i in prange(1, rows - 1):
        for k in range(3):
            for j in range(1, columns - 1):
                around = state[k, i, j - 1] + state[k, i, j + 1]
                around += state[k, i - 1, j] + state[k, i + 1, j]
                change = along_x[k, i, j + 1] - along_x[k, i, j - 1]
                change += along_y[k, i + 1, j] - along_y[k, i - 1, j]
                new[k, i, j] = 0.25 * around - 0.5 * ratio * change
    for i in prange(1, rows - 1):
        for k in range(3):
            state[k, i, 1:-1] = new[k, i, 1:-1]


LOOPS: dict[str, dict[str, Function]] = {
    "black_scholes": {"black_scholes": black_scholes},
    "game_of_life": {"generation": generation},
    "heat_equation": {"step": heat_step},
    "image_filters": {"blur": blur, "to_bytes": to_bytes},
    "kmeans": {"assign": assign},
    "logistic_regression": {"fit": fit, "loss": loss},
    "mandelbrot": {"escape_times": escape_times},
    "monte_carlo": {"asian_call": asian_call},
    "nbody": {"accelerations": accelerations, "energy": energy},
    "shallow_water": {"step": water_step},
}
"""By script and function: column numba.par. What is not here stays NumPy's."""
