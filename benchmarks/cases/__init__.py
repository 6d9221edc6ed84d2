"""All cases; importing this package fills `case.CASES`."""

from benchmarks.cases import (
    arithmetic,
    examples,
    integers,
    masks,
    ordering,
    programs,
    rows,
    simulation,
    small,
    stencils,
)

__all__ = [
    "arithmetic",
    "examples",
    "integers",
    "masks",
    "ordering",
    "programs",
    "rows",
    "simulation",
    "small",
    "stencils",
]
