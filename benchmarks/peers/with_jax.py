"""JAX: the same functions, undecorated and under `jax.jit`, in 64 bits."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import Library, Runner


def libraries() -> list[Library]:
    """Two columns; cases that write into arrays are left out."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = importlib.import_module("jax.numpy")

    def take(value: Any) -> Any:
        return jnp.asarray(value) if isinstance(value, np.ndarray) else value

    def eager(case: Case) -> Runner | None:
        return (lambda *args: case.run(jnp, *args)) if case.functional else None

    def jitted(case: Case) -> Runner | None:
        runner: Runner | None = eager(case)
        return runner and jax.jit(runner)

    return [
        Library("jax.numpy", jax.__version__, eager, take, jax.block_until_ready),
        Library("jax.jit", jax.__version__, jitted, take, jax.block_until_ready),
    ]
