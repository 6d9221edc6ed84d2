"""What JAX cannot take of the examples as it stands: functions that write into arrays.

Each returns the function for the script from `jax` and `jax.numpy`: arrays of NumPy go in and come
out, and where the script's function writes into its argument, so does this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]


def heat_step(jax: Any, jnp: Any) -> Function:
    """One time step of the heat equation."""

    @jax.jit
    def update(plate: Any, conductivity: Any) -> Any:
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        centre = plate[1:-1, 1:-1]
        return centre + conductivity * (around - 4.0 * centre)

    def step(plate: Any, conductivity: float) -> None:
        plate[1:-1, 1:-1] = update(plate, conductivity)

    return step


def escape_times(jax: Any, jnp: Any) -> Function:
    """The Mandelbrot set."""

    @jax.jit
    def compute(c: Any, limit: Any) -> Any:
        def body(number: Any, state: Any) -> Any:
            z, times = state
            z = jnp.where(times == limit, z * z + c, z)
            escaped = (z.real * z.real + z.imag * z.imag > 4.0) & (times == limit)
            return z, jnp.where(escaped, number, times)

        return jax.lax.fori_loop(0, limit, body, (jnp.zeros_like(c), jnp.full(c.shape, limit)))[1]

    return lambda c, limit: np.array(compute(c, limit))


def water_reflect(jax: Any, jnp: Any) -> Function:
    """The walls of the basin; two thousand cells, which NumPy writes in place."""

    def reflect(state: Any) -> None:
        state[:, 0, :], state[:, -1, :] = state[:, 1, :], state[:, -2, :]
        state[:, :, 0], state[:, :, -1] = state[:, :, 1], state[:, :, -2]
        state[1, :, [0, -1]] *= -1.0
        state[2, [0, -1], :] *= -1.0

    return reflect


def water_step(jax: Any, jnp: Any) -> Function:
    """One time step of the shallow water equations."""

    @jax.jit
    def update(state: Any, ratio: Any) -> Any:
        height, east, south = state
        u, v = east / height, south / height
        pressure = 0.5 * 9.81 * height**2
        along_x = jnp.stack([east, east * u + pressure, east * v])
        along_y = jnp.stack([south, south * u, south * v + pressure])
        mean = 0.25 * (
            state[:, 1:-1, :-2] + state[:, 1:-1, 2:] + state[:, :-2, 1:-1] + state[:, 2:, 1:-1]
        )
        change_x = along_x[:, 1:-1, 2:] - along_x[:, 1:-1, :-2]
        change_y = along_y[:, 2:, 1:-1] - along_y[:, :-2, 1:-1]
        return mean - 0.5 * ratio * (change_x + change_y)

    def step(state: Any, ratio: float) -> None:
        state[:, 1:-1, 1:-1] = update(state, ratio)

    return step


def blur(jax: Any, jnp: Any) -> Function:
    """The convolution; positions have to be an array."""

    @jax.jit
    def compute(image: Any, weights: Any) -> Any:
        reach = len(weights) // 2
        for axis in (0, 1):
            around = [(reach, reach) if k == axis else (0, 0) for k in range(3)]
            padded = jnp.pad(image, around, mode="edge")
            length = image.shape[axis]
            shifted = [
                jax.lax.slice_in_dim(padded, k, k + length, axis=axis) for k in range(len(weights))
            ]
            image = sum(weight * part for weight, part in zip(weights, shifted, strict=True))
        return image

    return lambda image, weights: np.asarray(compute(image, weights))


def fit(jax: Any, jnp: Any) -> Function:
    """Logistic regression, the gradient under `jit`."""

    def sigmoid(x: Any) -> Any:
        small = jnp.exp(-jnp.abs(x))
        return jnp.where(x >= 0.0, 1.0, small) / (1.0 + small)

    @jax.jit
    def update(weights: Any, data: Any, target: Any, rate: Any, penalty: Any) -> Any:
        margin = data @ weights
        gradient = data.T @ (sigmoid(margin) - target) / len(target) + penalty * weights
        return weights - rate * gradient

    @jax.jit
    def loss(weights: Any, data: Any, target: Any) -> Any:
        margin = data @ weights
        return jnp.mean(jnp.logaddexp(0.0, margin) - target * margin)

    def run(
        data: Any, target: Any, rounds: int = 60, rate: float = 1.0, penalty: float = 1e-3
    ) -> Any:
        data, target = jnp.asarray(data), jnp.asarray(target)
        weights = jnp.zeros(data.shape[1])
        for number in range(rounds):
            if number % 20 == 0:
                print(f"round {number:3d}: loss {float(loss(weights, data, target)):.6f}")
            weights = update(weights, data, target, rate, penalty)
        return np.asarray(weights)

    return run


def asian_call(jax: Any, jnp: Any) -> Function:
    """The option on the mean of a walk; the random numbers are NumPy's."""

    @jax.jit
    def price(noise: Any, spot: Any, strike: Any, rate: Any, volatility: Any) -> Any:
        walks, steps = noise.shape
        dt = 1.0 / steps
        moves = (rate - 0.5 * volatility**2) * dt + volatility * jnp.sqrt(dt) * noise
        paths = spot * jnp.exp(jnp.cumsum(moves, axis=1))
        payoff = jnp.exp(-rate) * jnp.maximum(paths.mean(axis=1) - strike, 0.0)
        return payoff.mean(), payoff.std(ddof=1) / jnp.sqrt(walks), paths

    def run(
        walks: int, steps: int, generator: Any, spot: float = 100.0, strike: float = 100.0,
        rate: float = 0.05, volatility: float = 0.2,
    ) -> Any:  # fmt: skip
        noise = generator.standard_normal((walks, steps))
        value, error, paths = price(noise, spot, strike, rate, volatility)
        return float(value), float(error), np.asarray(paths)

    return run


REWRITTEN: dict[str, dict[str, Callable[[Any, Any], Function]]] = {
    "heat_equation": {"step": heat_step},
    "image_filters": {"blur": blur},
    "mandelbrot": {"escape_times": escape_times},
    "shallow_water": {"reflect": water_reflect, "step": water_step},
    "logistic_regression": {"fit": fit},
    "monte_carlo": {"asian_call": asian_call},
}
"""By script and function. The others are the script's own text under `jit`."""

STATIC = {"picture": (0,)}
"""Arguments that decide shapes."""
