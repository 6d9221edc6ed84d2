"""NumPy, lazily and fused: `import lazyfuse as np`.

Every public name of NumPy is here. Arrays record operations and compute when the program looks at a
value. lazyfuse adds: `explain` (what will run, and why), `report` (what ran), `fallbacks`
(what NumPy did at once), `options`, `accelerate` (existing code), `evaluate`, `devices`,
`tracing` (events of a run), `unfused` (operations kept out of fusion), `warm_up` (programs compiled
before their use), `freeze` and `parameter` (programs called many times), `register_kernel` (the
user's program texts), `adapt` (other libraries, on request), `progress` (of long evaluations),
`cache_info`, `cache_clear`. Names are looked up on first use.
"""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from lazyfuse import bootstrap  # noqa: F401  # first: completes the package in a checkout

# isort: split
from lazyfuse import late_modules  # the modules that follow run when they are read

with late_modules.uncollected():
    from lazyfuse.arrays.ndarray import ndarray as ndarray
    from lazyfuse.config import options as options
    from lazyfuse.namespace import assemble

__all__ = list(_numpy.__all__)  # `from lazyfuse import *` gives what NumPy's gives

__version__ = _numpy.__version__  # programs check NumPy's version; ours is lazyfuse_version
__array_api_version__ = "2025.12"  # NumPy's may be older; docs/array_api.md says what differs


def __getattr__(name: str) -> Any:
    return assemble.look_up(name)


def __dir__() -> list[str]:
    return assemble.names(globals())


assemble.complete(globals())
late_modules.whole()
