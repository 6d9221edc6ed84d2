"""PyTorch: the same functions as they stand (torch knows many of NumPy's names), and compiled."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import Library, Runner
from benchmarks.peers import examples

UNROLLED = ("35_lu", "36_floyd_warshall", "31_jacobi", "30_heat")
"""Loops of so many steps that torch, which unrolls them, compiles for minutes."""

WRITING = ("heat_equation", "shallow_water", "mandelbrot", "monte_carlo")
"""Examples whose functions write into arrays or draw random numbers: torch would need others."""

DIFFERENT = ("08_reductions",)
"""Functions that are not NumPy's in torch (its standard deviation divides by n - 1)."""


def libraries() -> list[Library]:
    """Two columns; a case that torch cannot run as it stands shows its error in the JSON."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # or its workers disturb others
    torch = importlib.import_module("torch")
    importlib.import_module("torch._dynamo")
    torch.compile(lambda x: x + 1.0)(torch.ones(8))  # what its very first program costs

    def take(value: Any) -> Any:
        return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value

    def eager(case: Case) -> Runner | None:
        return lambda *args: case.run(torch, *args)

    def example(case: Case, script: str) -> Runner | None:
        """The functions that return what they compute, as they stand: it compiles NumPy's."""
        if script in WRITING:
            return None
        torch._dynamo.reset()
        module = examples.copy_with(case, np)
        found = {name: torch.compile(getattr(module, name)) for name in examples.CORES[script]}
        if script == "logistic_regression":
            found = {"fit": fit, "loss": found["loss"]}
        return examples.ported(case, found)

    def fit(
        data: Any, target: Any, rounds: int = 60, rate: float = 1.0, penalty: float = 1e-3
    ) -> Any:  # fmt: skip
        """Logistic regression with its gradient compiled: one program, not one per function."""
        data, target = torch.from_numpy(data), torch.from_numpy(target)
        weights = torch.zeros(data.shape[1], dtype=torch.float64)
        for number in range(rounds):
            margin = data @ weights
            if number % 20 == 0:
                print(f"round {number:3d}: loss {float(_loss(margin, target)):.6f}")
            weights = update(data, target, weights, rate, penalty)
        return weights.numpy()

    @torch.compile
    def update(data: Any, target: Any, weights: Any, rate: float, penalty: float) -> Any:
        residual = torch.sigmoid(data @ weights) - target
        return weights - rate * (data.T @ residual / len(target) + penalty * weights)

    @torch.compile
    def _loss(margin: Any, target: Any) -> Any:
        return (torch.logaddexp(torch.zeros_like(margin), margin) - target * margin).mean()

    def compiled(case: Case) -> Runner | None:
        if case.name in UNROLLED:
            return None
        script = examples.name_of(case)
        if script:
            return example(case, script)
        torch._dynamo.reset()  # or it gives up compiling after eight cases
        if case.functional and case.name not in DIFFERENT:
            runner: Runner = torch.compile(eager(case))
            return runner
        run = torch.compile(lambda *args: case.run(np, *args))  # it compiles NumPy's functions
        return lambda *args: run(*(_numpy(value) for value in args))

    def _numpy(value: Any) -> Any:
        return value.numpy() if isinstance(value, torch.Tensor) else value

    return [
        Library("torch", torch.__version__, eager, take),
        Library("torch.compile", torch.__version__, compiled, take, slow=True),
    ]
