"""The printer of language "numba": a kernel variant as one function of machine types.

`def NAME(meta, scalars)`: `meta` points to int64: the loop sizes and other numbers of a chunk (see
chunks.py), then for each array its byte address and its strides in elements. The names that the
text may use come from the device (devices/cpu/frontend/builtins.py). Identifiers: a array address,
p pointer, s stride, n size, i loop counter, v value, x scalar, t buffer, acc accumulator.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering import interleave
from lazyfuse.codegen.lowering.kernel import Kernel, cost, is_argument, is_exact
from lazyfuse.codegen.lowering.printing import LoopText, named_source
from lazyfuse.codegen.lowering.variant import RUN_BLOCK, KernelVariant, value_target
from lazyfuse.codegen.numba import expressions, leaf_sums
from lazyfuse.codegen.numba import helpers as numba_helpers
from lazyfuse.codegen.numba.expressions import NumbaValues, combined, identity, load, number, stored
from lazyfuse.devices.base import Source

# Elements of a run that are evaluated at once where it may end early, and where one accumulator
# serves, which LLVM makes vectors of.
CHECKED = 256
ONE_RUN = 1 << 14
# Elements of a streamed map that are computed at once, into a buffer in the first cache.
STREAMED = 512
# Bodies of at least this cost copy their strided inputs into buffers first, up to this many inputs.
GATHER_COST = 3.0
GATHERED = 8
# The mark of the innermost loop: its iterations do not touch each other's memory.
_INDEPENDENT = "independent()"


def print_source(kernel: Kernel, form: KernelVariant) -> Source:
    """The program text of a kernel variant."""
    printer = Printer(kernel, form)
    printer.entry()
    body = "\n".join(printer.lines)
    helpers = numba_helpers.source(numba_helpers.names_in(body))
    text = f"{helpers}\n\ndef NAME(meta, scalars):\n{body}\n".lstrip()
    return named_source("numba", text, printer.rank, printer.arrays, kernel, is_exact(kernel))


class Printer(LoopText):
    """The statements of one text."""

    words = expressions

    def __init__(self, kernel: Kernel, form: KernelVariant) -> None:
        super().__init__(kernel, form)
        self.values = NumbaValues(kernel)
        self.independent = interleave.statement(kernel)
        self.skipping = [
            r
            for r, method in enumerate(form.methods)
            if method == "scalar" and expressions.skips_nan(kernel.reductions[r])
        ]
        self.seeks = (
            []
            if form.ragged
            else [
                r
                for r, method in enumerate(form.methods)
                if method == "seek" and kernel.reductions[r].accumulator[0] != "c"
            ]
        )
        self.leafwise = leaf_sums.suits(kernel, form) and not self.only_pointers()
        stores = range(self.first_store, self.first_target) if form.stream else range(0)
        self.streamed = [k for k in stores if form.classes[k] == "1"]
        self.gathered = self.strided() if form.core in ("map", "row") and not form.ragged else []
        self.block = leaf_sums.LEAF if self.leafwise else RUN_BLOCK
        if set(form.methods) == {"scalar"} and not self.gathered:
            self.block = CHECKED if self.may_stop() else ONE_RUN

    # Text

    def open(self, text: str) -> None:
        self.line(text)
        self.depth += 1

    def begin(self, word: str, test: str) -> None:
        self.open(f"{word} {test}:")

    def repeat(self, counter: str, stop: str, step: int = 1) -> None:
        self.open(f"for {counter} in range({stop if step == 1 else f'0, {stop}, {step}'}):")
        if counter == "i":  # the innermost
            self.line(_INDEPENDENT)

    def itemsize(self, array: int) -> int:
        return int(self.arrays[array][1:])

    # The parts of a program

    def entry(self) -> None:
        self.arguments()
        if self.flags:
            self.line("clear_flags()")
        if self.variant.needs_start:
            self.over_targets(self.start_target)
        self.loops(0)
        if self.streamed:
            self.line("fence_streaming_stores()")
        self.line(f"return {'test_flags()' if self.flags else 'int32(0)'}")

    def arguments(self) -> None:
        self.numbers("meta")
        for k, dtype in enumerate(self.kernel.scalars):
            self.line(f"x{k} = scalar_{dtype}(scalars, {k})")
        if self.variant.core == "row":
            self.buffers()
        for k in self.streamed:
            self.line(f"t{k} = local_{self.arrays[k]}({STREAMED})")
        for k in self.gathered:
            self.line(f"g{k} = local_{self.arrays[k]}({max(self.block, STREAMED)})")

    def array_arguments(self, k: int) -> None:
        first = self.rank + k * (1 + self.rank)
        self.line(f"a{k}_0 = meta[{first}]")
        for at in range(self.variant.loops):
            if self.moves(k, at):
                self.line(f"s{k}_{at} = meta[{first + 1 + at}] * {self.itemsize(k)}")
        if self.variant.classes[k] == "s":
            self.line(f"e{k} = meta[{first + 1 + self.last}]")

    # Targets that accumulate in memory

    def target(self, k: int, loops: int) -> str:
        dtype = "u1" if self.is_value(k) and self.arrays[k] == "b1" else self.arrays[k]
        self.line(f"p{k} = pointer_{dtype}(a{k}_{loops})")
        return f"p{k}"

    def is_value(self, k: int) -> bool:
        """Whether an array has the best values of an argmin or argmax."""
        return k >= self.first_target + len(self.kernel.reductions)

    def read_at(self, pointer: str, place: str, dtype: str) -> str:
        return load(pointer, place, dtype)

    def put(self, pointer: str, place: str, value: str, dtype: str) -> None:
        self.line(f"{pointer}[{place}] = {stored(value, dtype)}")

    # The innermost loop

    def offset(self, k: int) -> str:
        return {"0": "0", "1": "i", "-": "-i", "s": f"i * e{k}"}[self.variant.classes[k]]

    def pointers(self, arrays: range, shift: dict[int, str]) -> None:
        for k in arrays:
            self.line(f"p{k} = pointer_{self.arrays[k]}(a{k}_{self.outer}{shift.get(k, '')})")
        for k in range(self.first_store):
            if self.variant.classes[k] == "0":
                self.line(f"h{k} = {load(f'p{k}', '0', self.arrays[k])}")

    def compute(self) -> None:
        """All values of one iteration, and the stores."""
        for k in range(self.first_store):
            if self.variant.classes[k] != "0":
                pointer, place = (
                    (f"p{k}", self.offset(k)) if k not in self.gathered else (f"g{k}", "i")
                )
                self.line(f"h{k} = {load(pointer, place, self.arrays[k])}")
        for text in self.values.statements():
            self.line(text)
        for k, store in enumerate(self.kernel.stores, self.first_store):
            value = self.values.cast(store.value, store.dtype)
            target = f"t{k}[i]" if k in self.streamed else f"p{k}[{self.offset(k)}]"
            self.line(f"{target} = {stored(value, store.dtype)}")

    def streams(self) -> None:
        """A map whose dense stores go past the caches, a buffer at a time."""
        self.open(f"for low in range(0, n{self.last}, {STREAMED}):")
        self.line(f"count = min({STREAMED}, n{self.last} - low)")
        every = range(len(self.arrays))
        self.pointers(
            every, {k: f" + low * s{k}_{self.last}" for k in every if self.moves(k, self.last)}
        )
        self.gather()
        self.open("for i in range(count):")
        self.line(self.independent)
        self.compute()
        self.close()
        for k in self.streamed:
            size = self.itemsize(k)
            self.line(f"stream(a{k}_{self.outer} + low * {size}, t{k}, count * {size})")
        self.close()

    def strided(self) -> list[int]:
        """Inputs that are copied into buffers before the computation.

        Compilers do not vectorise loops over such inputs where the processor gathers slowly.
        """
        found = [k for k in range(self.first_store) if self.variant.classes[k] == "s"]
        return found if len(found) <= GATHERED and cost(self.kernel) >= GATHER_COST else []

    def gather(self) -> None:
        """Copy `count` elements of each strided input into its buffer."""
        for k in self.gathered:
            self.open("for i in range(count):")
            self.line(_INDEPENDENT)
            self.line(f"g{k}[i] = p{k}[{self.offset(k)}]")
            self.close()

    def flat(self) -> None:
        """A map, or reductions into one target per iteration."""
        if self.streamed or (self.gathered and self.variant.core == "map"):
            self.streams()
            return
        self.pointers(range(len(self.arrays)), {})
        self.open(f"for i in range(n{self.last}):")
        self.line(self.independent)
        self.compute()
        for r, each in enumerate(self.kernel.reductions):
            k = self.first_target + r
            place = self.offset(k)
            value = self.values.cast(each.value, each.accumulator)
            if is_argument(each):
                v = value_target(self.kernel, r)
                self.line(f"w{r} = where_{self.outer} + i * sw_{self.last}")
                self.line(f"c{r} = {number(value, each)}")
                self.line(f"b{r} = {load(f'p{v}', self.offset(v), self.number_dtype(r))}")
                self.line(f"j{r} = p{k}[{place}]")
                self.line(f"take{r} = {expressions.best(each, f'c{r}', f'w{r}', f'b{r}', f'j{r}')}")
                self.line(f"p{v}[{self.offset(v)}] = c{r} if take{r} else b{r}")
                self.line(f"p{k}[{place}] = w{r} if take{r} else j{r}")
            else:
                before = load(f"p{k}", place, each.dtype)
                self.line(f"p{k}[{place}] = {stored(combined(each, before, value), each.dtype)}")
        self.close()

    def number_dtype(self, r: int) -> str:
        """The dtype in which an argmin or argmax compares: truth values as numbers."""
        dtype = self.kernel.reductions[r].accumulator
        return "u1" if dtype == "b1" else dtype

    # Rows

    def buffers(self) -> None:
        if self.leafwise:
            leaf_sums.buffers(self)
        for r, each in enumerate(self.kernel.reductions):
            if self.leafwise:
                pass
            elif is_argument(each):
                if r in self.seeks and self.sought(r) == f"t{r}":
                    self.line(f"t{r} = local_{self.number_dtype(r)}({self.block})")
            elif self.variant.methods[r] != "scalar" and self.source_pointer(r) is None:
                self.line(f"t{r} = local_{each.accumulator}({self.block})")
            if self.variant.methods[r] == "tree" and (self.variant.long or self.leafwise):
                self.line(f"left{r} = local_{each.accumulator}(64)")
        if self.variant.long or self.leafwise:
            self.line("right = local_i8(64)")

    def walks_tree(self) -> bool:
        return self.leafwise or super().walks_tree()

    def start_run(self) -> None:
        if self.leafwise:
            leaf_sums.start_row(self)
            return
        for r in self.skipping:
            self.line(f"most{r}, seen{r} = {expressions.worst(self.kernel.reductions[r])}, 0")
        for r in self.seeks:
            self.line(f"found{r}, at{r} = {identity(self.kernel.reductions[r], True)}, -1")

    def end_run(self) -> None:
        if self.leafwise:
            leaf_sums.end_row(self)
            return
        for r in self.skipping:
            each = self.kernel.reductions[r]
            self.begin("if", f"seen{r} != 0")
            self.line(f"acc{r} = {combined(each, f'acc{r}', f'most{r}')}")
            self.close()
        for r in self.seeks:
            self.line(f"j{r} = where_{self.outer} + at{r} * sw_{self.last}")
            self.keep(r, f"found{r}", f"j{r}")

    def stop_if_decided(self) -> None:
        self.begin("if", " and ".join(self.decided("not ")))
        self.line("break")
        self.close()

    def joined(self, r: int, first: str, second: str) -> str:
        return combined(self.kernel.reductions[r], first, second)

    def evaluate(self) -> None:
        if self.variant.ragged:
            self.fill_pieces()
        else:
            self.fill()
        self.combine_block()

    def fill(self) -> None:
        """Evaluate a block of one loop into buffers; store the stores."""
        self.pointers(range(self.first_target), self.block_shifts())
        self.gather()
        if self.leafwise:
            leaf_sums.leaf(self)
        elif not self.only_pointers():
            self.fill_loop("count", "")

    def fill_loop(self, count: str, done: str) -> None:
        slot = f"{done} + i" if done else "i"
        for r in self.seeks:
            self.line(f"best{r} = {identity(self.kernel.reductions[r], True)}")
        self.open(f"for i in range({count}):")
        self.line(self.independent)
        self.compute()
        for r, each in enumerate(self.kernel.reductions):
            value = self.values.cast(each.value, each.accumulator)
            if r in self.skipping:
                self.line(f"c{r} = {value}")
                self.line(f"seen{r} |= c{r} == c{r}")
                kept = f"select(c{r} == c{r}, c{r}, {expressions.worst(each)})"
                self.line(f"most{r} = {expressions.extreme(each, f'most{r}', kept)}")
                continue
            if self.variant.methods[r] == "scalar":
                self.line(f"acc{r} = {combined(each, f'acc{r}', value)}")
                continue
            if is_argument(each):
                self.line(f"c{r} = {number(value, each)}")
                if r in self.seeks:
                    if self.sought(r) == f"t{r}":
                        self.line(f"t{r}[{slot}] = c{r}")
                    self.line(f"best{r} = {expressions.extreme(each, f'best{r}', f'c{r}')}")
                else:
                    here = "here + i" if done else f"where_{self.outer} + (low + i)"
                    self.line(f"w{r} = {here} * sw_{self.last}")
                    self.keep(r, f"c{r}", f"w{r}")
                continue
            if self.source_pointer(r) is None:
                self.line(f"t{r}[{slot}] = {stored(value, each.accumulator)}")
        self.close()

    def combine_block(self) -> None:
        if self.leafwise:
            return
        combine = {"tree": self.combine_tree, "chain": self.combine_chain}
        for r, method in enumerate(self.variant.methods):
            if method in combine:  # the others are combined while the values are computed
                combine[method](r)
            elif r in self.seeks:
                self.seek(r)

    def combine_tree(self, r: int) -> None:
        dtype = self.kernel.reductions[r].accumulator
        self.line(f"acc{r} = pairwise_{dtype}({self.source_pointer(r) or f't{r}'}, count)")

    def combine_chain(self, r: int) -> None:
        each = self.kernel.reductions[r]
        self.open("for i in range(count):")
        self.line(f"acc{r} = {combined(each, f'acc{r}', load(f't{r}', 'i', each.accumulator))}")
        self.close()

    # Positions

    def keep(self, r: int, value: str, place: str) -> None:
        """Have an argmin or argmax keep a value with its position, if it beats the best so far."""
        each = self.kernel.reductions[r]
        self.begin("if", expressions.best(each, value, place, f"acc{r}", f"pos{r}"))
        self.line(f"acc{r} = {value}")
        self.line(f"pos{r} = {place}")
        self.close()

    def sought(self, r: int) -> str:
        """Where the values of a block lie: the input itself, or a buffer."""
        each = self.kernel.reductions[r]
        direct = (
            not self.kernel.stores
            and each.value < self.first_store
            and self.variant.classes[each.value] == "1"
            and self.arrays[each.value] == each.accumulator != "b1"
        )
        return f"p{each.value}" if direct else f"t{r}"

    def seek(self, r: int) -> None:
        """The position of a block's best value, if it beats those before: the first in the block.

        Most blocks beat none, so a vector of best values is all that they need.
        """
        each = self.kernel.reductions[r]
        better = expressions.better(each, f"best{r}", f"found{r}")
        self.begin("if", f"(at{r} < 0) | {better}")
        self.line(f"found{r}, first = best{r}, count")
        self.open("for i in range(count):")
        self.line(_INDEPENDENT)
        self.line(f"c{r} = {self.sought(r)}[i]")
        same = f"(c{r} == best{r})"
        if each.accumulator[0] == "f":
            same = f"{same} | (c{r} != c{r})"
        self.line(f"first = min(first, select({same}, i, count))")
        self.close()
        self.line(f"at{r} = low + first")
        self.close()
