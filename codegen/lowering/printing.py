"""What the printers of several languages share: values, lines, loops, rows, names of programs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from lazyfuse.codegen.lowering.kernel import (
    Instruction,
    Kernel,
    is_argument,
    raises_flags,
    value_dtypes,
)
from lazyfuse.codegen.lowering.variant import KernelVariant, program_arrays, value_target
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
    """A program of loops under construction.

    The languages differ in how they spell a loop, a test and a name (`repeat`, `begin`, `let`),
    and in how they compute elements.
    """

    block: int
    """Elements of a run that are evaluated at once."""

    vector = False  # whether one iteration computes a vector of elements
    end, long, true, both = "", "", "True", "and"

    begin: Callable[[str, str], None]
    """Opens an `if` or a `while`, with its test."""
    array_arguments: Callable[[int], None]
    offset: Callable[[int], str]
    pointers: Callable[[range, dict[int, str]], None]
    """Gives names to the first elements of arrays, each moved by its shift."""
    flat: Callable[[], None]
    """Writes a map, or reductions into one target per iteration."""
    target: Callable[[int, int], str]
    """The pointer to an array where it begins in so many loops."""
    read_at: Callable[[str, str, str], str]
    """The element at a pointer and an offset, of a dtype."""
    put: Callable[[str, str, str, str], None]
    """Writes a value to such an element."""
    evaluate: Callable[[], None]
    """Computes elements [low, low + count) of the run, and combines them."""
    fill_loop: Callable[[str, str], None]
    """Computes so many elements of a block, after those that are done ("": none)."""
    stop_if_decided: Callable[[], None]
    joined: Callable[[int, str, str], str]
    words: Any
    """The module with `identity`, `combined` and `best` of the language."""

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

    def may_stop(self) -> bool:
        """Whether a row may stop early once its results are decided."""
        ops = {each.op for each in self.kernel.reductions}
        return not self.kernel.stores and ops <= {"logical_and", "logical_or"}

    def decided(self, negation: str) -> list[str]:
        """For each `all` and `any`, the test whether its result is decided."""
        reductions = enumerate(self.kernel.reductions)
        return [f"acc{r}" if x.op == "logical_or" else f"{negation}acc{r}" for r, x in reductions]

    # How a language spells it

    def repeat(self, counter: str, stop: str, step: int = 1) -> None:
        """Open a loop whose counter begins at 0."""
        raise NotImplementedError

    def close(self) -> None:
        """End a loop or a test."""
        self.depth -= 1

    def let(self, name: str, value: str, kind: str = "const long ") -> None:
        """Give a name to a value, in languages with types one of this type."""
        self.line(f"{name} = {value}")

    def pointer_type(self, k: int) -> str:
        """The type of the address of an array."""
        return ""

    # The frame of a program

    def numbers(self, row: str) -> None:
        """Read the numbers of a chunk (see chunks.py), and where its arrays begin."""
        names = [f"n{at}" for at in range(self.variant.loops)]
        if self.variant.ragged:
            names += ["length", *(f"start{at}" for at in range(self.variant.run))]
        if self.has_index:
            names += ["where_0", *(f"sw_{at}" for at in range(self.variant.loops))]
        for at, name in enumerate(names):
            self.let(name, f"{row}[{at}]")
        for k in range(len(self.arrays)):
            self.array_arguments(k)

    def loops(self, at: int) -> None:
        """The loops around the core, from number `at` inwards, and the core."""
        if self.variant.core == "row" and at == self.variant.suffix:
            self.start_row()
        if at < self.outer:
            self.repeat(f"i{at}", f"n{at}")
            for k in range(len(self.arrays)):
                self.advance(k, at)
            if self.has_index:
                self.let(f"where_{at + 1}", f"where_{at} + i{at} * sw_{at}")
            self.loops(at + 1)
            self.close()
        else:
            {"map": self.flat, "column": self.flat, "row": self.row}[self.variant.core]()
        if self.variant.core == "row" and at == self.variant.suffix:
            self.end_row()

    def advance(self, k: int, at: int) -> None:
        """Where an array begins in an iteration of a loop."""
        step = f" + i{at} * s{k}_{at}" if self.moves(k, at) else ""
        self.let(f"a{k}_{at + 1}", f"a{k}_{at}{step}", self.pointer_type(k))

    def over_targets(self, visit: Callable[[int, str], None]) -> None:
        """Loops over all targets of a chunk: `visit` gets a reduction and its target's offset."""
        depth = self.depth
        self.open_targets()
        for at in range(self.outer):
            if not self.variant.outer[at]:
                self.repeat(f"i{at}", f"n{at}")
            for k in range(self.first_target, len(self.arrays)):
                self.advance(k, at)
        if self.variant.core == "column":
            self.repeat("i", f"n{self.last}")
        for r in range(len(self.kernel.reductions)):
            visit(r, self.target_offset(self.first_target + r))
        while self.depth > depth:
            self.close()

    def target_offset(self, k: int) -> str:
        """The offset of a target in the loops of `over_targets`."""
        return self.offset(k) if self.variant.core == "column" else "0"

    def start_target(self, r: int, place: str) -> None:
        """Write what a reduction starts from."""
        each = self.kernel.reductions[r]
        target = self.target(self.first_target + r, self.outer)
        self.put(target, place, self.words.identity(each), each.dtype)
        if is_argument(each):
            k = value_target(self.kernel, r)
            value, target = self.words.identity(each, True), self.target(k, self.outer)
            self.put(target, self.target_offset(k), value, self.number_dtype(r))

    def number_dtype(self, r: int) -> str:
        """The dtype in which an argmin or argmax keeps its best value."""
        return self.kernel.reductions[r].accumulator

    def open_targets(self) -> None:
        """Open the block of names that `over_targets` gives."""

    # Rows

    def source_pointer(self, r: int) -> str | None:
        """The input that a block may be read from directly, without a computation between.

        The kernel must have no stores: one could have overwritten the input by then.
        """
        each = self.kernel.reductions[r]
        direct = (
            not self.kernel.stores
            and (self.vector or self.variant.methods[r] == "tree")
            and not self.variant.ragged
            and each.value < self.first_store
            and self.variant.classes[each.value] == "1"
            and self.arrays[each.value] == each.accumulator
        )
        return f"p{each.value}" if direct else None

    def only_pointers(self) -> bool:
        """Whether every reduction reads an input directly from memory."""
        return all(self.source_pointer(r) for r in range(len(self.kernel.reductions)))

    def start_row(self) -> None:
        for r, each in enumerate(self.kernel.reductions):
            start = self.words.identity(each, is_argument(each))
            if self.variant.methods[r] == "chain" and self.variant.needs_start:
                target = self.target(self.first_target + r, self.variant.suffix)
                start = self.read_at(target, "0", each.dtype)
            self.let(f"acc{r}", start, self.type_of(each.accumulator))
            if is_argument(each):
                self.let(f"pos{r}", self.words.identity(each), "long ")

    def type_of(self, dtype: str) -> str:
        """The type of a variable."""
        return ""

    def end_row(self) -> None:
        for r, each in enumerate(self.kernel.reductions):
            target, acc = self.target(self.first_target + r, self.variant.suffix), f"acc{r}"
            if is_argument(each):
                self.end_argument(r, target)
                continue
            if self.variant.methods[r] == "tree":
                start = self.words.identity(each)
                self.line(f"{acc} = {self.words.combined(each, start, acc)}{self.end}")
            elif self.variant.needs_start and self.variant.methods[r] != "chain":
                before = self.read_at(target, "0", each.dtype)
                self.line(f"{acc} = {self.joined(r, before, acc)}{self.end}")
            self.put(target, "0", acc, each.dtype)

    def end_argument(self, r: int, target: str) -> None:
        each, dtype, acc = self.kernel.reductions[r], self.number_dtype(r), f"acc{r}"
        values = self.target(value_target(self.kernel, r), self.variant.suffix)
        if self.variant.needs_start:
            before = self.read_at(values, "0", dtype), f"{target}[0]"
            self.begin("if", self.words.best(each, acc, f"pos{r}", *before))
        self.put(values, "0", acc, dtype)
        self.line(f"{target}[0] = pos{r}{self.end}")
        if self.variant.needs_start:
            self.close()

    def row(self) -> None:
        """Runs of the innermost loops, block by block, into the accumulators."""
        if self.variant.ragged:
            for at in range(self.variant.run):
                self.let(f"c{at}", f"start{at}", "long ")
        total = "length" if self.variant.ragged else f"n{self.last}"
        self.start_run()
        if self.walks_tree():
            self.walk_tree(total)
        elif "tree" in self.variant.methods:
            self.let("low", "0")
            self.let("count", total)
            self.evaluate()
        else:
            self.blocks(total)
        self.end_run()

    def blocks(self, total: str) -> None:
        """A run of `total` elements, block by block."""
        self.repeat("low", total, self.block)
        self.one_block(f"{self.block}{self.long}", total)
        self.close()

    def one_block(self, most: str, total: str) -> None:
        """Evaluate up to `most` elements from `low` on."""
        self.let("count", f"min({most}, {total} - low)")
        self.evaluate()
        if self.may_stop():
            self.stop_if_decided()

    def walks_tree(self) -> bool:
        """Whether NumPy's tree above blocks is part of the text."""
        return self.variant.long and not self.only_pointers()

    def walk_tree(self, total: str) -> None:
        """NumPy's pairwise tree above blocks, left to right, with a stack.

        It holds the lengths of right parts; 0 where the part is evaluated, and its left one waits.
        """
        trees = self.trees()
        self.let("top", "0", "int ")
        self.let("low", "0", "long ")
        self.let("count", total, "long ")
        self.begin("while", self.true)
        self.begin("while", f"count > {self.block}")
        complex_tree = any(self.kernel.reductions[r].accumulator[0] == "c" for r in trees)
        self.let("first", "(count - (count & 7)) >> 1" if complex_tree else "(count >> 1) & ~7")
        self.line(f"right[top] = count - first{self.end}")
        self.line(f"top += 1{self.end}")
        self.line(f"count = first{self.end}")
        self.close()
        self.evaluate()
        self.line(f"low += count{self.end}")
        self.begin("while", f"top > 0 {self.both} right[top - 1] == 0")
        self.line(f"top -= 1{self.end}")
        for r in trees:
            self.line(f"acc{r} = {self.joined(r, f'left{r}[top]', f'acc{r}')}{self.end}")
        self.close()
        self.begin("if", "top == 0")
        self.line(f"break{self.end}")
        self.close()
        for r in trees:
            self.line(f"left{r}[top - 1] = acc{r}{self.end}")
        self.line(f"count = right[top - 1]{self.end}")
        self.line(f"right[top - 1] = 0{self.end}")
        self.close()

    def start_run(self) -> None:
        """Begin a run of a row."""

    def end_run(self) -> None:
        """Combine what a run has left."""

    def block_shifts(self) -> dict[int, str]:
        """How far each array moves to the first element of a block of one loop."""
        moved = [k for k in range(self.first_target) if self.moves(k, self.last)]
        return {k: f" + low * s{k}_{self.last}" for k in moved}

    def fill_pieces(self) -> None:
        """Evaluate a block of a ragged run, piece by piece of its innermost loop."""
        last = self.variant.run - 1
        self.let("done", "0", "long ")
        self.begin("while", "done < count")
        self.let("piece", f"min(n{self.last} - c{last}, count - done)")
        loops, shifts = range(self.variant.run), dict[int, str]()
        for k in range(self.first_target):
            moved = [at for at in loops if self.moves(k, self.outer + at)]
            shifts[k] = "".join(f" + c{at} * s{k}_{self.outer + at}" for at in moved)
        self.pointers(range(self.first_target), shifts)
        if self.has_index:
            terms = "".join(f" + c{at} * sw_{self.outer + at}" for at in loops)
            self.let("here", f"where_{self.outer}{terms}")
        self.fill_loop("piece", "done")
        self.line(f"done += piece{self.end}")
        self.line(f"c{last} += piece{self.end}")
        for at in range(last, 0, -1):
            self.begin("if", f"c{at} == n{self.outer + at}")
            self.line(f"c{at} = 0{self.end}")
            self.line(f"c{at - 1} += 1{self.end}")
        for _ in range(last + 1):
            self.close()
