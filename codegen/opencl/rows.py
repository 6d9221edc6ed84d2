"""Rows in text of language "opencl": the innermost loops reduced into a work-item's registers.

Owns how runs are evaluated block by block and combined: by NumPy's pairwise tree, one after the
other, or in any order; for the last, vector text has accumulators for each lane.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering.kernel import Reduce, is_argument
from lazyfuse.codegen.lowering.variant import RUN_BLOCK, value_target
from lazyfuse.codegen.opencl import pairwise, raised_words
from lazyfuse.codegen.opencl.expressions import best, c_type, combined, identity, stored
from lazyfuse.codegen.opencl.reduce_step import joined, not_finite
from lazyfuse.codegen.opencl.text import (
    Text,
    assign,
    element,
    memory_code,
    memory_type,
    near,
    parts,
)


class Rows(Text):
    """The row core; the loops around it are the subclass's."""

    # The frame of a row

    def buffers(self) -> None:
        """The private memory of a work-item; whole vectors are written to it."""
        for r, each in enumerate(self.kernel.reductions):
            dtype = each.accumulator
            if self.has_buffer(r):
                size = f"{parts(dtype) * RUN_BLOCK}{' + W' if self.vector else ''}"
                self.line(f"{memory_type(dtype)} t{r}[{size}];")
            if self.variant.methods[r] == "tree" and self.variant.long:
                self.line(f"{c_type(dtype)} left{r}[64];")
        if self.variant.long:
            self.line("long right[64];")

    def has_buffer(self, r: int) -> bool:
        """Whether the values of a block are kept until it is complete."""
        each = self.kernel.reductions[r]
        in_order = self.variant.methods[r] in ("tree", "chain")
        kept = in_order or is_argument(each) or self.vector
        return kept and self.source_pointer(r) is None

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
            kind = c_type(each.accumulator)
            start = identity(each, is_argument(each))
            if self.variant.methods[r] == "chain" and self.variant.needs_start:
                start = element(f"a{self.first_target + r}_{self.variant.suffix}", "0", each.dtype)
            self.line(f"{kind} acc{r} = {start};")
            if is_argument(each):
                self.line(f"long pos{r} = {identity(each)};")

    def end_row(self) -> None:
        for r, each in enumerate(self.kernel.reductions):
            pointer = f"a{self.first_target + r}_{self.variant.suffix}"
            if is_argument(each):
                self.end_argument(r, pointer)
                continue
            if self.variant.methods[r] == "tree":
                self.line(f"acc{r} = {combined(each, identity(each), f'acc{r}')};")
            elif self.variant.needs_start and self.variant.methods[r] != "chain":
                before = element(pointer, "0", each.dtype)
                self.line(f"acc{r} = {self.joined(r, before, f'acc{r}')};")
            self.line(assign(pointer, "0", f"acc{r}", each.dtype))

    def end_argument(self, r: int, pointer: str) -> None:
        each = self.kernel.reductions[r]
        values = f"a{value_target(self.kernel, r)}_{self.variant.suffix}"
        if self.variant.needs_start:
            before = element(values, "0", each.accumulator)
            self.line(f"const {c_type(each.accumulator)} best{r} = {before};")
            self.open(f"if ({best(each, f'acc{r}', f'pos{r}', f'best{r}', f'{pointer}[0]')})")
        self.line(assign(values, "0", f"acc{r}", each.accumulator))
        self.line(f"{pointer}[0] = pos{r};")
        if self.variant.needs_start:
            self.close()

    def joined(self, r: int, first: str, second: str) -> str:
        raised = raised_words.of_reduction(r)
        return joined(self.kernel.reductions[r], first, second, f"&{raised}")

    # Runs, block by block

    def row(self) -> None:
        """Runs of the innermost loops, block by block, into the accumulators."""
        if self.variant.ragged:
            for at in range(self.variant.run):
                self.line(f"long c{at} = start{at};")
        total = "length" if self.variant.ragged else f"n{self.last}"
        if self.variant.long and not self.only_pointers():
            self.walk_tree(total)
        elif "tree" in self.variant.methods:
            self.line("const long low = 0;")
            self.line(f"const long count = {total};")
            self.block()
        else:
            self.open(f"for (long low = 0; low < {total}; low += {RUN_BLOCK})")
            self.line(f"const long count = min({RUN_BLOCK}L, {total} - low);")
            self.block()
            if self.may_stop():
                self.line(f"if ({' && '.join(self.decided('!'))})")
                self.line("    break;")
            self.close()

    def walk_tree(self, total: str) -> None:
        """NumPy's pairwise tree above blocks of RUN_BLOCK, left to right, with a stack."""
        trees = self.trees()
        self.line("int top = 0;")
        self.line("long low = 0;")
        self.line(f"long count = {total};")
        self.open("for (;;)")
        self.open(f"while (count > {RUN_BLOCK})")
        self.line(f"const long first = {pairwise.half(self.is_complex_tree())};")
        self.line("right[top++] = count - first;")
        self.line("count = first;")
        self.close()
        self.block()
        self.line("low += count;")
        self.open("while (top > 0 && right[top - 1] == 0)")
        self.line("top--;")
        for r in trees:
            self.line(f"acc{r} = {self.joined(r, f'left{r}[top]', f'acc{r}')};")
        self.close()
        self.line("if (top == 0)")
        self.line("    break;")
        for r in trees:
            self.line(f"left{r}[top - 1] = acc{r};")
        self.line("count = right[top - 1];")
        self.line("right[top - 1] = 0;")
        self.close()

    def block(self) -> None:
        """Evaluate elements [low, low + count) of the run and combine them."""
        if self.variant.ragged:
            self.fill_pieces()
        else:
            self.fill()
        for r, method in enumerate(self.variant.methods):
            if method == "tree":
                self.combine_tree(r)
            elif method == "chain":
                self.combine_chain(r)
            elif self.vector and not is_argument(self.kernel.reductions[r]):
                self.fold(self.kernel.reductions[r], f"acc{r}", self.block_pointer(r), "count")

    def block_pointer(self, r: int) -> str:
        return self.source_pointer(r) or f"t{r}"

    def fold(self, each: Reduce, result: str, pointer: str, count: str) -> None:
        """Combine values with `result` in any order: four vectors hide the time of a step."""
        dtype = each.accumulator
        space = "__global const " if pointer[0] == "p" else ""
        self.open("")
        self.line("long i = 0;")
        self.open(f"if ({count} >= 4 * W)")
        start = identity(each, vector=True)
        self.line(f"{c_type(dtype, True)} m0 = {start}, m1 = m0, m2 = m0, m3 = m0;")
        self.open(f"for (; i + 4 * W <= {count}; i += 4 * W)")
        for k in range(4):
            value = near(dtype, f"{pointer} + i{f' + {k} * W' if k else ''}", space)
            if dtype == "b1":
                value = f"TO_VI1({value} != (VU1)(0))"
            self.line(f"const {c_type(dtype, True)} v{k} = {value};")
        for k in range(4):
            self.line(f"m{k} = {combined(each, f'm{k}', f'v{k}', True)};")
        self.close()
        for first, second in (("m0", "m1"), ("m2", "m3"), ("m0", "m2")):
            self.line(f"{first} = {combined(each, first, second, True)};")
        lane = self.lanes("lanes", "m0", dtype)
        self.line("for (int k = 0; k < W; k++)")
        self.line(f"    {result} = {combined(each, result, lane)};")
        self.close()
        self.line(f"for (; i < {count}; i++)")
        value = combined(
            each, result, element(f"({pointer})" if " " in pointer else pointer, "i", dtype)
        )
        self.line(f"    {result} = {value};")
        self.close()

    def fill(self) -> None:
        """Evaluate a block of one loop; store the stores."""
        for k in range(self.first_target):
            moves = self.moves(k, self.last)
            self.pointer(k, f" + low * s{k}_{self.last}" if moves else "")
        if self.has_index:
            self.line(f"const long here = where_{self.outer} + low * sw_{self.last};")
        self.fill_loop("count", "")

    def fill_pieces(self) -> None:
        """Evaluate a block of a ragged run, piece by piece of its innermost loop."""
        last = self.variant.run - 1
        self.line("long done = 0;")
        self.open("while (done < count)")
        self.line(f"const long piece = min(n{self.last} - c{last}, count - done);")
        loops = range(self.variant.run)
        for k in range(self.first_target):
            moved = [at for at in loops if self.moves(k, self.outer + at)]
            self.pointer(k, "".join(f" + c{at} * s{k}_{self.outer + at}" for at in moved))
        if self.has_index:
            terms = "".join(f" + c{at} * sw_{self.outer + at}" for at in loops)
            self.line(f"const long here = where_{self.outer}{terms};")
        self.fill_loop("piece", "done")
        self.line("done += piece;")
        self.line(f"c{last} += piece;")
        for at in range(last, 0, -1):
            self.open(f"if (c{at} == n{self.outer + at})")
            self.line(f"c{at} = 0;")
            self.line(f"c{at - 1}++;")
        for _ in range(last):
            self.close()
        self.close()

    def fill_loop(self, count: str, done: str) -> None:
        """The innermost loop of a row, and the search for positions in what it computed."""
        if not self.only_pointers():
            self.hoist()
            self.innermost(count, lambda: self.fill_iteration(f"{done} + i" if done else "i"))
        for r, each in enumerate(self.kernel.reductions):
            if is_argument(each):
                self.search(r, each, count, done)

    def fill_iteration(self, slot: str) -> None:
        self.compute()
        for r, each in enumerate(self.kernel.reductions):
            value = self.values.cast(each.value, each.accumulator)
            if self.has_buffer(r):
                self.keep(r, each, value, slot)
            elif self.source_pointer(r) is None:
                self.line(f"acc{r} = {combined(each, f'acc{r}', value)};")

    def keep(self, r: int, each: Reduce, value: str, slot: str) -> None:
        """Write a value, or a whole vector, to the buffer."""
        if self.vector:
            value = stored(value, each.accumulator, True)
            self.line(f"{near(each.accumulator, f't{r} + {slot}', '')} = {value};")
        else:
            self.line(assign(f"t{r}", slot, value, each.accumulator))

    def search(self, r: int, each: Reduce, count: str, done: str) -> None:
        """Look through the buffer for a better value than the best so far."""
        pointer, kind = self.block_pointer(r), c_type(each.accumulator)
        value = element(pointer, f"{done} + i" if done else "i", each.accumulator)
        self.open("")
        if self.vector:  # vectors find the best value; its position is the first equal one's
            op = "minimum" if each.op == "argmin" else "maximum"
            extreme = Reduce(op, each.value, each.accumulator, each.accumulator)
            self.line(f"{kind} value = {identity(extreme)};")
            self.fold(extreme, "value", f"{pointer} + {done}" if done else pointer, count)
            self.line("long i = 0;")
            self.line(f"while (i < {count} - 1 && {value} != value && {value} == {value})")
            self.line("    i++;")
        else:
            self.open(f"for (long i = 0; i < {count}; i++)")
            self.line(f"const {kind} value = {value};")
        self.line(f"const long at = here + i * sw_{self.last};")
        self.open(f"if ({best(each, 'value', 'at', f'acc{r}', f'pos{r}')})")
        self.line(f"acc{r} = value;")
        self.line(f"pos{r} = at;")
        self.close()
        if not self.vector:
            self.close()
        self.close()

    def combine_tree(self, r: int) -> None:
        pointer = self.source_pointer(r)
        dtype = memory_code(self.kernel.reductions[r].accumulator)
        raised = raised_words.of_reduction(r)
        total = pairwise.call(dtype, self.block_pointer(r), pointer is not None, raised)
        self.line(f"acc{r} = {total};")

    def combine_chain(self, r: int) -> None:
        """Combine in order; repeat if the result is not finite, to find the exceptions."""
        each = self.kernel.reductions[r]
        value = element(self.block_pointer(r), "i", each.accumulator)
        self.open("")
        self.line(f"{c_type(each.accumulator)} slow = acc{r};")
        self.line("for (long i = 0; i < count; i++)")
        self.line(f"    acc{r} = {combined(each, f'acc{r}', value)};")
        self.open(f"if ({not_finite(f'acc{r}', each.accumulator)})")
        self.line("for (long i = 0; i < count; i++)")
        self.line(f"    slow = {self.joined(r, 'slow', value)};")
        self.close()
        self.close()
