"""The kernel variant: what program text depends on besides the kernel, and its piece names.

A `KernelVariant` holds no size, stride, offset or scalar value: those are program arguments.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering.kernel import Kernel, is_argument
from lazyfuse.devices.dataclass import dataclass

# Elements that a run of a reduction evaluates into a buffer before it combines them. Generated
# code walks NumPy's pairwise tree down to this size; below it a library function does.
RUN_BLOCK = 1024


@dataclass(frozen=True)
class KernelVariant:
    """The loop nest as the printers see it.

    `core`: "map" (innermost loop stores), "column" (innermost loop is over results, which
    accumulate in memory) or "row" (the innermost `run` loops are reduced into registers).
    `outer`: for each loop around the core, whether it is over a reduced axis.
    `classes`: for each array, its stride on the last loop: "0", "1", "-" (-1) or "s" (any).
    `methods`: for each reduction of a row, how a run is combined: "tree" (NumPy's pairwise sum),
    "chain" (one after the other), "scalar" (in any order, one accumulator) or "seek" (the best
    value, then its position). `long`: a tree's runs may exceed RUN_BLOCK elements. `stream`: dense
    stores of a map go past the caches, where the language supports it.
    """

    core: str
    outer: tuple[bool, ...]
    run: int
    classes: str
    methods: tuple[str, ...] = ()
    long: bool = False
    stream: bool = False

    @property
    def loops(self) -> int:
        """The number of loops whose sizes are arguments."""
        return len(self.outer) + self.run

    @property
    def suffix(self) -> int:
        """The first of the loops, all reduced, around a row: its accumulators live through them."""
        at = len(self.outer)
        while at > 0 and self.outer[at - 1]:
            at -= 1
        return at

    @property
    def needs_start(self) -> bool:
        """Whether a target is visited more than once, and so needs a start value."""
        if self.core == "map":
            return False
        return self.core == "column" or any(self.outer[: self.suffix])

    @property
    def ragged(self) -> bool:
        """Whether a chunk is a segment of the run that may begin and end within its loops."""
        return self.run > 1


def program_arrays(kernel: Kernel) -> tuple[str, ...]:
    """Dtypes of a program's arrays.

    Inputs; stores; the target of each reduction; for each argmin and argmax, that of its value.
    """
    values = (each.accumulator for each in kernel.reductions if is_argument(each))
    return (
        *kernel.inputs,
        *(each.dtype for each in kernel.stores),
        *(each.dtype for each in kernel.reductions),
        *values,
    )


def value_target(kernel: Kernel, reduction: int) -> int:
    """The index of the program array with the best values so far of an argmin or argmax."""
    first = len(kernel.inputs) + len(kernel.stores) + len(kernel.reductions)
    return first + sum(is_argument(each) for each in kernel.reductions[:reduction])
