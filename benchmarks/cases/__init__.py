"""All cases; importing this package fills `case.CASES`."""

from benchmarks.cases import (
    arithmetic,
    integers,
    masks,
    ordering,
    rows,
    simulation,
    small,
    stencils,
)

__all__ = [
    "arithmetic",
    "integers",
    "masks",
    "ordering",
    "rows",
    "simulation",
    "small",
    "stencils",
]
