"""NumPy, lazily and fused: `import lazyfuse as np`.

Every public name of NumPy is here; arrays record what is done to them and compute when somebody
looks. What lazyfuse adds: `explain` (what will run, and why), `report` (what ran), `fallbacks`
(what NumPy did at once), `options`, `accelerate` (existing code), `evaluate`, `devices`,
`tracing` (events as things happen), `unfused` (operations kept apart), `warm_up` (programs compiled
before they are needed), `freeze` and `parameter` (programs called many times), `register_kernel`
(program texts of one's own), `adapt` (other libraries, on request), `cache_info`, `cache_clear`.
Names are looked up when they are first used.
"""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from lazyfuse import bootstrap  # noqa: F401  # first: completes the package in a checkout

# isort: split
from lazyfuse.arrays.ndarray import ndarray as ndarray
from lazyfuse.config import options as options
from lazyfuse.namespace import assemble

__all__ = [*_numpy.__all__, *assemble.ADDED]  # NumPy's list is of strings

__version__ = _numpy.__version__  # programs ask which NumPy they have; ours is lazyfuse_version
__array_api_version__ = "2025.12"  # NumPy's may be older; docs/array_api.md says what differs


def __getattr__(name: str) -> Any:
    return assemble.look_up(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *globals(), *dir(_numpy)})


assemble.complete(globals())
