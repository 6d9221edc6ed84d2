"""The printer of language "opencl": a kernel variant as OpenCL C, one work-item per chunk.

The arguments: a table of int64 (the strides in elements, then for each chunk the loop sizes, its
other numbers, see chunks.py, and where each array begins), the number of chunks, each array as
a block of memory and the byte offset of its first element, the scalars by value, and the words for
floating-point exceptions. CPU-type devices get long chunks and explicit vectors this way; the loops
and their order are those of language "numba". text.py lists the identifiers.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering import flag_slots
from lazyfuse.codegen.lowering.kernel import Kernel, is_argument, is_exact, is_ordered
from lazyfuse.codegen.lowering.printing import named_source
from lazyfuse.codegen.lowering.variant import KernelVariant, value_target
from lazyfuse.codegen.opencl import pairwise, raised_words, reduce_step
from lazyfuse.codegen.opencl.expressions import best, c_type, combined
from lazyfuse.codegen.opencl.fp_flags import flag_statements
from lazyfuse.codegen.opencl.reduce_step import not_finite
from lazyfuse.codegen.opencl.rows import Rows
from lazyfuse.codegen.opencl.text import assign, closure, element, lane_helpers, parameters, parts
from lazyfuse.devices.base import Source


def print_source(kernel: Kernel, form: KernelVariant) -> Source:
    """The program text of a kernel variant."""
    printer = _Printer(kernel, form)
    printer.entry()
    body = f"__kernel void NAME({printer.signature()})\n{{\n" + "\n".join(printer.lines) + "\n}\n"
    sums = pairwise.helpers(body)
    helpers = reduce_step.helpers(sums + body), sums, lane_helpers(body)
    text = closure(body, kernel, helpers)
    return named_source("opencl", text, printer.rank, printer.arrays, kernel, is_exact(kernel))


class _Printer(Rows):
    # The parts of a program

    def signature(self) -> str:
        words = parameters(self.arrays, self.kernel.scalars)
        return (",\n" + " " * len("__kernel void k_0123456789abcdef(")).join(words)

    def entry(self) -> None:
        self.arguments()
        if self.flags:
            for text in raised_words.declared(self.kernel, self.flagged_by_functions()):
                self.line(text)
        if self.runs_again():
            self.open("for (int again = 0; again < 2; again++)")
        if self.variant.needs_start:
            self.over_targets(self.start_target)
        self.loops(0)
        if self.runs_again():
            self.line("int strange = 0;")
            self.over_targets(self.suspect_target)
            self.line("if (again || !strange)")
            self.line("    break;")
            self.close()
        if self.flags:
            for text in raised_words.reported(self.kernel, self.flagged_by_functions()):
                self.line(text)

    def flagged_by_functions(self) -> list[int]:
        """The reductions whose steps are function calls."""
        return raised_words.ordered(self.kernel) if self.variant.core == "row" else []

    def arguments(self) -> None:
        self.line("const long c = get_global_id(0);")
        self.line("if (c >= chunks)")
        self.line("    return;")
        first = len(self.arrays) * self.rank
        width = self.rank + len(self.arrays)
        self.line(f"__global const long *row = table + {first} + c * {width};")
        self.numbers("row")
        if self.variant.core == "row":
            self.buffers()

    def array_arguments(self, k: int) -> None:
        kind, numbers = self.pointer_type(k), parts(self.arrays[k])
        twice = f" * {numbers}" if numbers > 1 else ""
        start = f"({kind})(b{k} + o{k}) + row[{self.rank + k}]{twice}"
        self.line(f"{kind}a{k}_0 = {start};")
        for at in range(self.variant.loops):
            if self.moves(k, at):
                self.line(f"const long s{k}_{at} = table[{k * self.rank + at}]{twice};")
        if self.variant.classes[k] == "s":
            self.line(f"const long e{k} = table[{k * self.rank + self.last}];")

    # Targets that accumulate in memory

    def open_targets(self) -> None:
        self.open("")

    # The innermost loop of maps and columns

    def flat(self) -> None:
        self.pointers(range(len(self.arrays)), {})
        self.hoist()
        self.innermost(f"n{self.last}", self.flat_iteration)

    def flat_iteration(self) -> None:
        self.compute()
        for r, each in enumerate(self.kernel.reductions):
            k = self.first_target + r
            value = self.values.cast(each.value, each.accumulator)
            if not is_argument(each):
                kind = c_type(each.dtype, self.vector)
                self.line(f"const {kind} before{r} = {self.read(k, f'p{k}')};")
                after = combined(each, f"before{r}", value, self.vector)
                self.line(f"const {kind} after{r} = {after};")
                if is_ordered(each):
                    self.flag_step(r, f"before{r}", value, f"after{r}")
                self.write(k, f"p{k}", f"after{r}")
            elif self.vector:
                lane = self.lanes(f"lanes{r}", value, each.accumulator)
                self.open("for (int k = 0; k < W && k < left; k++)")
                self.improve(r, lane, "(i + k)")
                self.close()
            else:
                self.open("")
                self.improve(r, value, "i")
                self.close()

    def flag_step(self, r: int, before: str, value: str, after: str) -> None:
        """Statements that find the exceptions of one addition or multiplication."""
        if self.runs_again():
            self.open("if (again)")
        slot = flag_slots.of_reductions(self.kernel)[r]
        step = reduce_step.step(self.kernel.reductions[r], before, value, after, slot)
        for text in flag_statements([step], self.vector):
            self.line(text)
        if self.runs_again():
            self.close()

    def runs_again(self) -> bool:
        """Whether sums in memory that are not finite find their exceptions in a second run.

        The kernel must have no stores: one could have overwritten an operand by then.
        """
        ordered = any(is_ordered(each) for each in self.kernel.reductions)
        return self.variant.core == "column" and ordered and not self.kernel.stores

    def suspect_target(self, r: int, place: str) -> None:
        each = self.kernel.reductions[r]
        if is_ordered(each):
            value = element(f"a{self.first_target + r}_{self.outer}", place, each.dtype)
            self.line(f"strange |= {not_finite(value, each.dtype)};")

    def improve(self, r: int, value: str, counter: str) -> None:
        """Replace a target's best value and position if a value is better."""
        each = self.kernel.reductions[r]
        k, v = self.first_target + r, value_target(self.kernel, r)
        kind, place, target = (
            c_type(each.accumulator),
            self.offset(v, counter),
            self.offset(k, counter),
        )
        self.line(f"const {kind} value = {value};")
        self.line(f"const long at = where_{self.outer} + {counter} * sw_{self.last};")
        self.line(f"const {kind} best_value = {element(f'p{v}', place, each.accumulator)};")
        self.open(f"if ({best(each, 'value', 'at', 'best_value', f'p{k}[{target}]')})")
        self.line(assign(f"p{v}", place, "value", each.accumulator))
        self.line(f"p{k}[{target}] = at;")
        self.close()
