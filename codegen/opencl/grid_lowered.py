"""Kernels lowered for GPUs: `GridLowered`, the counterpart of `Lowered`.

It has the arrays and results of `Lowered`, but its own loops, chunks and partial results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.lowering.kernel import Kernel
from lazyfuse.codegen.lowering.loop_nest import Nest
from lazyfuse.codegen.lowering.lower import Lowered
from lazyfuse.codegen.lowering.variant import KernelVariant
from lazyfuse.codegen.opencl.grid_text import LANGUAGE, GridVariant
from lazyfuse.devices.base import Launch, Source
from lazyfuse.devices.caches import memo
from lazyfuse.devices.dataclass import dataclass

Array = np.ndarray[Any, np.dtype[Any]]
Printer = Callable[[Kernel, GridVariant], Source]
Second = tuple[Source, Callable[[Sequence[Array]], Launch]]

# Indices have 32 bits while all sums in them stay below this.
NARROW = 1 << 30

_SOURCES: dict[tuple[Kernel, GridVariant, Printer], Source] = memo(
    "codegen.opencl.grid_lowered.sources",
    4096,  # texts of a few kilobytes
)
_NO_FORM = GridVariant("map", 0, 1, "", 0)  # a default, since the base class has defaults


@dataclass(frozen=True, eq=False)
class GridLowered(Lowered):
    """A kernel for groups of work-items. It has one language, "opencl-grid".

    `tasks`: groups that one launch can keep busy. `second`: the program and the launch that combine
    partial results on the device, in the order in which `finish` does it with NumPy.
    """

    grid: GridVariant = _NO_FORM
    tasks: int = 1
    printer: Printer | None = None
    finisher: Callable[[], Second] | None = None

    def source(self, language: str) -> Source:
        """The program text; memoised by kernel and variant."""
        assert language == LANGUAGE, f"expected {LANGUAGE}, got {language}"
        assert self.printer is not None
        return memoised(self.kernel, self.grid, self.printer)

    def launch(self, language: str, arrays: Sequence[Array], scalars: tuple[Any, ...]) -> Launch:
        """The arguments of one run."""
        table = self._tables.get(language) or self.table(language)
        chosen = tuple([arrays[slot] for slot in self.slots])
        return Launch(
            chosen, table.strides, scalars, table.sizes, table.offsets, self.elements, self.tasks
        )

    def second(self) -> Second | None:
        """The program that combines partial results on the device; None if there are none."""
        return self.finisher() if self.finisher is not None else None


def memoised(kernel: Kernel, form: GridVariant, printer: Printer) -> Source:
    """The text of a kernel variant. A kernel over partial results has its own printer."""
    key = kernel, form, printer
    source = _SOURCES.get(key)
    if source is None:
        source = _SOURCES[key] = printer(kernel, form)
    return source


def plain_form(grid: GridVariant) -> KernelVariant:
    """The loops in the terms of other languages, for descriptions of a kernel."""
    core = "map" if grid.core == "map" else "row"
    return KernelVariant(core, (False,) * grid.outer, grid.run, grid.classes)


def is_wide(nest: Nest, elements: int) -> bool:
    """Whether indices need 64 bits: of iterations, or within an array."""
    if elements >= NARROW:
        return True
    sizes = [max(part.sizes[at] for part in nest.parts) for at in range(len(nest.loops))]
    for k in range(len(nest.loops[0].strides)):
        pairs = zip(nest.loops, sizes, strict=True)
        if sum(abs(loop.strides[k]) * size for loop, size in pairs) >= NARROW:
            return True
    return False
