"""PyTorch: the same functions as they stand (torch knows many of NumPy's names), and compiled."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.libraries import Library, Runner


def libraries() -> list[Library]:
    """Two columns; a case that torch cannot run as it stands shows its error in the JSON."""
    torch = importlib.import_module("torch")
    importlib.import_module("torch._dynamo")

    def take(value: Any) -> Any:
        return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value

    def eager(case: Case) -> Runner | None:
        return lambda *args: case.run(torch, *args)

    def compiled(case: Case) -> Runner | None:
        torch._dynamo.reset()  # or it gives up compiling after eight cases
        runner: Runner | None = torch.compile(eager(case)) if case.functional else None
        return runner

    return [
        Library("torch", torch.__version__, eager, take),
        Library("torch.compile", torch.__version__, compiled, take),
    ]
