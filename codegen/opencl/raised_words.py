"""The text by which OpenCL programs report floating-point exceptions; flag_slots.py has the bits.

A program has its own words, `raised_here`, and writes to them only after it has found an
exception. Functions that add up ordered reductions write to a variable for each reduction. At the
end the program adds all flags to the words of the launch.
"""

from __future__ import annotations

from collections.abc import Iterable

from lazyfuse.codegen.lowering.flag_slots import NO_SLOT, OF_WORD, WIDTH, slots
from lazyfuse.codegen.lowering.kernel import Kernel, is_ordered


def add_flags(slot: int, conditions: int) -> str:
    """The statement that adds flags to a program's own words."""
    word, place = divmod(slot + 1, OF_WORD)
    own = conditions << WIDTH * place if slot != NO_SLOT else conditions
    if word == 0:
        return f"raised_here[0] |= {own | conditions:#x};"
    return f"{{ raised_here[0] |= {conditions}; raised_here[{word}] |= {own:#x}; }}"


def declared(kernel: Kernel, reductions: Iterable[int]) -> list[str]:
    """The declarations of the words, and of the variables of reductions."""
    variables = [f"int {of_reduction(r)} = 0;" for r in reductions]
    return [f"int raised_here[{_words(kernel)}] = {{0}};", *variables]


def of_reduction(r: int) -> str:
    """The variable for the flags of a reduction."""
    return f"raised_by{r}"


def ordered(kernel: Kernel) -> list[int]:
    """The reductions that can raise exceptions."""
    return [r for r, each in enumerate(kernel.reductions) if is_ordered(each)]


def reported(kernel: Kernel, reductions: Iterable[int]) -> list[str]:
    """The statements at a program's end: variables to words, words to the launch's words."""
    lines = []
    known = slots(kernel)
    for r in reductions:
        name, slot = of_reduction(r), known[r]
        word, place = divmod(slot + 1, OF_WORD)
        lines.append(f"raised_here[0] |= {name};")
        if slot != NO_SLOT:
            lines.append(f"raised_here[{word}] |= {name} << {WIDTH * place};")
    words = range(_words(kernel))
    ends = [f"    if (raised_here[{k}]) atomic_or(raised + {k}, raised_here[{k}]);" for k in words]
    return [*lines, "if (raised_here[0]) {", *ends, "}"]


def _words(kernel: Kernel) -> int:
    """How many words a kernel's slots take."""
    return 1 + (max(slots(kernel), default=NO_SLOT) + 1) // OF_WORD
