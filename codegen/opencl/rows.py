"""Rows in text of language "opencl": the innermost loops reduced into a work-item's registers.

Owns how runs are evaluated block by block and combined: by NumPy's pairwise tree, one after the
other, or in any order; for the last, vector text has accumulators for each lane.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering.kernel import Reduce, is_argument
from lazyfuse.codegen.lowering.variant import RUN_BLOCK
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

    def joined(self, r: int, first: str, second: str) -> str:
        raised = raised_words.of_reduction(r)
        return joined(self.kernel.reductions[r], first, second, f"&{raised}")

    # Runs, block by block

    def stop_if_decided(self) -> None:
        self.line(f"if ({' && '.join(self.decided('!'))})")
        self.line("    break;")

    def evaluate(self) -> None:
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
        self.pointers(range(self.first_target), self.block_shifts())
        if self.has_index:
            self.let("here", f"where_{self.outer} + low * sw_{self.last}")
        self.fill_loop("count", "")

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
