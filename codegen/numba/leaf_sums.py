"""Sums of computed values without a buffer: text of language "numba" for one leaf of NumPy's tree.

NumPy adds up to 128 floats in eight accumulators and then joins these in pairs. Here the
accumulators are one vector. Each value is added as soon as it is computed, so additions overlap
with divisions and square roots, and no intermediate value is stored. Other reductions of the same
kernel have eight lanes each, too. Owns that text and the choice; printer.py walks the tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyfuse.codegen.lowering.kernel import Kernel, is_argument, is_exact, value_dtypes
from lazyfuse.codegen.lowering.variant import KernelVariant
from lazyfuse.codegen.numba.expressions import combined, identity, load, stored

if TYPE_CHECKING:
    from lazyfuse.codegen.numba.printer import Printer

LEAF = 128  # elements that NumPy's accumulators sum
LANES = 8


def suits(kernel: Kernel, form: KernelVariant) -> bool:
    """Whether a row's sums are taken leaf by leaf.

    Only for doubles, whose leaves are whole vectors, and for exact operations: the implementation
    of other functions may depend on the number of elements per vector.
    """
    if form.core != "row" or form.ragged or "tree" not in form.methods:
        return False
    dtypes = {*value_dtypes(kernel), *(each.accumulator for each in kernel.reductions)}
    wide = dtypes <= {"f8", "b1"} and "chain" not in form.methods
    return wide and is_exact(kernel) and not any(map(is_argument, kernel.reductions))


def sides(printer: Printer) -> int:
    """The number of lane vectors that alternate for reductions with longer steps than a sum."""
    return 1 if set(printer.variant.methods) == {"tree"} else 2


def buffers(printer: Printer) -> None:
    """Declare the memory of the lanes."""
    for r, each in enumerate(printer.kernel.reductions):
        number = 1 if printer.variant.methods[r] == "tree" else sides(printer)
        printer.line(f"t{r} = local_{each.accumulator}({number * LANES})")


def start_row(printer: Printer) -> None:
    """Start the lanes of reductions other than sums, which span the whole row."""
    _each_lane(printer, [r for r, m in enumerate(printer.variant.methods) if m != "tree"])


def end_row(printer: Printer) -> None:
    """Join the lanes that `start_row` started."""
    for r, each in enumerate(printer.kernel.reductions):
        if printer.variant.methods[r] != "tree":
            for lane in range(LANES * sides(printer)):
                value = load(f"t{r}", str(lane), each.accumulator)
                printer.line(f"acc{r} = {combined(each, f'acc{r}', value)}")


def leaf(printer: Printer) -> None:
    """Compute `count` elements from the pointers on; their sums are `acc`."""
    trees = [r for r, method in enumerate(printer.variant.methods) if method == "tree"]
    _each_lane(printer, trees)
    printer.line(f"whole = count & ~{LANES - 1}")
    if sides(printer) == 1:
        _vectors(printer, trees, "0", "whole", 1)
    else:
        printer.line(f"even = count & ~{2 * LANES - 1}")
        _vectors(printer, trees, "0", "even", 2)
        _vectors(printer, trees, "even", "whole", 1)
    for r in trees:
        pairs = [f"(t{r}[{at}] + t{r}[{at + 1}])" for at in range(0, LANES, 2)]
        printer.line(f"acc{r} = ({pairs[0]} + {pairs[1]}) + ({pairs[2]} + {pairs[3]})")
    printer.open("for i in range(whole, count):")
    printer.compute()
    for r, each in enumerate(printer.kernel.reductions):
        value = printer.values.cast(each.value, each.accumulator)
        if r in trees:
            printer.line(f"acc{r} = {combined(each, f'acc{r}', value)}")
        else:
            total = combined(each, load(f"t{r}", "0", each.accumulator), value)
            printer.line(f"t{r}[0] = {stored(total, each.accumulator)}")
    printer.close()


def _vectors(printer: Printer, trees: list[int], start: str, stop: str, number: int) -> None:
    """Combine the elements from `start` on, `number` vectors in each iteration."""
    printer.open(f"for first in range({start}, {stop}, {number * LANES}):")
    for side in range(number):
        printer.open(f"for lane in range({LANES}):")
        printer.line("one_vector()")
        printer.line("i = first + lane" + f" + {side * LANES}" * bool(side))
        printer.compute()
        for r, each in enumerate(printer.kernel.reductions):
            value = printer.values.cast(each.value, each.accumulator)
            lane = f"lane + {side * LANES}" if side and r not in trees else "lane"
            total = combined(each, load(f"t{r}", lane, each.accumulator), value)
            printer.line(f"t{r}[{lane}] = {stored(total, each.accumulator)}")
        printer.close()
    printer.close()


def _each_lane(printer: Printer, reductions: list[int]) -> None:
    """Initialise lanes; those of sums with -0.0, which changes no number that is added."""
    for r in reductions:
        each = printer.kernel.reductions[r]
        tree = printer.variant.methods[r] == "tree"
        start = "-0.0" if tree else identity(each)
        for lane in range(LANES if tree else LANES * sides(printer)):
            printer.line(f"t{r}[{lane}] = {stored(start, each.accumulator)}")
