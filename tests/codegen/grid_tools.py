"""Running kernels for groups of work-items on an OpenCL device of CPU type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np

from lazyfuse.codegen.lowering.kernel import Kernel, verify
from lazyfuse.codegen.opencl.grid_lowered import GridLowered
from lazyfuse.codegen.opencl.grid_maps import lower_grid
from lazyfuse.codegen.opencl.grid_sizes import SIZES
from lazyfuse.devices.base import Source
from tests.codegen import opencl_tools
from tests.codegen.kernel_tools import (
    Array,
    Shape,
    domain_strides,
    empty_outputs,
    output_strides,
)
from tests.codegen.opencl_tools import compiled

LANGUAGE = "opencl-grid"


@contextmanager
def sizes(**changes: Any) -> Iterator[None]:
    """Other sizes for what is lowered meanwhile."""
    before = {each.name: getattr(SIZES, each.name) for each in fields(SIZES)}
    for name, value in changes.items():
        setattr(SIZES, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(SIZES, name, value)


# Small domains cut as if they were large.
SMALL: dict[str, Any] = {"stretch": 1, "tree_depth": (0, 1), "items": 1 << 12}


def lowered(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    order: Shape | None = None,
) -> GridLowered:
    stores = len(kernel.stores)
    strides = [output_strides(kernel, each, k >= stores) for k, each in enumerate(outputs)]
    low = lower_grid(kernel, shape, [domain_strides(a, shape) for a in inputs], strides, order)
    assert isinstance(low, GridLowered)
    return low


def sources(low: GridLowered) -> list[Source]:
    """The texts of both passes."""
    second = low.second()
    return [low.source(LANGUAGE), *([] if second is None else [second[0]])]


def prepare(cases: Iterable[tuple[Kernel, Sequence[Array]]]) -> None:
    """Build at once what `run` will ask for over the shapes of the first inputs."""
    found: list[Source] = []
    for kernel, inputs in cases:
        shape = inputs[0].shape
        found += sources(lowered(kernel, shape, inputs, empty_outputs(kernel, shape)))
    opencl_tools.prepare(found)


def run(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[Array],
    scalars: tuple[Any, ...] = (),
    order: Shape | None = None,
    outputs: Sequence[Array] | None = None,
    groups: int = 2,
    on_host: bool = False,
) -> list[Array]:
    """Run a kernel over the whole domain; `on_host`: partial results are combined by NumPy."""
    return run_with_flags(kernel, shape, inputs, scalars, order, outputs, groups, on_host)[0]


def run_with_flags(
    kernel: Kernel,
    shape: Shape,
    inputs: Sequence[Array],
    scalars: tuple[Any, ...] = (),
    order: Shape | None = None,
    outputs: Sequence[Array] | None = None,
    groups: int = 2,
    on_host: bool = False,
) -> tuple[list[Array], int]:
    """Results, and the conditions that were raised."""
    verify(kernel)
    results = list(outputs) if outputs is not None else empty_outputs(kernel, shape)
    low = lowered(kernel, shape, inputs, results, order)
    temporaries = [np.empty(size, dtype) for size, dtype in low.temporaries]
    for each in (*temporaries, *(results if outputs is None else ())):
        np.frombuffer(each.data, np.uint8)[...] = 1  # what is not written must show
    arrays = (*inputs, *results, *temporaries)
    opencl_tools.prepare(sources(low))
    program = compiled(low.source(LANGUAGE))
    flags = program.launch(low.launch(LANGUAGE, arrays, scalars), groups)
    second = low.second()
    assert (second is None) == (low._combination is None)
    if second is None or on_host:
        low.finish(arrays)
    else:
        source, launch = second
        flags |= compiled(source).launch(launch(arrays), groups)
    return results, flags
