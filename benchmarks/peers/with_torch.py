"""PyTorch: the same functions as they stand (torch knows many of NumPy's names), and compiled."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import Library, Runner

UNROLLED = ("35_lu", "36_floyd_warshall", "31_jacobi", "30_heat")
"""Loops of so many steps that torch, which unrolls them, compiles for minutes."""

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

    def compiled(case: Case) -> Runner | None:
        if case.name.startswith("example") or case.name in UNROLLED:
            return None
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
