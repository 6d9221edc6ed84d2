"""What all texts of language "opencl-grid" share: variant, signature, one element, indices.

A group of work-items shares each task. Groups take tasks by group number, in steps of the number
of groups, so any number of groups is right. The arguments are those of language "opencl".
Identifiers:
b block of memory, o byte offset, p pointer, s stride, n size, x scalar, h input value, y stored
value, q reduced value, t and u local memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazyfuse.codegen.lowering.kernel import Kernel, is_exact, raises_flags
from lazyfuse.codegen.lowering.languages import GRID
from lazyfuse.codegen.lowering.printing import named_source
from lazyfuse.codegen.lowering.variant import program_arrays
from lazyfuse.codegen.opencl import expressions, raised_words, reduce_step
from lazyfuse.codegen.opencl.expressions import OpenCLValues, c_type
from lazyfuse.codegen.opencl.text import CLines, parameters
from lazyfuse.devices.base import Source
from lazyfuse.devices.dataclass import dataclass

LANGUAGE = GRID


@dataclass(frozen=True)
class GridVariant:
    """The loop nest as the printers for work-groups see it.

    Loops over `outer` axes come first, then the `run`: the last loop of a map, all reduced loops of
    a reduction. `classes`: for each array its stride on the last loop, as in `KernelVariant`.
    `group`: work-items of a group. `wide`: indices need 64 bits. `vector`: elements of a map per
    work-item. `through`: inputs of a map that its last loops, a square tile of a group's size, walk
    in the opposite order; they are read in their own order and transposed in local memory.

    For reductions only: `lanes` work-items share a result. They are neighbours, or, if
    `interleaved`, neighbours work on neighbouring results. `methods`: "tree" (NumPy's pairwise
    sum), "chain" (one element after the other) or "free" (any order). A tree has `depth` levels at
    most; `complex_tree`: it is that of complex numbers.
    """

    core: str
    outer: int
    run: int
    classes: str
    group: int
    wide: bool = False
    vector: int = 1
    through: tuple[int, ...] = ()
    lanes: int = 1
    interleaved: bool = False
    methods: tuple[str, ...] = ()
    depth: int = 0
    complex_tree: bool = False

    @property
    def loops(self) -> int:
        """The number of loops whose sizes are arguments."""
        return self.outer + self.run


class GridText(CLines):
    """Lines of a program, and the pieces that maps and reductions share."""

    def __init__(self, kernel: Kernel, form: GridVariant) -> None:
        super().__init__()
        self.kernel = kernel
        self.variant = form
        self.arrays = program_arrays(kernel)
        self.values = OpenCLValues(kernel)
        self.flags = raises_flags(kernel)
        self.first_store = len(kernel.inputs)
        self.first_target = self.first_store + len(kernel.stores)
        self.index = "long" if form.wide else "int"

    # Text

    def barrier(self) -> None:
        self.line("barrier(CLK_LOCAL_MEM_FENCE);")

    def source(self, rank: int) -> Source:
        """The complete text, named by its contents."""
        body = "\n".join(self.lines)
        element = self.element_function() + self.helpers() + reduce_step.helpers(body)
        size = expressions.itemsize(self.kernel)
        above = expressions.preamble(element + body, size)
        text = f"{above}\n{element}\n{self.signature()}\n{{\n{body}\n}}\n"
        exact, group = is_exact(self.kernel), self.variant.group
        return named_source(LANGUAGE, text, rank, self.arrays, self.kernel, exact, group)

    def signature(self) -> str:
        table, chunks, *rest = parameters(self.arrays, self.kernel.scalars)
        return (
            f"__kernel __attribute__((reqd_work_group_size({self.variant.group}, 1, 1)))\n"
            "void NAME(" + ",\n    ".join([f"{table}, {chunks}", *rest]) + ")"
        )

    def helpers(self) -> str:
        """Functions that the body calls."""
        return ""

    # One element

    def element_function(self) -> str:
        """All values of one element as a function, which compilers inline."""
        inputs = [f"const {c_type(d)} h{k}" for k, d in enumerate(self.kernel.inputs)]
        scalars = [f"const {c_type(d)} x{k}" for k, d in enumerate(self.kernel.scalars)]
        outputs = [f"{c_type(s.dtype)} *y{k}" for k, s in enumerate(self.kernel.stores)]
        reduced = [f"{c_type(r.accumulator)} *q{k}" for k, r in enumerate(self.kernel.reductions)]
        arguments = ", ".join((*inputs, *scalars, *outputs, *reduced, "int *raised_here"))
        lines = [*self.values.statements()]
        for k, store in enumerate(self.kernel.stores):
            lines.append(f"*y{k} = {self.values.cast(store.value, store.dtype)};")
        for k, each in enumerate(self.kernel.reductions):
            lines.append(f"*q{k} = {self.values.cast(each.value, each.accumulator)};")
        lines += self.values.flag_statements()
        body = "\n".join(f"    {line}" for line in lines)
        return f"static inline void element({arguments})\n{{\n{body}\n}}\n"

    def call_element(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Compute an element; `outputs`: variables for the stores, then for reduced values."""
        scalars = [f"x{k}" for k in range(len(self.kernel.scalars))]
        arguments = (*inputs, *scalars, *(f"&{each}" for each in outputs), "raised_here")
        self.line(f"element({', '.join(arguments)});")

    # Arguments

    def arguments(self, rank: int) -> None:
        """Strides and sizes, which are the same for every chunk."""
        count = len(self.arrays)
        for text in raised_words.declared(self.kernel, raised_words.ordered(self.kernel)):
            self.line(text)
        for k in range(count):
            for at in range(self.variant.loops):
                if self.moves(k, at):
                    self.line(f"const {self.index} s{k}_{at} = table[{k * rank + at}];")
        self.line(f"__global const long *rows = table + {count * rank};")

    def moves(self, k: int, at: int) -> bool:
        """Whether an array may have a stride other than 0 on a loop."""
        if at == self.variant.loops - 1 and self.variant.classes[k] in "01":
            return False  # known from the size alone
        return k < self.first_target or at < self.variant.outer or self.variant.core == "map"

    def pointer(self, k: int, offset: str) -> None:
        """A pointer to the first element of a chunk in an array."""
        kind, size = self.pointer_type(k), int(self.arrays[k][1:])
        self.line(f"{kind}p{k} = ({kind})(b{k} + o{k} + {offset} * {size});")

    def unravel(self, index: str, sizes: Sequence[str], names: Sequence[str]) -> None:
        """Loop counters from the number of an iteration, the last loop being the fastest."""
        rest = index
        for at in reversed(range(1, len(sizes))):
            self.line(f"const {self.index} {names[at]} = {rest} % {sizes[at]};")
            self.line(f"const {self.index} {names[at]}_above = {rest} / {sizes[at]};")
            rest = f"{names[at]}_above"
        if sizes:
            self.line(f"const {self.index} {names[0]} = {rest};")

    def offset(self, k: int, loops: Sequence[tuple[int, str]]) -> str:
        """The offset of an element in an array, from loops and their counters."""
        terms = []
        for at, counter in loops:
            if at == self.variant.loops - 1 and self.variant.classes[k] == "1":
                terms.append(counter)
            elif self.moves(k, at):
                terms.append(f"{counter} * s{k}_{at}")
        return " + ".join(terms) or "0"

    def finish(self) -> None:
        if self.flags:
            ordered = raised_words.ordered(self.kernel)
            for text in raised_words.reported(self.kernel, ordered):
                self.line(text)


def leaf_size(complex_values: bool) -> int:
    """The most elements that NumPy sums without halving them."""
    return 64 if complex_values else 128


def tree_lanes(complex_values: bool) -> int:
    """The accumulators of a leaf."""
    return 4 if complex_values else 8
