"""What the printers of several languages share: values, lines, loops, the names of programs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from lazyfuse.codegen.lowering.kernel import (
    Instruction,
    Kernel,
    is_argument,
    raises_flags,
    value_dtypes,
)
from lazyfuse.codegen.lowering.variant import KernelVariant, program_arrays
from lazyfuse.devices.base import Source

Name = TypeVar("Name")


def named_source(
    language: str,
    text: str,
    rank: int,
    arrays: tuple[str, ...],
    kernel: Kernel,
    exact: bool,
    group: int = 0,
) -> Source:
    """The program of a text that calls itself NAME; its name is that of its contents."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"{'g' if group else 'k'}_{digest}"
    text = text.replace(" NAME(", f" {name}(")
    return Source(language, name, text, rank, arrays, kernel.scalars, exact, group)


def with_needed(found: Iterable[Name], calls: Callable[[Name], Iterable[Name]]) -> list[Name]:
    """Some helpers and all that they call, each after those it calls."""
    order: list[Name] = []

    def visit(name: Name) -> None:
        if name not in order:
            for other in calls(name):
                if other != name:
                    visit(other)
            order.append(name)

    for name in found:
        visit(name)
    return order


class Values:
    """The numbered values of a kernel: inputs h, scalars x, instructions v."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.dtypes = value_dtypes(kernel)
        self.scalars = len(kernel.inputs)
        self.first = self.scalars + len(kernel.scalars)

    def name(self, value: int) -> str:
        """The text of a value."""
        if value < self.scalars:
            return f"h{value}"
        return f"x{value - self.scalars}" if value < self.first else f"v{value}"

    def cast(self, value: int, dtype: str) -> str:
        """A value as another dtype."""
        raise NotImplementedError

    def arguments(self, each: Instruction) -> tuple[str, ...]:
        """The operands of an instruction, in the dtypes that it takes."""
        return tuple(self.cast(v, dtype) for v, dtype in zip(each.args, each.ins, strict=True))

    def numbered(self) -> Iterator[tuple[int, Instruction]]:
        """The instructions, with the numbers of their values."""
        return enumerate(self.kernel.body, self.first)


class Lines:
    """Lines of text, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)


class KernelText(Lines):
    """A kernel variant, and the lines of its program so far."""

    def __init__(self, kernel: Kernel, form: KernelVariant) -> None:
        super().__init__()
        self.kernel = kernel
        self.variant = form
        self.arrays = program_arrays(kernel)
        self.dtypes = value_dtypes(kernel)
        self.has_index = any(is_argument(each) for each in kernel.reductions)
        self.first_store = len(kernel.inputs)
        self.first_target = self.first_store + len(kernel.stores)


class LoopText(KernelText):
    """A program of loops under construction."""

    def __init__(self, kernel: Kernel, form: KernelVariant) -> None:
        super().__init__(kernel, form)
        self.flags = raises_flags(kernel)
        self.outer = len(form.outer)
        self.last = form.loops - 1
        ragged = 1 + form.run if form.ragged else 0
        self.position = form.loops + ragged  # column of the position's base
        self.rank = self.position + (1 + form.loops if self.has_index else 0)

    def moves(self, k: int, at: int) -> bool:
        """Whether an array may have a stride other than 0 on a loop."""
        reduced_loop = at >= self.outer if self.variant.core == "row" else False
        if at < self.outer:
            reduced_loop = self.variant.outer[at]
        elif at == self.last and self.variant.classes[k] == "0":
            return False
        return not (k >= self.first_target and reduced_loop)

    def trees(self) -> list[int]:
        """The reductions that are NumPy's pairwise sums."""
        return [r for r, method in enumerate(self.variant.methods) if method == "tree"]

    def is_complex_tree(self) -> bool:
        """Whether these sum complex numbers, which NumPy halves elsewhere."""
        return any(self.kernel.reductions[r].accumulator[0] == "c" for r in self.trees())

    def may_stop(self) -> bool:
        """Whether a row may stop early once its results are decided."""
        ops = {each.op for each in self.kernel.reductions}
        return not self.kernel.stores and ops <= {"logical_and", "logical_or"}

    def decided(self, negation: str) -> list[str]:
        """For each `all` and `any`, the test whether its result is decided."""
        reductions = enumerate(self.kernel.reductions)
        return [f"acc{r}" if x.op == "logical_or" else f"{negation}acc{r}" for r, x in reductions]
