"""JAX: the same functions, undecorated and under `jax.jit`, in 64 bits.

Cases that write into arrays are written anew below, with `.at[...].set(...)` as JAX asks for.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import Library, Runner
from benchmarks.peers import examples
from benchmarks.peers.examples_in_jax import REWRITTEN, STATIC

_REWRITTEN: dict[str, Callable[..., Any]] = {}


def _rewritten(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _REWRITTEN[name] = function
        return function

    return register


def libraries() -> list[Library]:
    """Two columns; programs that nobody has rewritten are left out."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = importlib.import_module("jax.numpy")

    def take(value: Any) -> Any:
        return jnp.asarray(value) if isinstance(value, np.ndarray) else value

    def eager(case: Case) -> Runner | None:
        return (lambda *args: case.run(jnp, *args)) if case.functional else None

    def example(case: Case) -> Runner | None:
        script = examples.name_of(case)
        port = examples.copy_with(case, jnp)
        found = {name: make(jax, jnp) for name, make in REWRITTEN.get(script, {}).items()}
        for name in examples.CORES[script]:
            if name in found:
                continue
            compiled = jax.jit(getattr(port, name), static_argnums=STATIC.get(name))
            found[name] = functools.partial(_outside, jax, compiled)
        return examples.ported(case, found)

    def jitted(case: Case) -> Runner | None:
        if examples.name_of(case):
            return example(case)
        run = _REWRITTEN.get(case.name)
        if run is not None:
            return jax.jit(lambda *args: run(jax, jnp, *args))  # type: ignore[no-any-return]
        runner: Runner | None = eager(case)
        return runner and jax.jit(runner)

    return [
        Library("jax.numpy", jax.__version__, eager, take, jax.block_until_ready),
        Library("jax.jit", jax.__version__, jitted, take, jax.block_until_ready, slow=True),
    ]


def _outside(jax: Any, compiled: Callable[..., Any], *args: Any) -> Any:
    """What a compiled function returns, as NumPy's arrays."""
    return jax.tree_util.tree_map(np.array, compiled(*args))


@_rewritten("09_mask_sum")
def _mask_sum(jax: Any, jnp: Any, x: Any) -> Any:
    return jnp.where(x > 1.0, x, 0.0).sum()


@_rewritten("10_mask_assign")
def _mask_assign(jax: Any, jnp: Any, x: Any) -> Any:
    y = x * 2.0
    return jnp.where(y > 2.0, 0.0, y)


@_rewritten("11_jacobi2d")
def _jacobi(jax: Any, jnp: Any, grid: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return u.at[1:-1, 1:-1].set(0.25 * around)

    return jax.lax.fori_loop(0, 20, step, grid)


@_rewritten("12_heat3d")
def _heat3d(jax: Any, jnp: Any, grid: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        inner = u[1:-1, 1:-1, 1:-1]
        around = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1]
        around = around + u[1:-1, 2:, 1:-1] + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]
        return u.at[1:-1, 1:-1, 1:-1].add(0.1 * (around - 6.0 * inner))

    return jax.lax.fori_loop(0, 10, step, grid)


@_rewritten("18_argsort")
def _argsort(jax: Any, jnp: Any, x: Any) -> Any:
    return jnp.argsort(1.0 / x + x * x)


@_rewritten("22_histogram")
def _histogram(jax: Any, jnp: Any, x: Any) -> Any:
    return jnp.histogram(x * x, bins=64, range=(0.0, 4.0))[0]


@_rewritten("30_heat")
def _heat(jax: Any, jnp: Any, plate: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return u.at[1:-1, 1:-1].add(0.2 * (around - 4.0 * u[1:-1, 1:-1]))

    return jax.lax.fori_loop(0, 60, step, plate)


@_rewritten("31_jacobi")
def _jacobi_with_load(jax: Any, jnp: Any, grid: Any, load: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        u, _ = state
        new = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - load[1:-1, 1:-1])
        change = jnp.abs(new - u[1:-1, 1:-1]).max()
        return u.at[1:-1, 1:-1].set(new), change

    return jax.lax.fori_loop(0, 60, step, (grid, jnp.zeros(())))


@_rewritten("32_shallow_water")
def _shallow_water(jax: Any, jnp: Any, basin: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        state = state.at[:, 0, :].set(state[:, 1, :]).at[:, -1, :].set(state[:, -2, :])
        state = state.at[:, :, 0].set(state[:, :, 1]).at[:, :, -1].set(state[:, :, -2])
        ends = np.array([0, -1])
        state = state.at[1, :, ends].multiply(-1.0).at[2, ends, :].multiply(-1.0)
        speed = jnp.abs(state[1:] / state[0]).max() + jnp.sqrt(9.81 * state[0].max())
        height, east, south = state
        u, v = east / height, south / height
        pressure = 0.5 * 9.81 * height * height
        along_x = jnp.stack([east, east * u + pressure, east * v])
        along_y = jnp.stack([south, south * u, south * v + pressure])
        mean = 0.25 * (
            state[:, 1:-1, :-2] + state[:, 1:-1, 2:] + state[:, :-2, 1:-1] + state[:, 2:, 1:-1]
        )
        change_x = along_x[:, 1:-1, 2:] - along_x[:, 1:-1, :-2]
        change_y = along_y[:, 2:, 1:-1] - along_y[:, :-2, 1:-1]
        new = mean - 0.5 * (0.5 / speed) * (change_x + change_y)
        return state.at[:, 1:-1, 1:-1].set(new)

    return jax.lax.fori_loop(0, 30, step, basin)


@_rewritten("33_nbody")
def _leapfrog(jax: Any, jnp: Any, place: Any, speed: Any, mass: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        position, velocity = state
        difference = position[:, None, :] - position[:, :, None]
        squared = (difference * difference).sum(axis=0) + 0.0025
        pull = mass / (squared * jnp.sqrt(squared))
        velocity = velocity + 0.002 * (difference * pull).sum(axis=2)
        return position + 0.002 * velocity, velocity

    return jax.lax.fori_loop(0, 5, step, (place, speed))


@_rewritten("34_conjugate_gradient")
def _conjugate_gradient(jax: Any, jnp: Any, right: Any, start: Any) -> Any:
    def bare(x: Any) -> Any:
        return jnp.zeros_like(x).at[1:-1, 1:-1].set(x[1:-1, 1:-1])

    def apply(p: Any) -> Any:
        return bare(4.0 * p - jnp.roll(p, 1, 0) - jnp.roll(p, -1, 0) - jnp.roll(p, 1, 1)
                    - jnp.roll(p, -1, 1))  # fmt: skip

    def step(_: Any, state: Any) -> Any:
        x, residual, direction, norm = state
        along = apply(direction)
        length = norm / (direction * along).sum()
        x, residual = x + length * direction, residual - length * along
        previous, norm = norm, (residual * residual).sum()
        return x, residual, direction * (norm / previous) + residual, norm

    x = bare(start)
    residual = bare(right - apply(x))
    state = (x, residual, residual, (residual * residual).sum())
    return jax.lax.fori_loop(0, 40, step, state)[0]


@_rewritten("36_floyd_warshall")
def _floyd_warshall(jax: Any, jnp: Any, distances: Any) -> Any:
    def step(k: Any, d: Any) -> Any:
        return jnp.minimum(d, d[:, k, None] + d[None, k, :])

    return jax.lax.fori_loop(0, len(distances), step, distances)
